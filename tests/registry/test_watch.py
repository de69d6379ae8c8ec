"""watch and wait: every event once, in order, while it happens; the stream ends with the job."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from holdfast.core.errors import NotFound, Unavailable
from holdfast.core.event import Event
from holdfast.core.lifecycle import Success
from holdfast.testing.world import World, output
from tests.registry.faulty_stores import breathe


async def collect(stream: AsyncIterator[Event]) -> list[str]:
    return [event.event_id async for event in stream]


async def whole(world: World, job_id: str) -> list[str]:
    ids: list[str] = []
    cursor = None
    while (page := await world.registry.logs(job_id, after=cursor)).events:
        ids += [event.event_id for event in page.events]
        cursor = page.cursor
    return ids


async def test_the_stream_of_an_ended_job_is_its_log_and_ends(world: World) -> None:
    await world.enqueue("job-1")
    grant = await world.claim()
    await world.registry.publish(grant, [output(1, world=world)])
    await world.registry.complete(grant, Success())

    seen = await collect(world.registry.watch("job-1"))

    assert seen == ["job-1/1", "job-1/2", "job-1/3", "job-1/1.1.1", "job-1/4"]


async def test_two_watchers_see_everything_once_while_it_happens(world: World) -> None:
    await world.enqueue("job-1")
    await world.enqueue("other")
    early = asyncio.create_task(collect(world.registry.watch("job-1")))
    grant = await world.claim()
    for n in range(1, 40, 2):
        await world.registry.publish(grant, [output(n, world=world), output(n + 1, world=world)])
        await breathe()
        if n == 21:
            late = asyncio.create_task(collect(world.registry.watch("job-1")))
    await world.registry.complete(grant, Success())

    first, second = await asyncio.gather(early, late)

    assert first == second == await whole(world, "job-1")
    assert len(first) == len(set(first)) == 44


async def test_a_log_longer_than_a_page_has_no_seam(world: World) -> None:
    await world.enqueue("job-1")
    grant = await world.claim()
    for start in (1, 501):
        batch = [output(n, world=world) for n in range(start, start + 500)]
        await world.registry.publish(grant, batch)
    await world.registry.complete(grant, Success())

    seen = await collect(world.registry.watch("job-1"))

    assert seen == await whole(world, "job-1")
    assert len(seen) == 1004


async def test_a_watcher_goes_on_from_its_cursor(world: World) -> None:
    await world.enqueue("job-1")
    grant = await world.claim()
    page = await world.registry.logs("job-1", limit=1)
    await world.registry.complete(grant, Success())

    seen = await collect(world.registry.watch("job-1", after=page.cursor))

    assert seen == ["job-1/2", "job-1/3", "job-1/4"]


async def test_a_watcher_wakes_for_an_event_that_comes_later(world: World) -> None:
    await world.enqueue("job-1")
    stream = world.registry.watch("job-1")
    assert (await anext(stream)).event_id == "job-1/1"
    following = asyncio.ensure_future(anext(stream))
    await breathe()

    await world.claim()

    assert (await following).event_id == "job-1/2"


async def test_watching_everybody_never_ends_and_shows_all(world: World) -> None:
    stream = world.registry.watch()
    await world.enqueue("job-1")
    await world.enqueue("job-2")

    seen = [(await anext(stream)).event_id for _ in range(2)]
    following = asyncio.ensure_future(anext(stream))
    await breathe()
    assert not following.done()
    await world.registry.complete(await world.claim(), Success())

    assert [*seen, (await following).event_id] == ["job-1/1", "job-2/1", "job-1/2"]


async def test_watching_or_waiting_for_nothing_says_so(world: World) -> None:
    with pytest.raises(NotFound):
        await anext(world.registry.watch("nobody"))
    with pytest.raises(NotFound):
        await world.registry.wait("nobody")


async def test_the_stream_of_a_job_that_is_pruned_meanwhile_ends(world: World) -> None:
    await world.enqueue("job-1")
    stream = world.registry.watch("job-1")
    await anext(stream)
    await world.registry.cancel("job-1", actor="user:ana")
    world.clock.advance(10)
    await world.registry.prune(older_than=timedelta(seconds=5))

    rest = await collect(stream)

    # A server reads ahead: it has sent the last event, or has found the job gone.
    assert rest == ["job-1/2"][: len(rest)]


async def test_waiting_ends_with_the_job(world: World) -> None:
    await world.enqueue("job-1")
    waiter = asyncio.create_task(world.registry.wait("job-1"))
    await breathe()
    await world.registry.complete(await world.claim(), Success())

    job = await waiter

    assert job.state == "succeeded"
    assert await world.registry.wait("job-1", timeout=0) == job


async def test_waiting_no_longer_than_asked_says_where_the_job_stands(world: World) -> None:
    await world.enqueue("job-1")
    waiter = asyncio.create_task(world.registry.wait("job-1", timeout=2.5))
    for _ in range(200):
        world.clock.advance(0.25)
        await world.store.counts()
        await breathe()
        if waiter.done():
            break

    with pytest.raises(Unavailable, match="still queued") as caught:
        await waiter

    assert caught.value.version == 1
    assert world.clock.monotonic() >= 2.5
