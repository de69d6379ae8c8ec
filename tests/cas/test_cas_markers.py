"""Markers are hints: one too many, too early or left behind costs a look, and loses nothing."""

from datetime import timedelta

import pytest
from cas_faults import Barren, Paused, Through
from cas_worlds import Site, claimed, enqueue, in_event_loop, lease, listed

from holdfast.core.errors import Unavailable
from holdfast.core.state import State


@in_event_loop
async def test_a_marker_without_its_job_is_passed_by_and_cleared_away() -> None:
    site = Site()
    with pytest.raises(Unavailable):
        await enqueue(site.registry(Barren(site.objects, "*/state.json")), "ghost")
    await enqueue(site.registry(), "job-1")
    registry = site.registry()

    assert await claimed(registry) == ["job-1"]
    assert await listed(registry) == ["job-1"]
    assert len(await site.objects.list_keys("queues/")) == 1
    site.clock.advance(61)
    await claimed(registry)
    assert await site.objects.list_keys("queues/") == []
    await enqueue(registry, "ghost")
    assert await claimed(registry) == ["ghost"]


@in_event_loop
async def test_a_maker_that_wakes_up_after_its_marker_was_cleared_loses_nothing() -> None:
    site = Site()
    slow = Paused(site.objects, verb="create_if_absent")
    making = await slow.catch(enqueue(site.registry(slow), "slow"))
    site.clock.advance(61)
    registry = site.registry()
    assert await claimed(registry) == []
    assert await site.objects.list_keys("queues/") == []
    slow.go.set()

    job = await making

    assert job.state is State.QUEUED
    assert await claimed(registry) == ["slow"]


@in_event_loop
async def test_a_lease_is_due_before_the_deadline_that_was_known_first() -> None:
    site = Site()
    registry = site.registry()
    await lease(registry, "job-1", ttl=timedelta(hours=1))
    site.clock.advance(61)

    assert await registry.expire() == 1

    assert (await registry.get("job-1")).state is State.QUEUED
    site.clock.advance(3600)
    assert await registry.expire() == 1
    assert (await registry.get("job-1")).ended


@in_event_loop
async def test_heartbeats_write_one_object_and_no_marker() -> None:
    site = Site()
    objects = Through(site.objects)
    registry = site.registry(objects)
    grant = await lease(registry, "job-1", lock="disk")
    await registry.heartbeat(grant)
    site.clock.advance(30)
    before, keys = objects.calls, await site.objects.list_keys("")

    await registry.heartbeat(grant)

    assert objects.calls - before == 2
    assert await site.objects.list_keys("") == keys


@in_event_loop
async def test_a_marker_that_comes_too_early_is_moved_to_when_the_job_is_due() -> None:
    site = Site()
    registry = site.registry()
    grant = await lease(registry, "job-1")
    [early] = await site.objects.list_keys("due/")
    site.clock.advance(50)
    await registry.heartbeat(grant)
    assert await site.objects.list_keys("due/") == [early]
    site.clock.advance(20)

    assert await registry.expire() == 0

    [moved] = await site.objects.list_keys("due/")
    assert moved > early
    site.clock.advance(40)
    assert await registry.expire() == 1
    assert await site.objects.list_keys("due/") == []
