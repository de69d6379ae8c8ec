"""How a burst of jobs is shared by idle workers."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from holdfast.core.spec import Spec
from holdfast.ports import JobRequest, Registry
from holdfast.sdk.open import open_registry
from holdfast.system import SystemIds
from holdfast.testing.fakes import ManualClock
from holdfast.worker.claims import WorkerSettings
from holdfast.worker.executor import Host
from holdfast.worker.held_job import HeldJob
from holdfast.worker.spool import MemorySpool
from holdfast.worker.spread import SPREAD_SECONDS, Spread
from holdfast.worker.worker import Worker
from tests.worker.command_workers import SilentObserver
from tests.worker.live_processes import PATIENCE_SECONDS


class HeavyJobs:
    """An executor whose jobs never end."""

    kinds: tuple[str, ...] = ("heavy",)

    def __init__(self, begun: asyncio.Semaphore) -> None:
        self.running = 0
        self._begun = begun

    async def open(self, host: Host) -> None: ...

    def run(self, held_jobs: Sequence[HeldJob]) -> None:
        for _ in held_jobs:
            self.running += 1
            self._begun.release()

    def renewed(self, held: HeldJob) -> None: ...

    async def close(self) -> None: ...


def idle_worker(registry: Registry, name: str, executor: HeavyJobs, clock: ManualClock) -> Worker:
    return Worker(
        registry,
        WorkerSettings(owner=name, slots=32),
        SilentObserver(),
        clock=clock,
        ids=SystemIds(),
        executors=[executor],
        spool=MemorySpool(),
    )


async def test_six_heavy_jobs_are_two_for_each_of_three_idle_workers() -> None:
    """What the pause of a worker leaves is for the others: the clock of this test stands still."""
    registry, begun = await open_registry("memory://"), asyncio.Semaphore(0)
    executors = [HeavyJobs(begun) for _ in range(3)]
    workers = [idle_worker(registry, f"w-{n}", one, ManualClock()) for n, one in enumerate(executors)]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        jobs = [JobRequest(spec=Spec(kind="heavy"))] * 6
        await registry.enqueue_many(jobs, actor="user:ana")
        async with asyncio.timeout(PATIENCE_SECONDS):
            for _ in jobs:
                await begun.acquire()
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await registry.close()

    assert [one.running for one in executors] == [2, 2, 2]


def claims(spread: Spread, queued: int, room: int = 100) -> list[int]:
    """What one worker takes of so many jobs, claim by claim, while none of them ends."""
    sizes = []
    while room:
        limit = spread.limit(room, ahead=0)
        got = min(limit, queued)
        spread.claimed(got, limit, room)
        sizes.append(got)
        queued, room = queued - got, room - got
        if got < limit:
            break
    return sizes


def test_of_a_burst_of_long_jobs_a_worker_takes_little_at_a_time() -> None:
    assert claims(Spread(), queued=1000) == [2, 2, 4, 6, 10, 16, 26, 34]


def test_each_such_claim_is_followed_by_one_short_pause() -> None:
    spread = Spread()

    spread.claimed(2, spread.limit(100, ahead=0), 100)

    assert spread.pause() == SPREAD_SECONDS
    assert spread.pause() == 0


def test_no_pause_follows_a_claim_that_filled_all_slots_or_found_the_queue_empty() -> None:
    spread = Spread()

    spread.claimed(2, spread.limit(2, ahead=0), 2)
    assert spread.pause() == 0
    spread.claimed(1, spread.limit(100, ahead=0), 100)
    assert spread.pause() == 0


def test_jobs_that_end_at_once_are_taken_by_the_hundred_soon() -> None:
    spread, sizes = Spread(), []
    for _ in range(3):
        limit = spread.limit(500, ahead=0)
        spread.claimed(limit, limit, 500)
        spread.jobs_ended(limit)
        sizes.append(limit)

    assert sizes == [2, 32, 500]


def test_a_worker_whose_jobs_end_all_the_time_takes_all_that_it_has_room_for() -> None:
    assert Spread().limit(500, ahead=1) == 500


def test_the_next_burst_is_shared_again() -> None:
    spread = Spread()
    claims(spread, queued=60)

    assert claims(spread, queued=6) == [2, 2, 2]
