"""Events: ids that follow from what they record, and what a caller may say."""

from datetime import timedelta

import msgspec
import pytest
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
from holdfast.core.event import (
    Event,
    check_external,
    check_published,
    fact_id,
    with_given_id,
    with_scoped_id,
)
from holdfast.core.state import State
from tests.core.sample_jobs import NOW, said

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
def test_a_batch_uses_up_all_its_sequences(sequence: int | None, end: int | None, last: int) -> None:
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
    ("job_id", "reach", "kept"),
    [
        ("job-1", "", "evt-1@job-1"),
        ("job-1", "5f5f", "evt-1@job-1"),
        (None, "5f5f", "evt-1@/5f5f"),
        (None, "", "evt-1"),
    ],
)
def test_a_callers_id_is_kept_with_the_place_where_it_is_unique_and_given_back_without(
    job_id: str | None, reach: str, kept: str
) -> None:
    note = replace(NOTE, job_id=job_id, reason="paid")

    record = with_scoped_id(note, reach)

    assert record == replace(note, given_id=kept)
    assert with_given_id(record) == note


def test_an_event_whose_id_no_caller_gave_is_told_as_it_is() -> None:
    ours = replace(NOTE, given_id=None, job_id="job-1", offset=3)

    assert with_given_id(ours) is ours
    assert with_given_id(NOTE) is NOTE


@pytest.mark.parametrize("job_id", ["job-1", None])
def test_no_callers_id_passes_for_one_that_is_kept(job_id: str | None) -> None:
    record = with_scoped_id(replace(NOTE, job_id=job_id), "5f5f")

    with pytest.raises(Invalid, match=r"^event_id"):
        check_external(record)


TEXTS = (
    "reason",
    "cause",
    "actor",
    "stream",
    "op_id",
    "correlation_id",
    "execution_id",
    "trace_id",
    "span_id",
)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"given_id": None}, "event_id is empty"),
        ({"given_id": "a/b"}, "event_id 'a/b'"),
        ({"event_type": "job_succeeded"}, "event_type"),
        ({"event_type": "job_cancel_requested"}, "event_type"),
        ({"event_type": "process_start"}, "event_type"),
        ({"event_type": "key_created"}, "event_type"),
        ({"event_type": "key_revoked"}, "event_type"),
        ({"event_type": "not a name"}, "event_type"),
        ({"event_type": ""}, "event_type"),
        ({"event_type": "größe_geändert"}, "event_type"),
        ({"event_type": "x" * 129}, "event_type"),
        ({"offset": 1}, "A recorded event"),
        ({"sequence": 1}, "A recorded event"),
        ({"data": b"x"}, "A recorded event"),
        ({"job_id": "a/b"}, "job_id"),
        ({"task_id": "a/b"}, "task_id"),
        *(({name: "x" * 4097}, name) for name in TEXTS),
        *(({name: "\udcff"}, name) for name in TEXTS),
        *(({name: -1}, f"{name} is") for name in ("attempt", "fencing_token")),
        *(({name: 2**63}, f"{name} is") for name in ("attempt", "fencing_token")),
        *(({name: 1.5}, f"{name} is") for name in ("attempt", "fencing_token")),
        *(({name: True}, f"{name} is") for name in ("attempt", "fencing_token")),
        ({"occurred_at": NOW.replace(tzinfo=None)}, "occurred_at needs"),
        ({"attributes": {"x": object()}}, "attributes cannot"),
        ({"attributes": {"x": "y" * (64 * 1024 - 7)}}, "attributes has 65,537 bytes"),
    ],
)
def test_a_callers_event_that_cannot_stand_is_refused_by_what_is_wrong(
    change: dict[str, object], words: str
) -> None:
    with pytest.raises(Invalid, match=f"^{words}"):
        check_external(replace(NOTE, **change))


@pytest.mark.parametrize(
    "change",
    [
        {"event_type": "x" * 128},
        {"job_id": "job-1", "task_id": "task-1"},
        dict.fromkeys(TEXTS, "ä" * 4096),
        {"attempt": 0, "fencing_token": 0},
        {"attempt": 2**63 - 1, "fencing_token": 2**63 - 1},
        {"attributes": {"x": "y" * (64 * 1024 - 8)}},
    ],
)
def test_a_callers_event_may_go_to_its_limits(change: dict[str, object]) -> None:
    note = replace(NOTE, **change)

    assert check_external(note) is note


def test_a_refused_name_is_not_repeated_at_length() -> None:
    with pytest.raises(Invalid) as refusal:
        check_external(replace(NOTE, event_type="x" * 100_000))

    assert len(refusal.value.message) < 300


def test_an_event_says_only_what_it_was_given() -> None:
    assert msgspec.json.encode(NOTE) == (
        b'{"event_type":"invoice_sent","event_class":"external",'
        b'"occurred_at":"2026-01-01T00:00:00Z","given_id":"evt-1"}'
    )
    assert (NOTE.schema_version, NOTE.attributes) == (1, {})


def test_published_events_may_leave_gaps_and_come_in_batches() -> None:
    check_published([said(1), said(4, end_sequence=6), said(7), said(100)])


@pytest.mark.parametrize(
    "events",
    [
        [said(n) for n in range(1, 1001)],
        [said(2**63 - 1)],
        [said(1, data=b"x" * 65_536, stream="s" * 128)],
        [said(1, attributes={"x": "y" * (64 * 1024 - 8)})],
    ],
)
def test_worker_events_may_go_to_their_limits(events: list[Event]) -> None:
    check_published(events)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([replace(said(1), event_type="job_succeeded")], "not a worker event"),
        ([replace(said(1), sequence=None)], "None follows 0"),
        ([said(0)], "0 follows 0"),
        ([said(1), said(2), said(2)], "2 follows 2"),
        ([said(3), said(1)], "1 follows 3"),
        ([said(1, end_sequence=5), said(5)], "5 follows 5"),
        ([said(4, end_sequence=3)], "end at 3 and start at 4"),
        ([said(2**63)], "equence"),
        ([said(1, data=b"x" * 524_289)], "^Output in one event has 524,289 bytes"),
        ([replace(said(1), event_class=EventClass.TRANSITION)], "^A worker's event has a sequence"),
        ([replace(said(1), offset=1)], "^A worker's event"),
        ([replace(said(1), transition_no=1)], "^A worker's event"),
        ([replace(said(1), from_state=State.QUEUED)], "^A worker's event"),
        ([replace(said(1), to_state=State.QUEUED)], "^A worker's event"),
        ([replace(said(1), given_id="x")], "^A worker's event"),
        ([said(1, attributes={"x": "y" * 70_000})], "^attributes has"),
        ([said(1, attributes={"x": object()})], "^attributes cannot"),
        ([said(1, stream="\udcff")], "^stream contains"),
        ([said(1, stream="s" * 129)], "^stream has 129"),
        ([replace(said(1), occurred_at=NOW.replace(tzinfo=None))], "time zone"),
    ],
)  # fmt: skip
def test_worker_events_that_cannot_stand_are_refused_with_their_numbers(
    events: list[Event], words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        check_published(events)


@pytest.mark.parametrize("off", [timedelta(days=7300), timedelta(days=-999)])
def test_no_event_is_refused_for_the_clock_of_its_worker(off: timedelta) -> None:
    check_published([replace(said(1), occurred_at=NOW + off)])
