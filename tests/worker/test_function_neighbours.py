"""Jobs of one runner cost each other nothing, whatever one of them does."""

from datetime import timedelta

from holdfast.core.catalogue import ReasonCode
from holdfast.core.retry import Retry
from holdfast.core.state import State
from tests.worker.function_workers import FunctionWorkers, costs, dead_letter_reason

APP = """
from dataclasses import dataclass

class Five(int): pass

@dataclass
class Disk:
    size: int
    def __post_init__(self):
        raise OSError("no such disk")

@app.job
async def naps(seconds: float):
    await asyncio.sleep(seconds)
    return os.getpid()

@app.job
async def mounts(disk: Disk): return "mounted"

@app.job
async def advances(ctx: holdfast.Context):
    ctx.progress(1, Five(5))
    await asyncio.sleep(0.05)
    ctx.progress(1, True)
    return os.getpid()
"""
ONCE = Retry(max_failures=1, max_crashes=1)


def test_coroutines_that_end_as_their_time_is_up_cost_their_neighbours_nothing(
    shared_workers: FunctionWorkers,
) -> None:
    neighbour = shared_workers.enqueue("naps", {"seconds": 3.2})
    limit = timedelta(seconds=0.3)
    brief = [
        shared_workers.enqueue("naps", {"seconds": 0.3 + n / 400}, timeout=limit, retry=ONCE)
        for n in range(40)
    ]

    ended = [shared_workers.ended(job_id) for job_id in brief]
    job = shared_workers.succeeded(neighbour)

    assert costs(job) == (1, 0, 0)
    assert {e.result for e in ended if e.state is State.SUCCEEDED} <= {job.result}
    assert {dead_letter_reason(e) for e in ended} <= {None, ReasonCode.TIMEOUT}
    assert "has a fault" not in shared_workers.worker_log("w-1")


def test_an_argument_whose_making_raises_fails_its_own_attempt(
    shared_workers: FunctionWorkers,
) -> None:
    job = shared_workers.ended(shared_workers.enqueue("mounts", {"disk": {"size": 1}}, retry=ONCE))

    assert job.state is State.DEAD_LETTERED
    assert "no such disk" in (job.reason or "")
    shared_workers.succeeded(shared_workers.enqueue("naps", {"seconds": 0}))


def test_odd_whole_numbers_are_progress_and_lose_no_ending(shared_workers: FunctionWorkers) -> None:
    jobs = [shared_workers.enqueue("advances") for _ in range(3)]
    jobs += [shared_workers.enqueue("naps", {"seconds": n / 100}) for n in range(12)]

    results = {shared_workers.succeeded(job_id).result for job_id in jobs}

    assert len(results) == 1
    assert all(costs(shared_workers.job(job_id)) == (1, 0, 0) for job_id in jobs)
