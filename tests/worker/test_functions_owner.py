"""Who owns a function's job: frozen, killed, leaving workers, and what they can no longer do."""

import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from floor import STORES, Floor, opened, patient
from shop import gone

from holdfast.core.errors import Conflict
from holdfast.core.state import State
from holdfast.ports import Registry

APP = """
@app.job
async def waits(ctx: holdfast.Context):
    print("attempt", ctx.attempt, flush=True)
    Path(f"pid-{ctx.attempt}").write_text(str(os.getpid()))
    if ctx.attempt == 1: await asyncio.wait_for(ctx.cancellation(), 60)
    ctx.check()
    return f"attempt {ctx.attempt}"

@app.job(isolation="process")
def waits_apart(ctx: holdfast.Context):
    Path(f"pid-{ctx.attempt}").write_text(str(os.getpid()))
    if ctx.attempt == 1: time.sleep(60)
    return f"attempt {ctx.attempt}"

@app.job
def quick(): return "quick"
"""


@pytest.fixture(params=STORES)
def floor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Floor]:
    with opened(request.param, tmp_path, APP) as floor:
        yield floor


def test_a_frozen_workers_runner_dies_before_the_successor_starts_and_the_zombie_changes_nothing(
    floor: Floor,
) -> None:
    """Scenarios 8 and 9."""
    job_id = floor.enqueue("waits")
    zombie = floor.worker("w-1")
    pid = int(floor.file("pid-1"))
    floor.running(job_id)

    async def acquire(registry: Registry) -> None:
        await registry.acquire(job_id, owner="w-9")

    with pytest.raises(Conflict, match="owned by w-1"):
        floor.use(acquire)
    zombie.send_signal(signal.SIGSTOP)
    floor.worker("w-2")
    floor.file("pid-2")
    assert gone(pid, 0), "the zombie's runner was alive beside its successor"
    job = floor.succeeded(job_id)
    zombie.send_signal(signal.SIGCONT)
    patient(lambda: "no longer ours" in floor.said("w-1"))
    quick = floor.enqueue("quick")

    assert (job.result, job.attempt, job.crashes) == ("attempt 2", 2, 1)
    assert floor.leave("w-2") == 0
    assert floor.succeeded(quick).result == "quick"  # whoever was a zombie works on
    assert floor.job(job_id).version == job.version
    assert floor.job(job_id).result == "attempt 2"
    floor.sound()


def test_a_killed_workers_job_runs_elsewhere_soon_after_its_lease(floor: Floor) -> None:
    """Scenario 10."""
    job_id = floor.enqueue("waits" if floor.url.startswith("postgres") else "waits_apart")
    first = floor.worker("w-1")
    pid = int(floor.file("pid-1"))
    floor.spool = floor.folder / "elsewhere"
    floor.worker("w-2", "-c", "1")
    patient(lambda: "runs plant:app" in floor.said("w-2"))
    floor.running(job_id)
    first.kill()
    killed_at = time.monotonic()

    assert gone(pid, 1)
    job = floor.succeeded(job_id)
    assert time.monotonic() - killed_at < 2 + 2
    assert (job.result, job.attempt, job.crashes) == ("attempt 2", 2, 1)
    causes = [e.attributes.get("cause") for e in floor.history(job_id)]
    assert "lease_expired" in causes


def test_a_worker_restarted_on_the_same_spool_does_not_wait_for_the_lease(floor: Floor) -> None:
    job_id = floor.enqueue("waits", lease=timedelta(seconds=60))
    floor.worker("w-1", "--lease", "60s").send_signal(0)
    floor.file("pid-1")
    patient(lambda: floor.output(job_id) == b"attempt 1\n")
    floor.workers["w-1"].kill()
    floor.workers["w-1"].wait()
    floor.worker("w-2")

    job = floor.succeeded(job_id, 10)

    assert (job.result, job.attempt, job.crashes) == ("attempt 2", 2, 1)
    assert floor.output(job_id, attempt=1) == b"attempt 1\n"
    assert floor.output(job_id, attempt=2) == b"attempt 2\n"


def test_a_worker_told_to_leave_gives_back_at_no_cost_and_the_next_takes_it_at_once(
    floor: Floor,
) -> None:
    """Scenarios 12 and 16."""
    coroutine = floor.enqueue("waits")
    floor.worker("w-1", "--leave", "0.2s")
    floor.file("pid-1")
    floor.running(coroutine)

    assert floor.leave("w-1") == 0
    job = floor.job(coroutine)
    assert (job.state, job.attempt, job.crashes, job.failures) == (State.QUEUED, 2, 0, 0)
    assert job.reason == "the worker is shutting down"
    grant = floor.use(lambda r: r.acquire(coroutine, owner="w-2", op_id="one"))
    again = floor.use(lambda r: r.acquire(coroutine, owner="w-2", op_id="one"))
    assert grant.fencing_token == again.fencing_token > 1
    assert floor.types(coroutine).count("job_claimed") == 2
