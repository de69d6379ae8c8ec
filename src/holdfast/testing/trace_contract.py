"""The contract of a store: the trace ids of a job and its events are stored."""

import pytest

from holdfast.core.errors import Fenced
from holdfast.core.lifecycle import Stopped
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.testing.world import LEASE, Opener, World, in_world, output


class TraceContract:
    open: Opener

    @in_world
    async def test_every_event_of_a_traced_job_is_kept_with_its_ids(self, world: World) -> None:
        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        parent = f"00-{trace}-00f067aa0ba902b7-01"
        asked = JobRequest(spec=Spec(), job_id="job-1", correlation_id="order-7", traceparent=parent)
        await world.registry.enqueue(asked, actor="user:ana")
        zombie = await world.claim(lease=LEASE)
        await world.lapse()
        grant = await world.claim("worker-9")
        with pytest.raises(Fenced):
            await world.registry.heartbeat(zombie)
        await world.registry.publish(grant, [output(n, world=world) for n in (1, 2)])
        await world.registry.cancel("job-1", actor="user:ana")
        await world.registry.complete(grant, Stopped(reason="as asked"))

        job = await world.registry.status("job-1")
        history = await world.registry.history("job-1")
        log = (await world.store.logs("job-1", after=None, limit=100)).events
        feed = (await world.store.events(after=None, limit=100)).events

        assert (job.correlation_id, job.trace_id) == ("order-7", trace)
        assert job.traceparent == parent
        for events, number in ((history, 7), (log, 10), (feed, 10)):
            ids = [(event.correlation_id, event.trace_id) for event in events]
            assert ids == [("order-7", trace)] * number
