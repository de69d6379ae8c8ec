"""The quota of an attempt: what it counts, what it keeps, and what it says of the rest."""

from msgspec.structs import replace

from holdfast.core.catalogue import EventType, WorkerEventType
from holdfast.core.event import Event
from holdfast.core.explanation import describe_flaws
from holdfast.core.job import Flaws, Job
from holdfast.core.lifecycle import Publish
from holdfast.core.limits import (
    EVENT_BYTES,
    NUMBER_MAX,
    OUTPUT_ATTEMPT_BYTES_MAX,
    OUTPUT_RESERVE_BYTES,
)
from holdfast.core.quota import QUOTA_EXCEEDED, describe_dropped_output, event_bytes
from holdfast.core.state import State
from tests.core.sample_jobs import WORKER, changed, claim, job_in, release, said


def publish(*events: Event) -> Publish:
    return Publish(token=1, actor=WORKER, events=events)


def wrote(sequence: int, size: int) -> Event:
    return said(sequence, data=bytes(size))


def plain(sequence: int, kind: WorkerEventType = WorkerEventType.CUSTOM, **facts: object) -> Event:
    return replace(said(sequence, attributes=facts), event_type=kind)


def left(size: int) -> Job:
    return replace(job_in(State.RUNNING), published_bytes=OUTPUT_ATTEMPT_BYTES_MAX - size, flaws=None)


def test_an_event_counts_what_is_in_it_and_a_little_for_itself() -> None:
    assert event_bytes(None, {}) == EVENT_BYTES
    assert event_bytes(b"abc", {}) == EVENT_BYTES + 3
    assert event_bytes(b"abc", {"a": 1}) == EVENT_BYTES + 3 + len('{"a":1}')
    job = changed(job_in(State.RUNNING), publish(wrote(1, 5), plain(2))).after
    assert job.published_bytes == 2 * EVENT_BYTES + 5


def test_the_last_byte_of_the_quota_is_kept_and_the_next_is_not() -> None:
    whole = changed(left(EVENT_BYTES + 9), publish(wrote(1, 9)))
    over = changed(left(EVENT_BYTES + 9), publish(wrote(1, 10)))

    assert (len(whole.published), whole.after.flaws, whole.facts) == (1, None, ())
    assert (over.published, over.after.flaws) == ((), Flaws(dropped_bytes=10))
    assert over.after.published == 1
    [fact] = over.facts
    assert fact.event_type == EventType.PUBLISH_REFUSED
    assert fact.event_id == "job-1/publish_refused/1/quota"


def test_after_output_that_was_dropped_there_is_no_more_of_it() -> None:
    first = changed(left(1000), publish(wrote(1, 1000), wrote(2, 1)))
    later = changed(first.after, publish(wrote(3, 1), plain(4, WorkerEventType.PROCESS_END)))

    assert first.published == ()
    assert [event.sequence for event in later.published] == [4]
    assert later.after.flaws == Flaws(dropped_bytes=1002)
    assert later.facts == (), "it is on record once"
    some = changed(left(EVENT_BYTES + 9), publish(wrote(1, 9), wrote(2, 9)))
    assert [event.sequence for event in some.published] == [1]
    one = replace(job_in(State.RUNNING), flaws=Flaws(dropped_bytes=1))
    assert changed(one, publish(wrote(1, 5))).published == ()


def test_what_is_no_output_is_kept_while_the_reserve_lasts() -> None:
    kept = changed(left(EVENT_BYTES - OUTPUT_RESERVE_BYTES), publish(plain(1), plain(2)))

    assert [event.sequence for event in kept.published] == [1]
    assert kept.after.flaws == Flaws(dropped_bytes=EVENT_BYTES)


def test_a_worker_that_stops_at_the_quota_says_how_much_it_dropped() -> None:
    error, job = WorkerEventType.PROCESS_ERROR, job_in(State.RUNNING)

    told = changed(job, publish(plain(1, error, dropped_bytes=7), plain(2, error, dropped_bytes=5)))
    silly = changed(job, publish(*(plain(n, error, dropped_bytes=x) for n, x in enumerate(
        ("7", -3, NUMBER_MAX + 1, None), 1
    ))))  # fmt: skip
    most = changed(told.after, publish(plain(3, error, dropped_bytes=NUMBER_MAX)))

    assert told.after.flaws == Flaws(dropped_bytes=12)
    assert len(told.published) == 2
    assert len(told.facts) == 1
    assert silly.after.flaws is None
    assert changed(job, publish(plain(1, dropped_bytes=7))).after.flaws is None
    assert most.after.flaws == Flaws(dropped_bytes=NUMBER_MAX)
    assert describe_flaws(told.after) == [describe_dropped_output(12, 1)]
    waiting = changed(told.after, release()).after
    assert (waiting.attempt, describe_flaws(waiting)) == (2, [describe_dropped_output(12, 1)])
    most_words = "an attempt may publish 1 GiB"
    assert describe_dropped_output(1, 2) == f"1 byte was not kept of the output of attempt 2: {most_words}."
    assert describe_dropped_output(1200, 1) == (
        f"1,200 bytes were not kept of the output of attempt 1: {most_words}."
    )
    assert f"A{most_words[1:]}; output beyond it is not kept." == QUOTA_EXCEEDED


def test_an_exit_code_that_no_record_can_keep_is_none() -> None:
    end = plain(1, WorkerEventType.PROCESS_END, exit_code=NUMBER_MAX + 1)

    assert changed(job_in(State.RUNNING), publish(end)).after.flaws is None


def test_the_next_attempt_has_a_quota_of_its_own() -> None:
    spent = changed(job_in(State.RUNNING), publish(wrote(1, 5))).after
    waiting = changed(spent, release()).after

    granted = changed(waiting, claim("op-2")).after

    assert granted.published_bytes == 0
    told = changed(granted, replace(publish(wrote(1, 7)), token=2)).after
    assert told.published_bytes == EVENT_BYTES + 7
