"""What a killed worker had spooled is told by the next one on the same spool, once."""

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from floor import STORES, Floor, opened, patient

from holdfast.core.state import State

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
MINUTE = timedelta(seconds=60)
LINES = b"line 0\nline 1\nline 2\n"


@pytest.fixture(params=STORES)
def floor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Floor]:
    with opened(request.param, tmp_path, APP) as floor:
        yield floor


@pytest.fixture
def file_floor(tmp_path: Path) -> Iterator[Floor]:
    with opened("sqlite", tmp_path, APP) as floor:
        yield floor


def killed(floor: Floor, name: str, failpoint: str, passing: int = 1) -> None:
    """A worker that was killed at that point."""
    worker = floor.worker(name, "--lease", "60s", dies_at=failpoint, passing=passing)
    assert worker.wait(20) == -9, floor.said(name)


def said(floor: Floor, job_id: str) -> list[tuple[int, int | None, str]]:
    """Every event of the attempts: attempt, sequence, type."""
    return [
        (event.attempt or 0, event.sequence, str(event.event_type))
        for event in floor.log(job_id)
        if event.sequence is not None
    ]


@pytest.mark.parametrize("failpoint", ["worker.output_stored", "worker.sealed", "worker.completed"])
def test_a_worker_killed_about_its_completion_doubles_and_loses_nothing(
    floor: Floor, failpoint: str
) -> None:
    """Sealed, the ending is told by the next worker, with whatever output had not been sent."""
    job_id = floor.enqueue("talks", lease=MINUTE)
    killed(floor, "w-1", failpoint)
    floor.worker("w-2")

    job = floor.succeeded(job_id, 10)

    assert (job.attempt, job.result, job.crashes) == (1, "attempt 1", 0)
    assert floor.output(job_id) == LINES
    assert [kind for _, _, kind in said(floor, job_id)].count("custom") == 1
    assert len(set(said(floor, job_id))) == len(said(floor, job_id))
    patient(lambda: len(list(floor.spool.iterdir())) == 1)
    floor.sound()


@pytest.mark.parametrize(
    ("failpoint", "passing"), [("worker.spooled", 2), ("worker.output_sent", 1)]
)
def test_output_between_spool_and_store_survives_the_kill(
    file_floor: Floor, failpoint: str, passing: int
) -> None:
    floor = file_floor
    job_id = floor.enqueue("talks", lease=MINUTE)
    killed(floor, "w-1", failpoint, passing)
    before = floor.output(job_id)
    floor.worker("w-2")

    job = floor.succeeded(job_id, 10)

    kept = floor.output(job_id, attempt=1)
    assert (job.attempt, job.crashes) == (2, 1)
    assert LINES.startswith(kept)
    assert kept.startswith(b"line 0\n" + b"line 1\n" * (passing - 1))
    assert kept.startswith(before)
    assert before if failpoint == "worker.output_sent" else len(kept) > len(before)
    assert floor.output(job_id, attempt=2) == LINES
    events = said(floor, job_id)
    assert len(set(events)) == len(events)


def test_a_torn_tail_is_passed_over_and_another_stores_spool_is_left_alone(
    file_floor: Floor,
) -> None:
    floor = file_floor
    job_id = floor.enqueue("talks", lease=MINUTE)
    killed(floor, "w-1", "worker.spooled", passing=2)
    [folder] = floor.spool.iterdir()
    [attempt] = [path for path in folder.iterdir() if path.name not in ("lock", "store")]
    other = floor.spool / "other"
    shutil.copytree(folder, other)
    (other / "store").write_text("sqlite:////elsewhere.db")
    with attempt.open("ab") as file:
        file.write(b"\0\0\1\0torn")
    (floor.spool / "stray").write_text("not a folder")
    (floor.spool / "empty").mkdir()
    floor.worker("w-2")

    assert floor.succeeded(job_id, 10).attempt == 2
    assert floor.output(job_id, attempt=1) == b"line 0\nline 1\n"
    assert (other / attempt.name).exists()
    assert not folder.exists()


def test_a_spool_whose_lease_is_over_is_dropped_and_changes_nothing(file_floor: Floor) -> None:
    floor = file_floor
    job_id = floor.enqueue("talks_long")
    floor.worker("w-1")
    patient(lambda: floor.output(job_id) == b"attempt 1\n")
    old, floor.spool = floor.spool, floor.folder / "elsewhere"
    floor.workers["w-1"].kill()
    floor.workers["w-1"].wait()
    floor.worker("w-2")
    job = floor.succeeded(job_id)
    floor.spool = old
    floor.worker("w-3")
    patient(lambda: "runs plant:app" in floor.said("w-3") and len(list(old.iterdir())) == 1)

    assert floor.job(job_id) == job
    assert (job.state, job.result) == (State.SUCCEEDED, 2)
    assert floor.output(job_id, attempt=1) == b"attempt 1\n"
