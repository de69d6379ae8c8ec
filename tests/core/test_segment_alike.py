"""Jobs that are alike: their events are encoded from those of one of them, to the same text."""

from datetime import UTC, datetime
from itertools import accumulate

import pytest
from msgspec.structs import replace

from holdfast.core import segment
from holdfast.core.catalogue import EventClass
from holdfast.core.event import Event
from holdfast.core.state import State

NOW = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
CLAIMED = Event(
    "job_claimed",
    EventClass.TRANSITION,
    NOW,
    "a job",
    2,
    2,
    State.QUEUED,
    State.ASSIGNED,
    1,
    1,
    "op of a job",
    "worker:w",
    attributes={"lease_seconds": 60},
)
STARTED = replace(
    CLAIMED, event_type="job_started", offset=3, from_state=State.ASSIGNED, to_state=State.RUNNING
)


def one_by_one(events: list[Event], jobs: list[segment.JobKey], ops: list[str]) -> list[segment.Segment]:
    """The segments of the same events, when each job has its own."""
    keys = dict(zip(map(str, jobs), jobs, strict=True))
    return segment.encode(
        [
            replace(event, job_id=str(job), op_id=op)
            for event in events
            for job, op in zip(jobs, ops, strict=True)
        ],
        lambda job_id: keys[job_id or ""],
    )


@pytest.mark.parametrize("count", [1, 2, 3, 12])
@pytest.mark.parametrize("ops", ["op", "op.{}", "{}.op"])
def test_the_segments_are_those_of_each_job_for_itself(count: int, ops: str) -> None:
    jobs: list[segment.JobKey] = list(range(7, 7 + count))
    op_ids = [ops.format(job) for job in jobs]

    found = segment.encode_alike([CLAIMED, STARTED], jobs, op_ids)

    assert found == one_by_one([CLAIMED, STARTED], jobs, op_ids)
    assert [(one.place, one.jobs) for one in found] == [(0, jobs), (count, jobs)]


def test_a_job_alone_is_no_array() -> None:
    [one] = segment.encode_alike([CLAIMED], ["x"], ["op"])

    assert one.text.startswith('{"n":1,"job":"x","event_type":"job_claimed",')
    assert list(segment.decode(one.text, {"x": "x"})) == [(0, replace(CLAIMED, job_id="x", op_id="op"))]


def test_places_begin_where_they_are_said_to() -> None:
    found = segment.encode_alike([CLAIMED, STARTED], [1, 2], ["op", "op"], place=5)

    assert [one.place for one in found] == [5, 7]
    ids: dict[segment.JobKey, str | None] = {1: "a", 2: "b"}
    assert [place for one in found for place, _ in segment.decode(one.text, ids)] == [5, 6, 7, 8]


def test_many_jobs_are_several_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "SEGMENT_EVENTS_MAX", 4)
    jobs: list[segment.JobKey] = list(range(9))
    op_ids = [f"op.{n}" for n in range(9)]

    found = segment.encode_alike([CLAIMED, STARTED], jobs, op_ids)

    assert found == one_by_one([CLAIMED, STARTED], jobs, op_ids)
    assert [one.jobs for one in found] == 2 * [jobs[:4], jobs[4:8], jobs[8:]]
    assert [one.place for one in found] == list(accumulate([0, 4, 4, 1, 4, 4]))


def test_of_no_jobs_and_of_no_events_there_is_none() -> None:
    assert segment.encode_alike([CLAIMED], [], []) == []
    assert segment.encode_alike([], [1], ["op"]) == []
