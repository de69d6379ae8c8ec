"""What a killed worker had spooled is reported by the next one on the same spool, once."""

import os
import shutil
from datetime import timedelta
from pathlib import Path
from zlib import crc32

import msgspec
import pytest

from holdfast.core.state import State
from holdfast.ports import Registry
from holdfast.sdk.open import open_registry
from holdfast.sdk.store_url import StoreUrl
from holdfast.system import SystemIds, boot_id
from holdfast.worker.completion_reporter import PendingCompletion
from holdfast.worker.executor import Ending
from holdfast.worker.held_job import HeldJob
from holdfast.worker.recovery import recover
from holdfast.worker.spool import FileSpool
from tests.worker.fake_runner import CLOCK, claim_job
from tests.worker.function_workers import FunctionWorkers
from tests.worker.live_processes import PATIENCE_SECONDS, wait_until

IDS = SystemIds()


APP = """
@app.job
async def talks(ctx: holdfast.Context):
    Path(f"ran-{ctx.attempt}").write_text("yes")
    for n in range(3):
        print("line", n)
        await asyncio.sleep(0.15)
    ctx.emit("told", n=3)
    return f"attempt {ctx.attempt}"

@app.job
async def talks_long(ctx: holdfast.Context):
    print("attempt", ctx.attempt)
    if ctx.attempt == 1:
        await asyncio.sleep(60)
    return ctx.attempt
"""
HOUR = timedelta(hours=1)
"""A lease that no test waits for."""

LINES = b"line 0\nline 1\nline 2\n"


def killed(workers: FunctionWorkers, name: str, failpoint: str, passing: int = 1) -> None:
    """A worker that was killed at that point."""
    worker = workers.start(name, "--lease", "1h", dies_at=failpoint, passing=passing)
    assert worker.wait(PATIENCE_SECONDS) == -9, workers.worker_log(name)


def attempt_events(workers: FunctionWorkers, job_id: str) -> list[tuple[int, int | None, str]]:
    """Every event of the attempts: attempt, sequence, type."""
    return [
        (event.attempt or 0, event.sequence, str(event.event_type))
        for event in workers.log(job_id)
        if event.sequence is not None
    ]


@pytest.mark.parametrize("failpoint", ["worker.output_stored", "worker.sealed", "worker.completed"])
def test_a_worker_killed_about_its_completion_doubles_and_loses_nothing(
    workers: FunctionWorkers, failpoint: str
) -> None:
    """Sealed, the ending is reported by the next worker, with whatever output had not been sent."""
    job_id = workers.enqueue("talks", lease=HOUR)
    killed(workers, "w-1", failpoint)
    workers.start("w-2")

    job = workers.succeeded(job_id)

    assert (job.attempt, job.result, job.crashes) == (1, "attempt 1", 0)
    assert workers.output(job_id) == LINES
    assert [kind for _, _, kind in attempt_events(workers, job_id)].count("custom") == 1
    assert len(set(attempt_events(workers, job_id))) == len(attempt_events(workers, job_id))
    wait_until(lambda: len(list(workers.spool.iterdir())) == 1)
    workers.assert_consistent()


@pytest.mark.parametrize(("failpoint", "passing"), [("worker.spooled", 2), ("worker.output_sent", 1)])
def test_output_between_spool_and_store_survives_the_kill(
    sqlite_workers: FunctionWorkers, failpoint: str, passing: int
) -> None:
    workers = sqlite_workers
    job_id = workers.enqueue("talks", lease=HOUR)
    killed(workers, "w-1", failpoint, passing)
    before = workers.output(job_id)
    workers.start("w-2")

    job = workers.succeeded(job_id)

    kept = workers.output(job_id, attempt=1)
    assert (job.attempt, job.crashes) == (2, 1)
    assert LINES.startswith(kept)
    assert kept.startswith(b"line 0\n" + b"line 1\n" * (passing - 1))
    assert kept.startswith(before)
    assert before if failpoint == "worker.output_sent" else len(kept) > len(before)
    assert workers.output(job_id, attempt=2) == LINES
    events = attempt_events(workers, job_id)
    assert len(set(events)) == len(events)


