"""The segment: what is encoded is decoded again, and small."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple, replace

from holdfast.core import segment
from holdfast.core.catalogue import EventClass
from holdfast.core.event import Event
from holdfast.core.state import State

NOW = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def claimed(job_id: str, n: int = 2, **more: object) -> Event:
    first = Event(
        "job_claimed",
        EventClass.TRANSITION,
        NOW,
        job_id,
        n,
        n,
        State.QUEUED,
        State.ASSIGNED,
        1,
        1,
        "op",
        "worker:w",
    )
    return replace(first, **more)


def started(job_id: str, op_id: str) -> Event:
    return claimed(
        job_id, 3, event_type="job_started", from_state=State.ASSIGNED, to_state=State.RUNNING, op_id=op_id
    )


def decoded(events: list[Event]) -> list[Event]:
    ids: dict[segment.JobKey, str | None] = {event.job_id: event.job_id for event in events}
    found: list[Event] = []
    for one in segment.encode(events, lambda job_id: job_id):
        numbered = list(segment.decode(one.text, ids))
        assert [place for place, _ in numbered] == list(range(one.place, one.place + one.events))
        assert {event.event_type for _, event in numbered} == {one.event_type}
        found += [event for _, event in numbered]
    return found


def by_id(events: list[Event]) -> dict[str, Event]:
    return {event.event_id: event for event in events}


def test_alike_events_share_their_fields() -> None:
    events = [claimed(f"job-{n}") for n in range(100)]
    [one] = segment.encode(events, lambda job_id: int((job_id or "").split("-")[1]))
    fields = msgspec.json.decode(one.text)
    assert fields["job"] == one.jobs == list(range(100))
    assert (fields["offset"], fields["op_id"], fields["n"]) == (2, "op", one.events)
    assert len(one.text) < 100 * 4 + 300


def test_op_ids_share_their_beginning() -> None:
    events = [started(f"job-{n}", f"0190-call.{n}") for n in range(10)]
    [one] = segment.encode(events, lambda job_id: job_id)
    fields = msgspec.json.decode(one.text)
    assert fields["op_start"] == "0190-call."
    assert fields["op_id"][3] == "3"
    assert decoded(events) == events


def test_one_without_an_op_id_keeps_the_others_whole() -> None:
    events = [started("a", "x.1"), started("b", "x.2"), replace(started("c", ""), op_id=None)]
    assert decoded(events) == events


def test_events_of_a_job_stay_in_order() -> None:
    events = [
        started("a", "1"),
        claimed("a", 4),
        claimed("b", 2),
        started("b", "2"),
        claimed("b", 4),
    ]
    found = decoded(events)
    assert by_id(found) == by_id(events)
    for job_id in "ab":
        offsets = [e.offset for e in found if e.job_id == job_id]
        assert offsets == sorted(offsets, key=lambda n: n or 0)


def test_only_the_jobs_that_are_asked_for_are_read() -> None:
    events = [started("a", "1"), started("b", "2"), started("c", "3")]
    [one] = segment.encode(events, lambda job_id: job_id)
    assert list(segment.decode(one.text, {"b": "b"})) == [(1, events[1])]
    assert not list(segment.decode(one.text, {"x": "x"}))


def test_many_events_of_a_type_are_several_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "SEGMENT_EVENTS_MAX", 4)
    events = [started(f"job-{n}", "op") for n in range(9)]
    assert [one.events for one in segment.encode(events, lambda job_id: job_id)] == [4, 4, 1]
    assert decoded(events) == events


def test_events_of_one_job_name_it_once() -> None:
    events = [started("a", "1"), replace(started("a", "2"), offset=4)]
    [one] = segment.encode(events, lambda job_id: job_id)
    assert one.jobs == ["a"]
    assert decoded(events) == events


def test_events_that_are_left_keep_their_places() -> None:
    events = [started("a", "x.1"), started("b", "x.2"), started("c", "x.3"), claimed("c", 4), claimed("b", 4)]
    first, second = segment.encode(events, lambda job_id: job_id)
    ids: dict[segment.JobKey, str | None] = {"b": "b", "c": "c"}

    left, later = segment.without(first.text, {"a"}) or "", segment.without(second.text, {"a"}) or ""

    assert segment.keys(left) == ["b", "c"]
    assert list(segment.decode(left, ids)) == [(1, events[1]), (2, events[2])]
    assert list(segment.decode(later, ids)) == [(3, events[3]), (4, events[4])]
    assert list(segment.decode(segment.without(left, {"b"}) or "", ids)) == [(2, events[2])]
    assert segment.without(left, {"b", "c"}) is None


def test_numbers_follow_commits_and_places() -> None:
    assert segment.commit_of(segment.log_id(7, 12)) == (7, 12)
    assert segment.log_id(7, segment.PLACES_MAX - 1) < segment.log_id(8, 0)


TEXTS = st.none() | st.text(max_size=5)
EVENTS = st.builds(
    Event,
    event_type=st.sampled_from(["job_queued", "output", "custom"]),
    event_class=st.sampled_from(EventClass),
    occurred_at=st.just(NOW) | st.just(NOW - timedelta(days=40_000, microseconds=1)),
    job_id=st.sampled_from(["a", "b", "c"]),
    offset=st.none() | st.integers(1, 3),
    transition_no=st.none() | st.integers(0, 2),
    from_state=st.none() | st.sampled_from(State),
    to_state=st.none() | st.sampled_from(State),
    attempt=st.none() | st.integers(1, 3),
    op_id=TEXTS,
    actor=TEXTS,
    reason=TEXTS,
    attributes=st.dictionaries(
        st.text(max_size=2), st.none() | st.integers() | st.lists(st.text(max_size=2)), max_size=2
    ),
    correlation_id=TEXTS,
    trace_id=TEXTS,
    sequence=st.none() | st.integers(1, 9),
    received_at=st.none() | st.just(NOW),
    expires_at=st.none() | st.just(NOW),
    data=st.none() | st.binary(max_size=4),
    stream=TEXTS,
    schema_version=st.integers(1, 2),
)


@given(st.lists(EVENTS, max_size=12))
def test_every_field_comes_back(events: list[Event]) -> None:
    found = decoded(events)
    for job_id in "abc":
        assert [e for e in found if e.job_id == job_id] == [e for e in events if e.job_id == job_id]


PLAIN = EVENTS.map(lambda event: Event(*astuple(event)[:16]))
"""Events with nothing but what the events of most transitions have."""


@given(EVENTS | PLAIN, st.none() | st.integers() | st.text(max_size=3), st.integers(0, 3))
def test_one_event_is_written_as_many_are(event: Event, job: segment.JobKey, place: int) -> None:
    general = segment._segment([event], place, lambda job_id: job)
    assert segment.encode_one(event, job, place=place) == general
    assert segment.encode([event], lambda job_id: job, place=place) == [general]


def test_a_damaged_segment_is_told() -> None:
    text = '{"n": 2, "job": ["a", "a"], "event_type": ["x"]}'
    with pytest.raises(ValueError, match="event_type has 1 values for 2 events"):
        list(segment.decode(text, {"a": "a"}))
    for damaged in ("", "[1]", "{}"):
        with pytest.raises((msgspec.DecodeError, KeyError)):
            list(segment.decode(damaged, {"a": "a"}))
