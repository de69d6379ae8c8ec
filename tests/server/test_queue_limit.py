"""The limit of a queue: it counts every way in which a job is made, and is kept however many come at once."""

import asyncio

import pytest

from holdfast.core.errors import Exhausted
from holdfast.core.job import Job
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.server.context import ServerSettings
from holdfast.server.queue_limit import QueueLimit
from holdfast.stores.memory import MemoryStore
from holdfast.testing.fakes import CountingIds, ManualClock
from tests.server.served_registry import open_served


async def test_a_repeat_is_answered_though_the_queue_is_full() -> None:
    async with open_served(ServerSettings(queue_items_max=2)) as served:

        async def ask(*names: str) -> list[str]:
            asked = [JobRequest(spec=Spec(queue="q"), request_id=name) for name in names]
            jobs = await served.remote.enqueue_many(asked, actor="user:a")
            return [job.job_id for job in jobs]

        first = await ask("one", "two")
        assert await ask("one", "two") == first
        assert await ask("two") == first[1:]
        with pytest.raises(Exhausted):
            await ask("two", "three")
        assert await served.registry.counts("q") == {State.QUEUED: 2}


async def test_a_queue_is_not_longer_than_it_may_be_however_many_come_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_served(ServerSettings(queue_items_max=10)) as served:
        asked, real = JobRequest(spec=Spec(queue="q")), served.registry.counts

        async def counts(queue: str | None = None) -> dict[State, int]:
            found = await real(queue)
            await asyncio.sleep(0.2)  # as long as a store may take
            return found

        monkeypatch.setattr(served.registry, "counts", counts)
        got = await asyncio.gather(
            *(served.remote.enqueue(asked, actor="user:a") for _ in range(200)),
            return_exceptions=True,
        )
        assert {type(one) for one in got} == {Job, Exhausted}
        assert await served.registry.counts("q") == {State.QUEUED: 10}


async def test_a_count_includes_what_was_admitted_and_is_not_committed_yet() -> None:
    clock, ids = ManualClock(), CountingIds()
    limit = QueueLimit(LocalRegistry(MemoryStore(clock, ids), ids), clock, most=2)
    admitted, committing = asyncio.Semaphore(0), asyncio.Event()

    async def call() -> None:
        await limit.admit("q")
        admitted.release()
        await committing.wait()

    calls = [asyncio.create_task(call()) for _ in range(2)]
    for _ in calls:
        await admitted.acquire()
    clock.advance(60)

    with pytest.raises(Exhausted):
        await limit.admit("q")
    committing.set()
    await asyncio.gather(*calls)
    clock.advance(60)
    await limit.admit("q", 2)  # neither call has made a job


async def test_a_job_that_is_made_by_acquiring_it_counts() -> None:
    async with open_served(ServerSettings(queue_items_max=2)) as served:

        async def make(job_id: str) -> None:
            asked = JobRequest(spec=Spec(queue="q"), job_id=job_id)
            await served.remote.release(await served.remote.acquire(job_id, owner="w", create=asked))

        await make("one")
        await make("two")
        with pytest.raises(Exhausted):
            await make("three")
        await make("two")
