"""Seams between the attempts of a log."""

from datetime import UTC, datetime

from msgspec.structs import replace

from holdfast.core.catalogue import EventClass, EventType, WorkerEventType
from holdfast.core.event import Event
from holdfast.core.seams import SeamTracker

AT = datetime(2026, 1, 1, 16, 49, 23, tzinfo=UTC)
OUTPUT = Event(
    event_type=WorkerEventType.OUTPUT,
    event_class=EventClass.WORKER,
    occurred_at=AT.replace(minute=50),
    attempt=2,
    actor="worker:w2",
    sequence=1,
    data=b"x",
)
CLAIM = Event(event_type=EventType.CLAIMED, event_class=EventClass.TRANSITION, occurred_at=AT, attempt=2)


def test_the_first_output_of_a_later_attempt_has_a_seam_before_it() -> None:
    tracker = SeamTracker(5)

    assert tracker.before(replace(OUTPUT, attempt=1)) is None
    assert tracker.before(CLAIM) is None
    assert tracker.before(replace(OUTPUT, data=None)) is None
    assert tracker.before(OUTPUT) == "── attempt 2 of 5, worker w2, 16:49:23 UTC ──"
    assert tracker.before(OUTPUT) is None


def test_without_its_claim_the_seam_has_the_time_of_the_output() -> None:
    assert SeamTracker().before(replace(OUTPUT, actor=None)) == "── attempt 2, 16:50:23 UTC ──"


def test_a_traceback_that_comes_without_output_has_a_seam_before_it() -> None:
    tracker = SeamTracker(2)
    failed = replace(OUTPUT, event_type=WorkerEventType.PROCESS_ERROR, data=None)

    requeued = replace(
        CLAIM, event_type=EventType.REQUEUED, attributes={"error": {"traceback": "of the first"}}
    )
    assert tracker.before(requeued) is None
    assert tracker.before(replace(failed, attributes={"error_message": "7 bytes"})) is None
    assert tracker.before(replace(failed, attributes={"traceback": "Trace"})) is not None
