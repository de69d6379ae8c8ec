"""Logs and the feed: spilled, shared by many writers, pruned, and still each event in its place."""

import asyncio
from datetime import timedelta
from random import Random

import pytest

from holdfast.core.lifecycle import Success
from holdfast.registry.local import LocalRegistry
from tests.stores.cas.faulty_objects import SlowObjects
from tests.stores.cas.shared_objects import (
    SharedObjects,
    check,
    claim,
    enqueue,
    external_event,
    lease,
    output,
    read_feed,
    read_log,
)


@pytest.mark.parametrize("size", [1, 20_000])
async def test_a_long_log_is_spilled_out_of_the_document_and_read_back_whole(
    size: int, shared: SharedObjects
) -> None:
    registry = shared.registry()
    await enqueue(registry, "job-1")
    grant = await claim(registry, op_id="op-1")
    await registry.record([external_event(shared, "early", "job-1")])
    for n in range(1, 201):
        await registry.publish(grant, [output(shared, n, b"x" * size)])

    found = await shared.objects.get("jobs/job-1/state.json")

    assert found is not None
    assert len(found[0]) < 100_000
    for limit in (1000, 7):
        log = await read_log(registry, "job-1", limit)
        assert [event.log_id for event in log] == list(range(1, 205))
        assert [e.sequence for e in log if e.sequence] == list(range(1, 201))
    assert await registry.record([external_event(shared, "early", "job-1")]) == 0
    other = shared.registry()
    again = await claim(other, op_id="op-1")
    assert again.fencing_token == grant.fencing_token
    await check(other)


@pytest.mark.parametrize("seed", range(5))
async def test_two_processes_on_one_job_feed_its_events_in_order(seed: int, shared: SharedObjects) -> None:
    random = Random(seed)
    await enqueue(shared.registry(), "job-1")

    async def process(name: str) -> None:
        registry = shared.slow_registry(random)
        for n in range(10):
            await registry.record([external_event(shared, f"{name}-{n}", "job-1")])

    await asyncio.gather(*(process(f"p{n}") for n in range(4)))

    shared.clock.advance(60)
    assert len(await read_log(shared.registry(), "job-1")) == 41
    await check(shared.registry())


@pytest.mark.parametrize("seed", range(5))
async def test_one_process_feeds_every_event_once(seed: int, shared: SharedObjects) -> None:
    store = shared.store(SlowObjects(shared.objects, Random(seed)))
    await enqueue(LocalRegistry(store, shared.ids), "job-1")

    await asyncio.gather(*(store.record([external_event(shared, f"e-{n}", "job-1")]) for n in range(12)))

    feed = await check(LocalRegistry(store, shared.ids))
    assert len(feed) == len(set(feed)) == 13


async def test_events_of_a_job_that_is_not_there_are_kept_for_it(shared: SharedObjects) -> None:
    registry = shared.registry()
    assert await registry.record([external_event(shared, "first", "job-1")]) == 1
    assert await shared.store().get(["job-1"]) == [None]

    await enqueue(registry, "job-1")

    log = await read_log(registry, "job-1")
    assert [event.event_id for event in log] == ["first", "job-1/1"]
    await check(registry)


async def test_one_event_id_is_one_event_however_many_record_it() -> None:
    shared, random = SharedObjects(), Random(1)
    events = [external_event(shared, f"evt-{n}", "job-1" if n % 2 else None) for n in range(6)]

    counted = await asyncio.gather(*(shared.slow_registry(random).record(events) for _ in range(8)))

    assert sum(counted) == 6
    shared.clock.advance(60)
    feed = await read_feed(shared.registry())
    assert sorted(set(feed)) == [f"evt-{n}" for n in range(6)]
    log = await shared.store().logs("job-1", after=None, limit=100)
    assert sorted(event.event_id for event in log.events) == ["evt-1", "evt-3", "evt-5"]


async def test_a_pruned_job_leaves_no_object_behind(shared: SharedObjects) -> None:
    registry = shared.registry()
    before = await shared.objects.list_keys("")
    grant = await lease(registry, "job-1", lock="disk", ttl=timedelta(hours=1))
    for n in range(1, 100):
        await registry.publish(grant, [output(shared, n)])
    await registry.record([external_event(shared, "on-it", "job-1")])
    await registry.complete(grant, Success())
    shared.clock.advance(days=2)

    pruned = await registry.prune(older_than=timedelta(days=1))

    assert pruned.jobs == 1
    left = [key for key in await shared.objects.list_keys("") if key not in before]
    assert [key.partition("/")[0] for key in left] == ["feed", "locks"]
    assert await read_feed(registry) == []
    again = await lease(registry, "job-2", lock="disk")
    assert again.fencing_token > grant.fencing_token
    assert await shared.objects.list_keys("jobs/job-1/") == []
    await check(registry)


async def test_the_end_of_a_long_feed_is_found_by_a_new_process() -> None:
    for count in (0, 1, 2, 3, 7, 8, 9, 33):
        shared = SharedObjects()
        registry = shared.registry()
        for n in range(count):
            await enqueue(registry, f"job-{n}")

        await enqueue(shared.registry(), "last")

        assert await read_feed(registry) == [*(f"job-{n}/1" for n in range(count)), "last/1"]
        assert len(await shared.objects.list_keys("feed/")) == count + 1
