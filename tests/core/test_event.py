"""Events: ids that follow from what they record, and what a caller may say."""

from datetime import timedelta

import pytest
from lives import NOW, said
from msgspec.structs import replace

from holdfast.core.catalogue import (
    CONTROL_TYPES,
    FACT_TYPES,
    TRANSITION_TYPES,
    EventClass,
    EventType,
    WorkerEventType,
)
from holdfast.core.errors import Invalid
from holdfast.core.event import Event, check_external, check_published, fact_id

NOTE = Event(
    event_type="invoice_sent",
    event_class=EventClass.EXTERNAL,
    occurred_at=NOW,
    given_id="evt-1",
)


def test_the_three_kinds_of_id_never_meet() -> None:
    registry = replace(NOTE, given_id=None, job_id="job-1", offset=3)
    worker = replace(said(3), job_id="job-1", attempt=2, fencing_token=7)

    assert registry.event_id == "job-1/3"
    assert worker.event_id == "job-1/2.7.3"
    assert NOTE.event_id == "evt-1"
    assert fact_id("job-1", EventType.REPLAYED, "job-2") == "job-1/replayed/job-2"


@pytest.mark.parametrize(("sequence", "end", "last"), [(3, None, 3), (3, 9, 9), (None, None, 0)])
def test_a_batch_uses_up_all_its_sequences(
    sequence: int | None, end: int | None, last: int
) -> None:
    assert replace(said(1), sequence=sequence, end_sequence=end).last_sequence == last


def test_the_catalogue_is_split_without_overlap() -> None:
    assert set(EventType) == TRANSITION_TYPES | CONTROL_TYPES | FACT_TYPES
    assert not TRANSITION_TYPES & CONTROL_TYPES
    assert not TRANSITION_TYPES & FACT_TYPES
    assert not CONTROL_TYPES & FACT_TYPES
    assert not set(EventType) & set(WorkerEventType)


def test_a_callers_own_event_is_given_back() -> None:
    assert check_external(NOTE) is NOTE


@pytest.mark.parametrize(
    "change",
    [
        {"given_id": None},
        {"given_id": "a/b"},
        {"event_type": "job_succeeded"},
        {"event_type": "job_cancel_requested"},
        {"event_type": "not a name"},
        {"event_type": ""},
        {"offset": 1},
        {"sequence": 1},
    ],
)
def test_a_callers_event_cannot_pass_for_the_registrys(change: dict[str, object]) -> None:
    with pytest.raises(Invalid):
        check_external(replace(NOTE, **change))


def test_published_events_may_leave_gaps_and_come_in_batches() -> None:
    check_published([said(1), said(4, end_sequence=6), said(7), said(100)], NOW)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], "no event"),
        ([said(n) for n in range(1, 1002)], "1001 events"),
        ([replace(said(1), event_type="job_succeeded")], "not a worker event"),
        ([replace(said(1), sequence=None)], "None follows 0"),
        ([said(0)], "0 follows 0"),
        ([said(1), said(2), said(2)], "2 follows 2"),
        ([said(3), said(1)], "1 follows 3"),
        ([said(1, end_sequence=5), said(5)], "5 follows 5"),
        ([said(4, end_sequence=3)], "end at 3 and start at 4"),
        ([said(2**63)], "equence"),
        ([said(1, data=b"x" * 65_537)], "65,537 bytes"),
        ([said(1, attributes={"x": "y" * 70_000})], "attributes"),
        ([said(1, attributes={"x": object()})], "attributes"),
        ([said(1, stream="\udcff")], "stream"),
        ([replace(said(1), occurred_at=NOW + timedelta(hours=24, seconds=1))], "a day ahead"),
        ([replace(said(1), occurred_at=NOW.replace(tzinfo=None))], "time zone"),
    ],
)  # fmt: skip
def test_worker_events_that_cannot_stand_are_refused_with_their_numbers(
    events: list[Event], words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        check_published(events, NOW)


def test_a_worker_clock_may_be_behind_or_a_day_ahead() -> None:
    check_published([replace(said(1), occurred_at=NOW + timedelta(hours=24))], NOW)
    check_published([replace(said(1), occurred_at=NOW - timedelta(days=999))], NOW)
