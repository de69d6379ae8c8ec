"""record: facts from elsewhere, each once, never passing for the registry's own."""

import pytest
from msgspec.structs import replace

from holdfast.core.catalogue import EventClass
from holdfast.core.errors import Invalid
from holdfast.core.event import Event
from holdfast.testing.fakes import EPOCH
from holdfast.testing.world import World

NOTE = Event(
    event_type="invoice_sent",
    event_class=EventClass.TRANSITION,
    occurred_at=EPOCH,
    given_id="evt-1",
    attributes={"amount": 12},
)


async def test_a_note_is_stored_as_external_and_received_now(world: World) -> None:
    world.clock.advance(5)

    assert await world.registry.record([NOTE]) == 1

    [event] = (await world.registry.events()).events
    assert (event.event_class, event.attributes) == (EventClass.EXTERNAL, {"amount": 12})
    assert (event.received_at, event.occurred_at) == (world.clock.now(), EPOCH)


async def test_a_repeated_id_is_ignored_within_and_across_calls(world: World) -> None:
    second = replace(NOTE, given_id="evt-2")

    assert await world.registry.record([NOTE, NOTE, second]) == 2
    assert await world.registry.record([second, replace(NOTE, attributes={})]) == 0
    assert len((await world.registry.events()).events) == 2


async def test_a_note_about_a_job_is_in_its_log_and_changes_nothing(world: World) -> None:
    job = await world.enqueue("job-1")

    await world.registry.record([replace(NOTE, job_id="job-1")])

    assert await world.registry.status("job-1") == job
    log = await world.registry.logs("job-1")
    assert [event.event_id for event in log.events] == ["job-1/1", "evt-1"]
    await world.check()


@pytest.mark.parametrize(
    "changes",
    [
        {"given_id": None},
        {"given_id": "job-1/2"},
        {"event_type": "job_succeeded"},
        {"event_type": "x" * 5000},
        {"job_id": "../etc/passwd"},
        {"offset": 2},
        {"sequence": 2},
        {"attributes": {"x": "y" * 70_000}},
        {"attributes": {"x": object()}},
        {"attempt": "a"},
        {"fencing_token": 2**70},
        {"span_id": "\ud800"},
        {"reason": "\udcff"},
        {"data": b"x" * 10_000_000},
    ],
)
async def test_a_note_that_cannot_stand_is_invalid_and_nothing_is_stored(
    world: World, changes: dict[str, object]
) -> None:
    good = replace(NOTE, given_id="evt-0")

    with pytest.raises(Invalid):
        await world.registry.record([good, replace(NOTE, **changes)])

    assert (await world.registry.events()).events == ()
