"""Markers are hints: one too many, too early or left behind costs a look, and loses nothing."""

from datetime import timedelta

import pytest

from holdfast.core.errors import Unavailable
from holdfast.core.state import State
from tests.stores.cas.faulty_objects import FailingCreates, ForwardingObjects, PausedObjects
from tests.stores.cas.shared_objects import SharedObjects, claimed, enqueue, lease, listed


async def test_a_marker_without_its_job_is_passed_by_and_cleared_away(
    shared: SharedObjects,
) -> None:
    with pytest.raises(Unavailable):
        await enqueue(shared.registry(FailingCreates(shared.objects, "*/state.json")), "ghost")
    await enqueue(shared.registry(), "job-1")
    registry = shared.registry()

    assert await claimed(registry) == ["job-1"]
    assert await listed(registry) == ["job-1"]
    assert len(await shared.objects.list_keys("queues/")) == 1
    shared.clock.advance(61)
    await claimed(registry)
    assert await shared.objects.list_keys("queues/") == []
    await enqueue(registry, "ghost")
    assert await claimed(registry) == ["ghost"]


async def test_a_maker_that_wakes_up_after_its_marker_was_cleared_loses_nothing(
    shared: SharedObjects,
) -> None:
    slow = PausedObjects(shared.objects, verb="create_if_absent")
    making = await slow.catch(enqueue(shared.registry(slow), "slow"))
    shared.clock.advance(61)
    registry = shared.registry()
    assert await claimed(registry) == []
    assert await shared.objects.list_keys("queues/") == []
    slow.go.set()

    job = await making

    assert job.state is State.QUEUED
    assert await claimed(registry) == ["slow"]


async def test_a_lease_is_due_before_the_deadline_that_was_known_first(
    shared: SharedObjects,
) -> None:
    registry = shared.registry()
    await lease(registry, "job-1", ttl=timedelta(hours=1))
    shared.clock.advance(61)

    assert await registry.expire() == 1

    assert (await registry.status("job-1")).state is State.QUEUED
    shared.clock.advance(3600)
    assert await registry.expire() == 1
    assert (await registry.status("job-1")).ended


async def test_heartbeats_write_one_object_and_no_marker(shared: SharedObjects) -> None:
    objects = ForwardingObjects(shared.objects)
    registry = shared.registry(objects)
    grant = await lease(registry, "job-1", lock="disk")
    await registry.heartbeat(grant)
    shared.clock.advance(30)
    before, keys = objects.calls, await shared.objects.list_keys("")

    await registry.heartbeat(grant)

    assert objects.calls - before == 2
    assert await shared.objects.list_keys("") == keys


async def test_a_marker_that_comes_too_early_is_moved_to_when_the_job_is_due(
    shared: SharedObjects,
) -> None:
    registry = shared.registry()
    grant = await lease(registry, "job-1")
    [early] = await shared.objects.list_keys("due/")
    shared.clock.advance(50)
    await registry.heartbeat(grant)
    assert await shared.objects.list_keys("due/") == [early]
    shared.clock.advance(20)

    assert await registry.expire() == 0

    [moved] = await shared.objects.list_keys("due/")
    assert moved > early
    shared.clock.advance(40)
    assert await registry.expire() == 1
    assert await shared.objects.list_keys("due/") == []
