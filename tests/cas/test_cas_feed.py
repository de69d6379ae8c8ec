"""Logs and the feed: spilled, shared by many writers, pruned, and still each event in its place."""

import asyncio
from datetime import timedelta
from random import Random

import pytest
from cas_faults import Jittery
from cas_worlds import (
    Site,
    check,
    claim,
    enqueue,
    in_event_loop,
    lease,
    note,
    output,
    read_feed,
    read_log,
)

from holdfast.core.lifecycle import Success
from holdfast.registry.local import LocalRegistry


@pytest.mark.parametrize("size", [1, 20_000])
@in_event_loop
async def test_a_long_log_is_spilled_out_of_the_document_and_read_back_whole(size: int) -> None:
    site = Site()
    registry = site.registry()
    await enqueue(registry, "job-1")
    grant = await claim(registry, op_id="op-1")
    await registry.record([note(site, "early", "job-1")])
    for n in range(1, 201):
        await registry.publish(grant, [output(site, n, b"x" * size)])

    found = await site.objects.get("jobs/job-1/state.json")

    assert found is not None
    assert len(found[0]) < 100_000
    for limit in (1000, 7):
        log = await read_log(registry, "job-1", limit)
        assert [event.log_id for event in log] == list(range(1, 205))
        assert [e.sequence for e in log if e.sequence] == list(range(1, 201))
    assert await registry.record([note(site, "early", "job-1")]) == 0
    other = site.registry()
    again = await claim(other, op_id="op-1")
    assert again.fencing_token == grant.fencing_token
    await check(other)


def test_two_processes_on_one_job_feed_its_events_in_order() -> None:
    async def main(seed: int) -> None:
        site, random = Site(), Random(seed)
        await enqueue(site.registry(), "job-1")

        async def process(name: str) -> None:
            registry = site.jittery(random)
            for n in range(10):
                await registry.record([note(site, f"{name}-{n}", "job-1")])

        await asyncio.gather(*(process(f"p{n}") for n in range(4)))

        site.clock.advance(60)
        assert len(await read_log(site.registry(), "job-1")) == 41
        await check(site.registry())

    for seed in range(5):
        asyncio.run(main(seed))


@pytest.mark.parametrize("seed", range(5))
@in_event_loop
async def test_one_process_feeds_every_event_once(seed: int) -> None:
    site = Site()
    store = site.store(Jittery(site.objects, Random(seed)))
    await enqueue(LocalRegistry(store, site.ids), "job-1")

    await asyncio.gather(*(store.record([note(site, f"e-{n}", "job-1")]) for n in range(12)))

    feed = await check(LocalRegistry(store, site.ids))
    assert len(feed) == len(set(feed)) == 13


@in_event_loop
async def test_events_of_a_job_that_is_not_there_are_kept_for_it() -> None:
    site = Site()
    registry = site.registry()
    assert await registry.record([note(site, "first", "job-1")]) == 1
    assert await site.store().get(["job-1"]) == [None]

    await enqueue(registry, "job-1")

    log = await read_log(registry, "job-1")
    assert [event.event_id for event in log] == ["first", "job-1/1"]
    await check(registry)


@in_event_loop
async def test_one_event_id_is_one_event_however_many_record_it() -> None:
    site, random = Site(), Random(1)
    events = [note(site, f"evt-{n}", "job-1" if n % 2 else None) for n in range(6)]

    counted = await asyncio.gather(*(site.jittery(random).record(events) for _ in range(8)))

    assert sum(counted) == 6
    site.clock.advance(60)
    feed = await read_feed(site.registry())
    assert sorted(set(feed)) == [f"evt-{n}" for n in range(6)]
    log = await site.store().log("job-1", after=None, limit=100)
    assert sorted(event.event_id for event in log.events) == ["evt-1", "evt-3", "evt-5"]


@in_event_loop
async def test_a_pruned_job_leaves_no_object_behind() -> None:
    site = Site()
    registry = site.registry()
    before = await site.objects.list_keys("")
    grant = await lease(registry, "job-1", lock="disk", ttl=timedelta(hours=1))
    for n in range(1, 100):
        await registry.publish(grant, [output(site, n)])
    await registry.record([note(site, "on-it", "job-1")])
    await registry.complete(grant, Success())
    site.clock.advance(days=2)

    pruned = await registry.prune(older_than=timedelta(days=1))

    assert pruned.jobs == 1
    left = [key for key in await site.objects.list_keys("") if key not in before]
    assert [key.partition("/")[0] for key in left] == ["feed", "locks"]
    assert await read_feed(registry) == []
    again = await lease(registry, "job-2", lock="disk")
    assert again.fencing_token > grant.fencing_token
    assert await site.objects.list_keys("jobs/job-1/") == []
    await check(registry)


@in_event_loop
async def test_the_end_of_a_long_feed_is_found_by_a_new_process() -> None:
    for count in (0, 1, 2, 3, 7, 8, 9, 33):
        site = Site()
        registry = site.registry()
        for n in range(count):
            await enqueue(registry, f"job-{n}")

        await enqueue(site.registry(), "last")

        assert await read_feed(registry) == [*(f"job-{n}/1" for n in range(count)), "last/1"]
        assert len(await site.objects.list_keys("feed/")) == count + 1
