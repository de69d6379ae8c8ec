"""publish: as much as one likes, each event once, and of what is refused the reason stays with the job."""

import asyncio

import pytest

from holdfast.core.errors import Fenced, Invalid
from holdfast.core.event import Event
from holdfast.core.lifecycle import Success
from holdfast.core.limits import EVENTS_PER_PUBLISH_MAX, OUTPUT_EVENT_BYTES_MAX, PUBLISH_BYTES
from holdfast.ports import EventPage, Grant
from holdfast.testing.world import World, output

TOO_MUCH = "x" * (OUTPUT_EVENT_BYTES_MAX + 1)


async def kept(world: World, grant: Grant) -> list[int | None]:
    """The sequences in the log."""
    found: list[int | None] = []
    cursor = None
    while (page := await world.registry.logs(grant.job_id, after=cursor)).events:
        found += [event.sequence for event in page.events if event.sequence is not None]
        cursor = page.cursor
    return found


async def granted(world: World) -> Grant:
    await world.enqueue("job-1")
    return await world.claim()


async def test_more_than_goes_into_one_commit_is_stored_in_several(world: World) -> None:
    grant = await granted(world)
    many = [output(n, world=world) for n in range(1, EVENTS_PER_PUBLISH_MAX + 2)]
    start = len(many) + 1
    half = "x" * (PUBLISH_BYTES // 4 + 1)
    large = [output(n, half, world=world) for n in range(start, start + 9)]

    await world.registry.publish(grant, many)
    job = await world.registry.publish(grant, large)

    assert await kept(world, grant) == list(range(1, start + 9))
    assert job.published == start + 8
    assert job.flaws is None
    await world.check()


async def test_what_is_sent_again_is_stored_once_and_the_rest_is_added(world: World) -> None:
    grant = await granted(world)
    half = "x" * (PUBLISH_BYTES // 4 + 1)
    events = [output(n, half, world=world) for n in range(1, 14)]

    await world.registry.publish(grant, events[:7])
    job = await world.registry.publish(grant, events)
    again = await world.registry.publish(grant, events)

    assert await kept(world, grant) == list(range(1, 14))
    assert job.published == again.published == 13
    assert again.flaws is None


async def test_a_re_sent_publish_reads_no_log(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for the sequences in question, and for none before them."""

    grant = await granted(world)
    events = [output(n, world=world) for n in range(1, 9)]
    await world.registry.publish(grant, events)
    asked: list[int] = []
    published = world.store.published

    async def counted(job_id: str, token: int, *, first: int) -> list[int]:
        asked.append(first)
        return (await published(job_id, token, first=first))[:2]

    async def unread(*_: object, **__: object) -> EventPage:
        raise AssertionError("the log was read")

    monkeypatch.setattr(world.store, "published", counted)
    monkeypatch.setattr(world.store, "logs", unread)
    job = await world.registry.publish(grant, [*events[4:], output(9, world=world)])

    assert job.published == 9
    assert asked == [5, 7]


async def test_of_what_is_refused_the_error_says_how_much_was_stored(world: World) -> None:
    grant = await granted(world)
    half = "x" * (PUBLISH_BYTES // 2)
    events = [output(n, half, world=world) for n in range(1, 21)]

    mark = world.local.change_mark()
    publishing = asyncio.ensure_future(world.local.publish(grant, events))
    while not (await world.local.status("job-1")).published:
        await world.local.changes(since=mark, timeout=5)
    await world.local.cancel("job-1", actor="user:ana", hard=True)
    with pytest.raises(Fenced) as refused:
        await publishing

    stored = await kept(world, grant)
    words = f"What came before it is stored: up to sequence {len(stored)}."
    assert 0 < len(stored) < len(events)
    assert refused.value.message.endswith(words)


async def test_a_hole_is_not_filled_later(world: World) -> None:
    grant = await granted(world)
    await world.registry.publish(grant, [output(n, world=world) for n in (1, 4)])

    for sequences in ((2,), (2, 4), (3, 4, 5)):
        with pytest.raises(Invalid, match="must rise strictly"):
            await world.registry.publish(grant, [output(n, world=world) for n in sequences])

    job = await world.registry.status("job-1")
    assert await kept(world, grant) == [1, 4]
    assert job.flaws is not None
    assert (job.flaws.missed, job.flaws.refused) == (2, 3)


@pytest.mark.parametrize("late", [False, True])
async def test_a_refused_publish_never_leaves_a_silent_success(world: World, late: bool) -> None:
    grant = await granted(world)
    if late:
        await world.registry.complete(grant, Success())
    with pytest.raises(Invalid, match="bytes"):
        await world.registry.publish(grant, [output(1, TOO_MUCH, world=world)])
    if not late:
        await world.registry.complete(grant, Success())

    why = await world.registry.why("job-1")

    assert "Once what attempt 1 published was refused: Output in one event has" in why


async def test_nothing_to_publish_is_refused_and_not_counted(world: World) -> None:
    grant = await granted(world)

    with pytest.raises(Invalid, match="no event"):
        await world.registry.publish(grant, [])

    assert (await world.registry.status("job-1")).flaws is None


async def test_a_zombie_that_publishes_leaves_no_flaw_on_its_successors_work(world: World) -> None:
    zombie = await granted(world)
    await world.lapse()
    heir = await world.claim("worker-9")

    async def speak(grant: Grant, events: list[Event]) -> None:
        with pytest.raises(Fenced):
            await world.registry.publish(grant, events)

    await asyncio.gather(*(speak(zombie, [output(n, world=world)]) for n in (1, 2)))
    await world.registry.publish(heir, [output(1, world=world)])
    job = await world.registry.complete(heir, Success())
    await speak(zombie, [output(3, world=world)])

    assert job.flaws is None
    assert (await world.registry.status("job-1")).flaws is None
    assert await kept(world, heir) == [1]


async def test_what_was_refused_before_it_came_to_publish_is_noted_as_well(world: World) -> None:
    grant = await granted(world)

    await world.local.refuse_publish(grant, "The message is larger than 32 MiB.")

    assert "was refused: The message is larger than 32 MiB." in await world.registry.why("job-1")
    await world.check()
