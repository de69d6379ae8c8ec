"""The lease of a function: its worker frozen, killed, or told to leave."""

import signal
import time
from datetime import timedelta

import pytest

from holdfast.core.errors import Conflict
from holdfast.core.state import State
from holdfast.ports import Registry
from tests.worker.function_workers import FunctionWorkers
from tests.worker.live_processes import gone, wait_until

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


def test_a_frozen_workers_runner_dies_before_the_successor_starts_and_the_zombie_changes_nothing(
    workers: FunctionWorkers,
) -> None:
    """Scenarios 8 and 9."""
    job_id = workers.enqueue("waits")
    zombie = workers.start("w-1")
    pid = int(workers.file("pid-1"))
    workers.running(job_id)

    async def acquire(registry: Registry) -> None:
        await registry.acquire(job_id, owner="w-9")

    with pytest.raises(Conflict, match="owned by w-1"):
        workers.use(acquire)
    zombie.send_signal(signal.SIGSTOP)
    workers.start("w-2")
    workers.file("pid-2")
    assert gone(pid, 0), "the zombie's runner was alive beside its successor"
    job = workers.succeeded(job_id)
    zombie.send_signal(signal.SIGCONT)
    wait_until(lambda: "no longer ours" in workers.worker_log("w-1"))
    quick = workers.enqueue("quick")

    assert (job.result, job.attempt, job.crashes) == ("attempt 2", 2, 1)
    assert workers.leave("w-2") == 0
    assert workers.succeeded(quick).result == "quick"  # whoever was a zombie works on
    assert workers.job(job_id).version == job.version
    assert workers.job(job_id).result == "attempt 2"
    workers.assert_consistent()


def test_a_killed_workers_job_runs_elsewhere_soon_after_its_lease(workers: FunctionWorkers) -> None:
    """Scenario 10."""
    job_id = workers.enqueue("waits" if workers.url.startswith("postgres") else "waits_apart")
    first = workers.start("w-1")
    pid = int(workers.file("pid-1"))
    workers.spool = workers.folder / "elsewhere"
    workers.start("w-2", "-c", "1")
    wait_until(lambda: "runs plant:app" in workers.worker_log("w-2"))
    workers.running(job_id)
    first.kill()
    killed_at = time.monotonic()

    assert gone(pid)
    job = workers.succeeded(job_id)
    assert time.monotonic() - killed_at < 2 + 30
    assert (job.result, job.attempt, job.crashes) == ("attempt 2", 2, 1)
    causes = [e.attributes.get("cause") for e in workers.history(job_id)]
    assert "lease_expired" in causes


def test_a_worker_restarted_on_the_same_spool_does_not_wait_for_the_lease(
    workers: FunctionWorkers,
) -> None:
    job_id = workers.enqueue("waits", lease=timedelta(hours=1))
    workers.start("w-1", "--lease", "1h").send_signal(0)
    workers.file("pid-1")
    wait_until(lambda: workers.output(job_id) == b"attempt 1\n")
    workers.processes["w-1"].kill()
    workers.processes["w-1"].wait()
    workers.start("w-2")

    job = workers.succeeded(job_id)

    assert (job.result, job.attempt, job.crashes) == ("attempt 2", 2, 1)
    assert workers.output(job_id, attempt=1) == b"attempt 1\n"
    assert workers.output(job_id, attempt=2) == b"attempt 2\n"


def test_a_worker_told_to_leave_gives_back_at_no_cost_and_the_next_takes_it_at_once(
    workers: FunctionWorkers,
) -> None:
    """Scenarios 12 and 16."""
    coroutine = workers.enqueue("waits")
    workers.start("w-1", "--leave", "0.2s")
    workers.file("pid-1")
    workers.running(coroutine)

    assert workers.leave("w-1") == 0
    job = workers.job(coroutine)
    assert (job.state, job.attempt, job.crashes, job.failures) == (State.QUEUED, 2, 0, 0)
    assert job.reason == "the worker is shutting down"
    grant = workers.use(lambda r: r.acquire(coroutine, owner="w-2", op_id="one"))
    again = workers.use(lambda r: r.acquire(coroutine, owner="w-2", op_id="one"))
    assert grant.fencing_token == again.fencing_token > 1
    assert workers.types(coroutine).count("job_claimed") == 2
