"""The contract of a store: workers that announce themselves, and how jobs that wait are counted."""

import asyncio
from datetime import timedelta

from msgspec.structs import replace

from holdfast.core.workers import WorkerInfo
from holdfast.testing.fakes import EPOCH
from holdfast.testing.world import Opener, World, in_world

WORKER = WorkerInfo(
    name="mail-1@ci",
    instance="0199",
    queues=("mail", "default"),
    kinds=("send", "send:2", "command"),
    executors=("function", "command"),
    slots=32,
    busy=3,
    thread_kinds=("send",),
    thread_slots=2,
    thread_busy=1,
    region="eu-west",
    host="host-1",
    pid=4711,
    app="shop:app",
    version="0.1.0",
    paused=True,
    leaving=True,
    stopped=True,
    started_at=EPOCH + timedelta(microseconds=1),
    seen_at=EPOCH + timedelta(minutes=10, microseconds=7),
)
PLAIN = WorkerInfo(name="w", instance="1", queues=("default",), started_at=EPOCH, seen_at=EPOCH)


class WorkerListContract:
    open: Opener

    @in_world
    async def test_workers_are_read_back_whole_and_the_last_seen_first(self, world: World) -> None:
        assert await world.store.list_workers() == []
        others = [
            replace(PLAIN, instance=n, seen_at=EPOCH + timedelta(minutes=m)) for n, m in [("b", 3), ("a", 3)]
        ]
        for worker in (PLAIN, *others, WORKER):
            await world.store.put_worker(worker, forget_before=EPOCH)

        assert await world.store.list_workers() == [WORKER, others[1], others[0], PLAIN]

    @in_world
    async def test_a_worker_takes_the_place_of_what_its_process_announced_before(self, world: World) -> None:
        again = replace(WORKER, busy=4, seen_at=WORKER.seen_at + timedelta(seconds=15))
        namesake = replace(WORKER, instance="0200")
        for worker in (WORKER, namesake, again, again):
            await world.store.put_worker(worker, forget_before=EPOCH)

        assert await world.store.list_workers() == [again, namesake]

    @in_world
    async def test_workers_that_were_seen_too_long_ago_are_forgotten(self, world: World) -> None:
        for worker in (PLAIN, WORKER):
            await world.store.put_worker(worker, forget_before=EPOCH)
        late = replace(PLAIN, instance="2", seen_at=EPOCH + timedelta(days=1))

        await world.store.put_worker(late, forget_before=WORKER.seen_at)

        assert await world.store.list_workers() == [late, WORKER]

    @in_world
    async def test_workers_that_announce_themselves_at_once_are_all_kept(self, world: World) -> None:
        crowd = [replace(PLAIN, instance=f"{n:02}") for n in range(20)]
        await asyncio.gather(*(world.store.put_worker(one, forget_before=EPOCH) for one in crowd))

        kept = await world.store.list_workers()
        assert kept == crowd

    @in_world
    async def test_an_announcement_wakes_no_worker(self, world: World) -> None:
        await world.enqueue("job-1")
        mark = world.store.change_mark(ready=True)
        await world.store.put_worker(WORKER, forget_before=EPOCH)

        assert world.store.change_mark(ready=True) == mark

    @in_world
    async def test_jobs_that_are_ahead_are_counted_up_to_a_limit(self, world: World) -> None:
        await world.enqueue("late", priority=9)
        await world.enqueue("one")
        await world.enqueue("two", lock="disk")
        last = await world.enqueue("three")
        await world.enqueue("four")
        await world.enqueue("urgent", priority=0, kind="other")
        await world.enqueue("elsewhere", queue="other")
        await world.enqueue("delayed", priority=0, delay=timedelta(hours=1))

        async def ahead(limit: int) -> int:
            return await world.store.count_ready("default", ahead_of=last, limit=limit)

        assert [await ahead(limit) for limit in (100, 3, 2)] == [3, 3, 2]
        assert await world.store.count_ready("default", limit=100) == 6
        await world.claim()  # the urgent one
        assert await ahead(100) == 2
        assert await world.store.count_ready("other", limit=100) == 1
        assert await world.store.count_ready("nowhere", limit=100) == 0

    @in_world
    async def test_delayed_jobs_are_counted_until_they_are_due(self, world: World) -> None:
        for n in range(3):
            await world.enqueue(f"job-{n}", delay=timedelta(minutes=n))

        async def delayed(limit: int) -> int:
            return await world.store.count_ready("default", delayed=True, limit=limit)

        assert [await delayed(limit) for limit in (100, 1)] == [2, 1]
        world.clock.advance(61)
        assert await delayed(100) == 1
        assert await world.store.count_ready("default", limit=100) == 2
