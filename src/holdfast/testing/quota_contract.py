"""The contract of a store: the output of an attempt is bounded, and what was dropped is on record."""

import pytest
from msgspec.structs import replace

from holdfast.core.catalogue import EventType, WorkerEventType
from holdfast.core.errors import Exhausted
from holdfast.core.lifecycle import Success
from holdfast.core.limits import EVENT_BYTES, OUTPUT_ATTEMPT_BYTES_MAX
from holdfast.core.state import State
from holdfast.testing.world import Opener, World, fill, in_world, output


class QuotaContract:
    open: Opener

    @in_world
    async def test_output_beyond_the_quota_is_refused_and_told_and_the_job_goes_on(
        self, world: World
    ) -> None:
        await world.enqueue("job-1")
        grant = await world.claim()
        await fill(world.store, "job-1", 2 * EVENT_BYTES + 100)
        end = replace(
            output(4, world=world), event_type=WorkerEventType.PROCESS_END, data=None,
            stream=None, attributes={"exit_code": 0},
        )  # fmt: skip
        events = [output(1, "x" * 100, world=world), output(2, "y" * 100, world=world)]
        events += [output(3, "z", world=world), end]

        with pytest.raises(Exhausted, match="101 bytes were not kept"):
            await world.registry.publish(grant, events)
        again = await world.registry.publish(grant, events)
        await world.registry.heartbeat(grant)
        done = await world.registry.complete(grant, Success())

        log = await world.store.logs("job-1", after=None, limit=100)
        [refused] = [e for e in log.events if e.event_type == EventType.PUBLISH_REFUSED]
        assert [e.sequence for e in log.events if e.sequence is not None] == [1, 4]
        assert "may publish 1 GiB" in (refused.reason or "")
        assert again.published == 4
        assert done.state is State.SUCCEEDED
        assert done.flaws is not None
        assert (done.flaws.dropped_bytes, done.flaws.missed, done.flaws.refused) == (101, 0, 0)
        assert done.published_bytes > OUTPUT_ATTEMPT_BYTES_MAX - EVENT_BYTES
        assert "101 bytes were not kept" in await world.registry.why("job-1")
        await world.check()

    @in_world
    async def test_every_attempt_has_a_quota_of_its_own(self, world: World) -> None:
        await world.enqueue("job-1")
        first = await world.claim()
        await fill(world.store, "job-1", 0)
        with pytest.raises(Exhausted):
            await world.registry.publish(first, [output(1, world=world)])
        await world.registry.release(first)

        job = await world.registry.publish(await world.claim(), [output(1, "abc", world=world)])

        assert job.flaws is None
        assert job.published_bytes == EVENT_BYTES + 3