def test_a_torn_tail_is_passed_over_and_another_stores_spool_is_left_alone(
    sqlite_workers: FunctionWorkers,
) -> None:
    workers = sqlite_workers
    job_id = workers.enqueue("talks", lease=HOUR)
    killed(workers, "w-1", "worker.spooled", passing=2)
    [folder] = workers.spool.iterdir()
    [attempt] = [path for path in folder.iterdir() if path.name not in ("lock", "store")]
    other = workers.spool / "other"
    shutil.copytree(folder, other)
    (other / "store").write_text("sqlite:////elsewhere.db")
    with attempt.open("ab") as file:
        file.write(b"\0\0\1\0torn")
    (workers.spool / "stray").write_text("not a folder")
    (workers.spool / "empty").mkdir()
    workers.start("w-2")

    assert workers.succeeded(job_id).attempt == 2
    assert workers.output(job_id, attempt=1) == b"line 0\nline 1\n"
    assert (other / attempt.name).exists()
    assert not folder.exists()


def test_a_spool_whose_lease_is_over_is_dropped_and_changes_nothing(
    sqlite_workers: FunctionWorkers,
) -> None:
    workers = sqlite_workers
    job_id = workers.enqueue("talks_long")
    workers.start("w-1")
    wait_until(lambda: workers.output(job_id) == b"attempt 1\n")
    old, workers.spool = workers.spool, workers.folder / "elsewhere"
    workers.processes["w-1"].kill()
    workers.processes["w-1"].wait()
    workers.start("w-2")
    job = workers.succeeded(job_id)
    workers.spool = old
    workers.start("w-3")
    wait_until(lambda: "runs plant:app" in workers.worker_log("w-3") and len(list(old.iterdir())) == 1)

    assert workers.job(job_id) == job
    assert (job.state, job.result) == (State.SUCCEEDED, 2)
    assert workers.output(job_id, attempt=1) == b"attempt 1\n"


async def left(registry: Registry, root: Path, name: str, store: str) -> HeldJob:
    """What a dead worker left: one attempt, sealed and not reported."""
    hold = await claim_job(registry)
    spool = FileSpool(root, name)
    spool.set_store(store)
    log = spool.log(hold)
    log.seal(msgspec.msgpack.encode(PendingCompletion(IDS.new(), None, Ending(result=b'"done"'))))
    os.close(spool.lock)
    return hold


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"\0" * 4096, b"version"])
async def test_an_unreadable_spool_file_is_set_aside_and_the_others_are_told(
    tmp_path: Path, damage: bytes
) -> None:
    registry = await open_registry("memory://")
    hold = await left(registry, tmp_path, "dead", "here boot-1")
    bad = tmp_path / "dead" / "0-job.3"  # before the others
    bad.write_bytes(of_another_version() if damage == b"version" else damage)
    for count in (1, 0, 0):
        told = await recover(tmp_path, "here boot-1", registry, clock=CLOCK, ids=IDS)
        assert told == count

    assert (await registry.status(hold.job_id)).result == "done"
    kept = [path.name for path in (tmp_path / "dead").iterdir()]
    assert sorted(kept) == ["0-job.3.unreadable", "lock", "store"]
    await registry.close()


def of_another_version() -> bytes:
    """A whole record that this version does not know."""
    body = msgspec.msgpack.encode([99, "later"])
    return len(body).to_bytes(4, "big") + crc32(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("store", ["here boot-2", "elsewhere boot-1"])
async def test_the_spool_of_another_boot_or_store_is_left_alone(tmp_path: Path, store: str) -> None:
    registry = await open_registry("memory://")
    hold = await left(registry, tmp_path, "dead", "here boot-1")
    before = {path: path.read_bytes() for path in (tmp_path / "dead").iterdir()}

    assert await recover(tmp_path, store, registry, clock=CLOCK, ids=IDS) == 0

    assert {path: path.read_bytes() for path in (tmp_path / "dead").iterdir()} == before
    assert (await registry.status(hold.job_id)).leased
    assert await recover(tmp_path, "here boot-1", registry, clock=CLOCK, ids=IDS) == 1
    assert not (tmp_path / "dead").exists()
    await registry.close()


def test_a_spool_is_of_one_store_and_one_boot(sqlite_workers: FunctionWorkers) -> None:
    workers = sqlite_workers
    workers.start("w-1")
    workers.succeeded(workers.enqueue("talks"))

    [label] = [path.read_text() for path in workers.spool.glob("*/store")]

    assert label == f"{StoreUrl(workers.url).name} {boot_id()}"
