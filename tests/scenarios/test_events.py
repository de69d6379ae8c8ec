"""Acceptance scenarios 26 and 27: attempts keep their own events, and any log folds to its job."""

from datetime import timedelta
from random import Random

import pytest
from msgspec.structs import replace

from holdfast.core.catalogue import EventClass
from holdfast.core.errors import HoldfastError
from holdfast.core.event import Event
from holdfast.core.job import Failure
from holdfast.core.lifecycle import Outcome, Stopped, Success
from holdfast.core.outputs import ValidationResult
from holdfast.core.projection import differences, fold, folded_view
from holdfast.core.retry import OnExhausted, Retry
from holdfast.core.state import State
from holdfast.ports import Grant
from holdfast.testing.world import PERMANENT, TRANSIENT, World, output

OUTCOMES: tuple[Outcome, ...] = (
    Success(result={"answer": 42}),
    Success(),
    TRANSIENT,
    PERMANENT,
    Failure(message="killed", crash=True),
    Stopped(),
)


async def test_both_attempts_keep_their_events_apart(world: World) -> None:
    """Scenario 26."""

    await world.enqueue("job-1")
    first = await world.claim()
    await world.registry.publish(first, [output(n, "one", world=world) for n in (1, 2)])
    await world.registry.release(first)
    second = await world.claim()
    await world.registry.publish(second, [output(n, "two", world=world) for n in (1, 2)])

    log = await world.registry.logs("job-1")

    told = [e for e in log.events if e.event_class is EventClass.WORKER]
    assert [(e.attempt, e.sequence, e.data) for e in told] == [
        (1, 1, b"one"),
        (1, 2, b"one"),
        (2, 1, b"two"),
        (2, 2, b"two"),
    ]
    assert len({e.event_id for e in told}) == 4


async def live(world: World, chance: Random, jobs: int, steps: int) -> None:
    """Let random things happen to many jobs."""
    for n in range(jobs):
        await world.enqueue(
            f"job-{n}",
            lock=chance.choice([None, None, "disk"]),
            promised_outputs=chance.choice([0, 0, 2]),
            retry=Retry(max_failures=2, max_crashes=3, on_exhausted=chance.choice([*OnExhausted])),
        )
    grants: list[Grant] = []
    for n in range(steps):
        world.clock.advance(chance.choice([0, 1, 5, 30]))
        grants += await world.registry.claim(["default"], owner=f"w-{n % 5}", limit=2)
        if grants:
            try:
                await act(world, chance, chance.choice(grants[-12:]), n)
            except HoldfastError:
                continue


async def act(world: World, chance: Random, grant: Grant, n: int) -> None:
    registry = world.registry
    judged = (await registry.status(grant.job_id)).state in (
        State.VALIDATING,
        State.PARTIAL_SUCCESS,
    )
    verbs = ["heartbeat", "publish", "aggregate", "release", "cancel", *["end"] * 3]
    match "judge" if judged else chance.choice(verbs):
        case "judge":
            verified = chance.randint(0, 2)
            found = ValidationResult(verified=verified, missing=2 - verified, names=("a", "b")[verified:])
            await registry.complete_validation(grant.job_id, found, actor="validator:v")
        case "heartbeat":
            await registry.heartbeat(grant)
        case "publish":
            await registry.publish(grant, [output(n + 1, world=world)])
        case "aggregate":
            await registry.aggregate(grant)
        case "release":
            await registry.release(grant)
        case "cancel":
            await registry.cancel(grant.job_id, actor="user:ana", hard=chance.random() < 0.3)
        case _:
            await registry.complete(grant, chance.choice(OUTCOMES))


async def whole_log(world: World) -> list[Event]:
    events: list[Event] = []
    cursor = None
    while (page := await world.registry.events(after=cursor)).events:
        events += page.events
        cursor = page.cursor
    return events


def disguise(event: Event, chance: Random) -> Event:
    """The same fact, with everything changed that the fold must not read."""
    return replace(
        event,
        occurred_at=event.occurred_at + timedelta(seconds=chance.randint(-(10**6), 10**6)),
        received_at=None,
        trace_id=f"trace-{chance.random()}",
        span_id="span",
        correlation_id="other",
        execution_id="other",
    )


@pytest.mark.parametrize("seed", range(3))
async def test_a_shuffled_doubled_disguised_log_folds_to_every_job(world: World, seed: int) -> None:
    """Scenario 27."""

    chance = Random(seed)
    await live(world, chance, jobs=40, steps=150)
    log = await whole_log(world)
    last = max(event.log_id or 0 for event in log)
    page = await world.registry.list_jobs(limit=1000)
    noise = [
        Event(
            event_type="invoice_sent",
            event_class=EventClass.EXTERNAL,
            occurred_at=world.clock.now(),
            given_id=f"evt-{n}",
        )
        for n in range(50)
    ]
    late = {
        job.job_id: replace(output(999, world=world), job_id=job.job_id, attempt=1, log_id=last + 1)
        for job in page.jobs
    }
    entries = [*log, *late.values()]
    told = [disguise(e, chance) for e in (*entries, *entries, *noise)]
    chance.shuffle(told)

    for job in page.jobs:
        projection = fold(told, job.job_id)

        assert projection.job == folded_view(job)
        assert differences(job, projection) == []
        assert projection.duplicates == sum(e.job_id == job.job_id for e in entries)
        listed = {e.event_id for e in projection.late}
        assert (late[job.job_id].event_id in listed) == job.ended
    await world.check()


async def test_events_that_come_after_the_end_are_stored_listed_and_change_nothing(
    world: World,
) -> None:
    """Scenario 27: late events, through the registry."""

    await world.enqueue("job-1")
    await world.registry.complete(await world.claim(), Success(result=42))
    before = await world.registry.status("job-1")
    note = Event(
        event_type="invoice_sent",
        event_class=EventClass.EXTERNAL,
        occurred_at=world.clock.now() - timedelta(days=1),
        job_id="job-1",
        given_id="evt-1",
    )

    assert await world.registry.record([note, replace(note, job_id=None, given_id="evt-2")]) == 2

    projection = fold(await whole_log(world), "job-1")
    assert [event.event_id for event in projection.late] == ["evt-1"]
    assert projection.job == folded_view(before)
    assert await world.registry.status("job-1") == before
    await world.check()
