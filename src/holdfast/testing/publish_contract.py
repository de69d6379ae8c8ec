"""The contract of a store: events that workers publish, also late and repeated."""

import pytest

from holdfast.core.catalogue import EventClass, EventType
from holdfast.core.errors import Fenced, Invalid
from holdfast.core.lifecycle import Success
from holdfast.core.limits import OUTPUT_EVENT_BYTES_MAX, OUTPUT_LATE_MAX
from holdfast.core.state import State
from holdfast.testing.world import Opener, World, in_world, output


class PublishContract:
    open: Opener

    @in_world
    async def test_the_owner_that_ended_a_job_may_publish_a_little_later(self, world: World) -> None:
        await world.enqueue("job-1")
        grant = await world.claim()
        await world.registry.publish(grant, [output(1, world=world)])
        ended = await world.registry.complete(grant, Success())
        read = await world.store.logs("job-1", after=None, limit=100)
        world.clock.advance(OUTPUT_LATE_MAX.total_seconds())

        job = await world.registry.publish(grant, [output(n, world=world) for n in (2, 3, 5)])
        again = await world.registry.publish(grant, [output(3, world=world)])
        rest = await world.store.logs("job-1", after=read.cursor, limit=100)
        world.clock.advance(1)
        with pytest.raises(Fenced):
            await world.registry.publish(grant, [output(6, world=world)])

        [kept] = await world.store.get(["job-1"])
        assert [event.event_id for event in rest.events] == [
            "job-1/1.1.2", "job-1/1.1.3", "job-1/1.1.5"
        ]  # fmt: skip
        assert (job.state, job.version, job.published) == (State.SUCCEEDED, ended.version, 5)
        assert again.published == 5
        assert kept is not None
        assert kept.flaws is not None
        assert (kept.flaws.missed, kept.flaws.refused) == (1, 1)
        assert await world.store.counts() == {State.SUCCEEDED: 1}
        await world.check()

    @in_world
    async def test_an_owner_that_lost_its_job_is_not_late_but_refused(self, world: World) -> None:
        await world.enqueue("lapsed")
        zombie = await world.claim("worker-7")
        await world.lapse()
        heir = await world.claim("worker-9")
        await world.registry.complete(heir, Success())
        await world.enqueue("cut")
        shut_out = await world.claim()
        await world.registry.cancel("cut", actor="user:ana", hard=True)

        for grant in (zombie, shut_out):
            with pytest.raises(Fenced):
                await world.registry.publish(grant, [output(1, world=world)])
            log = await world.store.logs(grant.job_id, after=None, limit=100)
            kinds = [e.event_type for e in log.events]
            assert kinds.count(EventType.STALE_WRITE_REJECTED) == 1
            assert kinds.count(EventType.PUBLISH_REFUSED) == 0
            assert all(e.event_class is not EventClass.WORKER for e in log.events)
        await world.registry.publish(heir, [output(1, world=world)])
        await world.check()

    @in_world
    async def test_a_publish_that_is_refused_is_on_record(self, world: World) -> None:
        await world.enqueue("job-1")
        grant = await world.claim()
        large = output(1, "x" * (OUTPUT_EVENT_BYTES_MAX + 1), world=world)
        for _ in range(3):
            with pytest.raises(Invalid, match="bytes"):
                await world.registry.publish(grant, [large])
        done = await world.registry.complete(grant, Success())

        log = await world.store.logs("job-1", after=None, limit=100)

        refused = [e for e in log.events if e.event_type == EventType.PUBLISH_REFUSED]
        assert [event.event_id for event in refused] == ["job-1/publish_refused/1"]
        assert done.flaws is not None
        assert done.flaws.refused == 3
        assert "at most" in (done.flaws.reason or "")
        assert "3 times what attempt 1 published was refused" in await world.registry.why("job-1")
        await world.check()

    @in_world
    async def test_a_re_sent_publish_stores_what_is_new(self, world: World) -> None:
        """Commits of one event and of many, with gaps between them, of two attempts."""

        await world.enqueue("job-1")
        first = await world.claim()
        await world.registry.publish(first, [output(n, world=world) for n in (1, 2, 3)])
        await world.registry.release(first)
        grant = await world.claim()
        for commit in ([1], [2], [4, 5, 7], [8], [9], [12, 13]):
            events = [output(n, world=world) for n in commit]
            await world.registry.publish(grant, events)

        async def sent(*sequences: int) -> int:
            events = [output(n, world=world) for n in sequences]
            return (await world.registry.publish(grant, events)).published

        assert [await sent(1, 2, 4), await sent(5, 7, 12), await sent(2, 9, 13)] == [13] * 3
        assert await sent(9, 12, 13, 14) == 14
        for unknown in ((3,), (6, 7), (10, 11, 14), (1, 3)):
            with pytest.raises(Invalid):
                await sent(*unknown)
        log = await world.store.logs("job-1", after=None, limit=100)
        kept = [e.sequence for e in log.events if e.sequence and e.attempt == grant.attempt]
        assert kept == [1, 2, 4, 5, 7, 8, 9, 12, 13, 14]
        await world.check()

    @in_world
    async def test_sequences_are_found_without_what_comes_before(self, world: World) -> None:
        await world.enqueue("job-1")
        grant = await world.claim()
        for commit in ([1, 2, 3], [5, 6], [7], [8], [9], [10], [11]):
            await world.registry.publish(grant, [output(n, world=world) for n in commit])

        async def found(first: int) -> list[int]:
            return await world.store.published("job-1", grant.fencing_token, first=first)

        assert (await found(3))[:3] == [3, 5, 6]
        assert (await found(4))[:2] == [5, 6]
        assert await found(11) == [11]
        assert await found(12) == []
        assert await world.store.published("job-1", 99, first=1) == []
        assert await world.store.published("nobody", 1, first=1) == []
