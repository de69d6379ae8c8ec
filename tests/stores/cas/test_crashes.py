"""A process that dies between any two objects loses nothing that it was told was done."""

import pytest

from holdfast.core.errors import Unavailable
from holdfast.core.lifecycle import Success
from holdfast.core.state import State
from holdfast.ports import VersionedStore
from tests.stores.cas.faulty_objects import Crashed, CrashingObjects, FailingCreates, PausedObjects
from tests.stores.cas.shared_objects import (
    ACTOR,
    SharedObjects,
    at_each_step,
    check,
    enqueue,
    external_event,
    lease,
    output,
    read_feed,
    request,
    types,
)


class CrashingWork:
    """A process that works until it dies, and what it was told was done."""

    def __init__(self, shared: SharedObjects, objects: VersionedStore) -> None:
        self.shared = shared
        self.registry = shared.registry(objects)
        self.made: set[str] = set()
        self.ended: set[str] = set()

    async def play(self) -> None:
        await enqueue(self.registry, "a", lock="disk")
        self.made.add("a")
        many = [request(name, lock="disk" if name == "c" else None) for name in "bcd"]
        await self.registry.enqueue_many(many, actor=ACTOR)
        self.made |= set("bcd")
        await self.registry.record(
            [external_event(self.shared, "on-a", "a"), external_event(self.shared, "alone")]
        )
        for grant in await self.registry.claim(["default"], owner="w-1", limit=3):
            await self.registry.heartbeat(grant)
            await self.registry.publish(grant, [output(self.shared, 1)])
            if grant.job_id == "b":
                await self.registry.release(grant)
            else:
                await self.registry.complete(grant, Success())
                self.ended.add(grant.job_id)


@pytest.mark.parametrize("late", [True, False])
def test_a_crash_between_any_two_objects_loses_nothing_that_was_acknowledged(late: bool) -> None:
    async def main(n: int) -> int:
        shared = SharedObjects()
        crashing = CrashingObjects(shared.objects, n, late=late)
        work = CrashingWork(shared, crashing)
        try:
            await work.play()
        except (Crashed, Unavailable):
            assert crashing.calls >= n
        registry = shared.registry()

        shared.clock.advance(61)
        await check(registry)
        before = {job.job_id: job for job in (await registry.list_jobs()).jobs}
        assert work.made <= before.keys()
        assert all(before[job_id].state is State.SUCCEEDED for job_id in work.ended)
        while grants := await registry.claim(["default"], owner="w-2", limit=2):
            for grant in grants:
                await registry.complete(grant, Success())
        await registry.record([external_event(shared, "on-a", "a"), external_event(shared, "alone")])

        after = {job.job_id: job for job in (await registry.list_jobs()).jobs}
        assert after.keys() == before.keys()
        assert all(job.state is State.SUCCEEDED for job in after.values())
        shared.clock.advance(61)
        feed = await check(registry)
        assert {"on-a", "alone"} <= set(feed)
        assert await shared.objects.list_keys("pending/") == []
        return crashing.calls

    at_each_step(main, more_than=50)


async def test_what_a_dead_writer_committed_is_in_its_log_at_once_and_in_the_feed_soon(
    shared: SharedObjects,
) -> None:
    with pytest.raises(Unavailable) as caught:
        await enqueue(shared.registry(FailingCreates(shared.objects, "feed/*")), "job-1")
    registry = shared.registry()

    assert caught.value.applied == "unknown"
    assert await types(registry, "job-1") == ["job_queued"]
    assert await read_feed(registry) == []
    shared.clock.advance(10)
    assert await read_feed(registry) == ["job-1/1"]
    assert await read_feed(registry) == ["job-1/1"]


async def test_what_no_feed_has_yet_never_leaves_its_document(shared: SharedObjects) -> None:
    registry = shared.registry()
    grant = await lease(registry, "job-1")
    for first, last in ((1, 90), (91, 91)):
        events = [output(shared, n) for n in range(first, last + 1)]
        with pytest.raises(Unavailable):
            await shared.registry(FailingCreates(shared.objects, "feed/*")).publish(grant, events)

    shared.clock.advance(10)

    assert len(await check(registry)) == 3 + 91


async def test_a_writer_that_was_given_up_and_wakes_up_is_not_lost_to_the_feed(
    shared: SharedObjects,
) -> None:
    """A repair closes its parcel while it sleeps; it commits under another one, and dies then."""
    registry = shared.registry()
    await enqueue(registry, "job-1")
    slow = PausedObjects(FailingCreates(shared.objects, "feed/*"))
    claiming = await slow.catch(shared.registry(slow).acquire("job-1", owner="w-1"))
    shared.clock.advance(10)
    assert await read_feed(registry) == ["job-1/1"]
    assert await shared.objects.list_keys("pending/") == []
    slow.go.set()
    with pytest.raises(Unavailable):
        await claiming

    assert await types(registry, "job-1") == ["job_queued", "job_claimed"]
    shared.clock.advance(10)
    assert await check(registry) == ["job-1/1", "job-1/2"]
