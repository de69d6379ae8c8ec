"""Publishing: the worker's own events, stamped with its grant, in an order that only rises."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.core.errors import Invalid
from holdfast.core.event import Event
from holdfast.core.lifecycle import Publish
from holdfast.core.state import State
from tests.core.sample_jobs import (
    LATER,
    NOW,
    WORKER,
    changed,
    claim,
    job_in,
    publish,
    refused,
    release,
    said,
)

SECOND = timedelta(seconds=1)


def test_published_events_are_stamped_with_the_grant() -> None:
    told = replace(said(1, data=b"hi"), job_id="another", attempt=9, fencing_token=9, actor="x")

    change = changed(job_in(State.ASSIGNED), Publish(token=1, actor=WORKER, events=(told,)), LATER)

    [event] = change.published
    assert (event.job_id, event.attempt, event.fencing_token) == ("job-1", 1, 1)
    assert (event.actor, event.received_at, event.data) == (WORKER, LATER, b"hi")
    assert event.event_id == "job-1/1.1.1"
    assert [e.event_type for e in change.events] == ["job_started"]
    assert change.after.published == 1


@pytest.mark.parametrize(
    ("off", "kept"),
    [
        (timedelta(days=1), True),
        (timedelta(days=1, seconds=1), False),
        (timedelta(days=7300), False),
        (timedelta(days=-999), True),
    ],
)
def test_a_worker_whose_clock_is_far_ahead_is_heard_at_the_time_of_the_store(
    off: timedelta, kept: bool
) -> None:
    told = replace(said(1, data=b"hi"), occurred_at=LATER + off)

    change = changed(job_in(State.RUNNING), Publish(token=1, actor=WORKER, events=(told,)), LATER)

    [event] = change.published
    assert event.occurred_at == (told.occurred_at if kept else LATER)
    assert event.data == b"hi"


def test_sequences_rise_over_the_whole_attempt_and_start_again_in_the_next() -> None:
    told = changed(job_in(State.RUNNING), publish(1, 2, 5)).after
    batch = Publish(token=1, actor=WORKER, events=(said(6, end_sequence=9),))

    again = refused(told, publish(5))
    wide = changed(told, batch).after
    fresh = changed(changed(told, release()).after, claim("op-2")).after

    assert "Sequence 5 comes after 5" in again.error.message
    assert isinstance(again.error, Invalid)
    assert wide.published == 9
    assert isinstance(refused(wide, publish(9)).error, Invalid)
    assert changed(fresh, publish(1, token=2)).after.published == 1


def test_publishing_does_not_renew_the_lease() -> None:
    job = job_in(State.RUNNING)

    assert changed(job, publish(1), NOW + 30 * SECOND).after.lease == job.lease


def test_no_part_of_a_batch_may_repeat_what_was_published() -> None:
    told = changed(job_in(State.RUNNING), publish(1, 2, 5)).after

    assert isinstance(refused(told, publish(5, 6)).error, Invalid)
    assert changed(told, publish(*range(6, 1_006))).after.published == 1_005
    assert changed(told, publish(6, 7)).after.published == 7


@pytest.mark.parametrize(
    "events",
    [
        (),
        (said(2), said(1)),
        (said(1, end_sequence=2), said(2)),
        (said(1, data=b"x" * 524_289),),
        tuple(map(said, range(1, 1_002))),
    ],
)
def test_events_that_cannot_stand_are_not_published(events: tuple[Event, ...]) -> None:
    refusal = refused(job_in(State.RUNNING), Publish(token=1, actor=WORKER, events=events))

    assert isinstance(refusal.error, Invalid)
