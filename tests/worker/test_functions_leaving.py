"""A worker that is told to leave, at any moment, leaves no job behind in its name."""

import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from floor import STORES, Floor, opened, patient

from holdfast.core.state import LEASED, State
from holdfast.ports import Filter
from postgres_world import server
from verify.wire_proxy import WireProxy

APP = """
@app.job
async def naps(ctx: holdfast.Context, seconds: float):
    await asyncio.sleep(seconds)
    return ctx.attempt

@app.job
def stubborn(ctx: holdfast.Context):
    Path("here").write_text(str(os.getpid()))
    time.sleep(60)
"""
MINUTE = timedelta(seconds=60)


@pytest.fixture(params=STORES)
def floor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Floor]:
    with opened(request.param, tmp_path, APP) as floor:
        yield floor


@pytest.fixture
def file_floor(tmp_path: Path) -> Iterator[Floor]:
    with opened("sqlite", tmp_path, APP) as floor:
        yield floor


def left(floor: Floor) -> list[str]:
    """Who still has a job."""
    which = Filter(states=tuple(sorted(LEASED)))
    return [job.owner or "" for job in floor.use(lambda r: r.list_jobs(which, limit=1000)).jobs]


def test_workers_that_are_told_to_leave_while_they_claim_leave_nothing_behind(floor: Floor) -> None:
    for _ in range(300):
        floor.enqueue("naps", {"seconds": 0.02}, lease=MINUTE)
    for n in range(3):
        floor.worker(f"w-{n}", "--lease", "60s", "-c", "8", "--leave", "5s")
    patient(lambda: all("runs plant:app" in floor.said(f"w-{n}") for n in range(3)))
    for n in range(3):
        time.sleep(0.05)
        floor.workers[f"w-{n}"].send_signal(signal.SIGTERM)

    assert [floor.workers[f"w-{n}"].wait(20) for n in range(3)] == [0, 0, 0]
    assert left(floor) == []
    jobs = floor.use(lambda r: r.list_jobs(limit=1000)).jobs
    assert {job.state for job in jobs} <= {State.QUEUED, State.SUCCEEDED}
    assert all(job.crashes == job.failures == 0 for job in jobs)
    floor.sound()


def test_a_claim_that_is_granted_while_the_worker_leaves_is_given_back(tmp_path: Path) -> None:
    with opened("postgres", tmp_path, APP) as floor, WireProxy(server().port) as proxy:
        for n in range(5):  # an empty answer may be on its way when the proxy freezes
            name = f"w-{n}"
            floor.worker(name, "--lease", "60s", url=proxy.through(floor.url))
            patient(lambda: "runs plant:app" in floor.said(name))  # noqa: B023
            proxy.freeze()
            job_id = floor.enqueue("naps", {"seconds": 30}, lease=MINUTE)
            time.sleep(1.5)  # a worker with nothing to do asks twice a second
            floor.workers[name].send_signal(signal.SIGTERM)
            patient(lambda: "Leaving" in floor.said(name))  # noqa: B023
            proxy.thaw()

            assert floor.workers[name].wait(20) == 0
            job = floor.job(job_id)
            assert (job.state, job.owner, job.crashes) == (State.QUEUED, None, 0)
            if floor.types(job_id) == ["job_queued", "job_claimed", "job_requeued"]:
                return
        raise AssertionError("no claim was ever under way when the worker left")


def test_no_time_to_leave_and_a_second_signal_give_back_at_once(file_floor: Floor) -> None:
    floor = file_floor
    jobs = [floor.enqueue("naps", {"seconds": 30}, lease=MINUTE) for _ in range(2)]
    for n, leave in enumerate(("0s", "60s")):
        floor.worker(f"w-{n}", "--lease", "60s", "-c", "1", "--leave", leave)
    for job_id in jobs:
        floor.running(job_id)
    floor.workers["w-0"].send_signal(signal.SIGTERM)
    floor.workers["w-1"].send_signal(signal.SIGTERM)
    patient(lambda: "Leaving" in floor.said("w-1"))
    floor.workers["w-1"].send_signal(signal.SIGTERM)

    assert [floor.workers[name].wait(10) for name in ("w-0", "w-1")] == [0, 0]
    for job_id in jobs:
        job = floor.job(job_id)
        assert (job.state, job.attempt, job.crashes, job.failures) == (State.QUEUED, 2, 0, 0)


def test_a_thread_that_does_not_heed_cannot_keep_the_worker(file_floor: Floor) -> None:
    floor = file_floor
    job_id = floor.enqueue("stubborn", lease=MINUTE)
    floor.worker("w-1", "--lease", "60s", "--leave", "0s")
    floor.file("here")
    floor.running(job_id)
    before = time.monotonic()

    assert floor.leave("w-1") == 0
    assert time.monotonic() - before < 8
    job = floor.job(job_id)
    assert (job.state, job.attempt, job.crashes) == (State.QUEUED, 2, 0)
