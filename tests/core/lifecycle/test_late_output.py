"""Late and flawed output: what comes after the end is kept for a while, and what is lost is noted."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.core.catalogue import WorkerEventType
from holdfast.core.errors import Fenced
from holdfast.core.event import Event
from holdfast.core.explanation import describe_flaws, explain
from holdfast.core.job import Flaws, Job
from holdfast.core.lifecycle import Change, Expire, Publish, Restore, Success
from holdfast.core.limits import MESSAGE_CHARACTERS_MAX, OUTPUT_LATE_MAX
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from tests.core.sample_jobs import (
    HURRIED,
    LATER,
    NOW,
    PERMANENT,
    PROMISING,
    TRANSIENT,
    WORKER,
    after,
    cancel,
    changed,
    claim,
    complete,
    enqueue,
    heartbeat,
    job_in,
    judge,
    publish,
    refuse,
    refused,
    release,
    said,
)

TICK = timedelta(microseconds=1)


def ended(exit_code: object, sequence: int = 1) -> Publish:
    event = said(sequence, attributes={"exit_code": exit_code})
    return Publish(token=1, actor=WORKER, events=(_typed(event),))


def _typed(event: Event) -> Event:
    return replace(event, event_type=WorkerEventType.PROCESS_END)


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.VALIDATING])
def test_an_owner_that_ended_its_job_may_publish_for_a_while(state: State) -> None:
    job = job_in(state)

    last = changed(job, publish(1, 2), NOW + OUTPUT_LATE_MAX)
    late = refused(last.after, publish(3), NOW + OUTPUT_LATE_MAX + TICK)

    assert [event.sequence for event in last.published] == [1, 2]
    assert last.events == ()
    assert (last.after.state, last.after.version) == (job.state, job.version)
    assert last.after.published == 2
    assert isinstance(late.error, Fenced)
    assert len(late.facts) == 1


def test_late_sequences_go_on_where_the_attempt_was() -> None:
    job = after(enqueue(), claim(), publish(1, 2, 3), complete(Success()))

    again = refused(job, publish(3))

    assert "Sequence 3 comes after 3" in again.error.message
    assert changed(job, publish(4)).after.published == 4


def test_a_verdict_does_not_keep_the_owner_from_its_last_words() -> None:
    judged = changed(job_in(State.VALIDATING), judge(8, 0), LATER).after

    assert changed(judged, publish(1), NOW + OUTPUT_LATE_MAX).after.state is State.SUCCEEDED
    assert isinstance(refused(judged, publish(1), LATER + OUTPUT_LATE_MAX).error, Fenced)


LOST = Spec(retry=Retry(max_crashes=1))


def _lost() -> list[tuple[str, Job]]:
    taken = after(enqueue(), claim(), heartbeat())
    requeued = changed(taken, complete(TRANSIENT)).after
    again = changed(requeued, claim("op-2"), LATER).after
    return [
        ("cancelled from under it", changed(taken, cancel(hard=True)).after),
        ("lost its lease", changed(after(enqueue(LOST), claim()), Expire(), LATER).after),
        ("passed its deadline", changed(after(enqueue(HURRIED), claim()), Expire(), LATER).after),
        ("failed and waits", requeued),
        ("released", changed(taken, release()).after),
        ("waited and was cancelled", changed(requeued, cancel()).after),
        ("claimed again", again),
        ("ended by the next", changed(again, complete(Success(), 2), LATER).after),
        ("restored", changed(taken, Restore(op_id="op-restore")).after),
    ]


@pytest.mark.parametrize(("how", "job"), _lost())
def test_an_owner_that_lost_its_job_is_never_late(how: str, job: Job) -> None:
    now = max(NOW, job.updated_at)

    refusal = refused(job, publish(1), now)
    noted = changed(job, refuse(), now)

    assert isinstance(refusal.error, Fenced), how
    assert [event.attributes for event in refusal.facts] == [{"verb": "publish"}]
    assert noted == Change(job, job), "what a lost owner says is not missed"


def test_an_owner_that_stopped_as_it_was_asked_may_publish_its_last_words() -> None:
    asked = changed(after(enqueue(), claim(), heartbeat()), cancel()).after

    for ending in (release(), complete(PERMANENT)):
        stopped = changed(asked, ending).after
        assert stopped.state is State.CANCELLED
        assert changed(stopped, publish(1)).after.published == 1


def test_sequences_that_never_came_are_counted() -> None:
    job = job_in(State.RUNNING)

    whole = changed(job, publish(1, 2)).after
    holes = changed(whole, publish(5, 6, 9)).after
    batch = changed(whole, Publish(token=1, actor=WORKER, events=(said(3, end_sequence=7),))).after

    assert whole.flaws is None
    assert holes.flaws == Flaws(missed=4)
    assert batch.flaws is None
    assert changed(batch, publish(9)).after.flaws == Flaws(missed=1)
    assert describe_flaws(holes) == ["4 events of attempt 1 never arrived: its output has gaps."]
    assert describe_flaws(changed(job, publish(2)).after) == [
        "1 event of attempt 1 never arrived: its output has gaps."
    ]


def test_a_success_whose_process_failed_is_told() -> None:
    job = changed(job_in(State.RUNNING), ended(3)).after
    told = changed(job, complete(Success(result={"exit_code": 0}))).after
    plain = changed(job, complete(Success())).after
    failed = changed(job, complete(PERMANENT)).after

    assert describe_flaws(job) == []
    assert explain(told, NOW).endswith(
        "The worker reported success with exit code 0, but its process ended with 3."
    )
    assert describe_flaws(plain) == ["The worker reported success, but its process ended with 3."]
    assert describe_flaws(failed) == []
    gap = changed(changed(job_in(State.RUNNING), publish(2)).after, complete(Success())).after
    assert describe_flaws(gap) == ["1 event of attempt 1 never arrived: its output has gaps."]
    assert explain(gap, NOW) == (
        "It succeeded on the first attempt. Nothing more will happen. 1 event of attempt 1 never"
        " arrived: its output has gaps."
    )
    assert changed(job, ended(0, 2)).after.flaws is None
    assert changed(job_in(State.RUNNING), ended("3")).after.flaws is None


def test_what_was_refused_is_counted_and_its_first_reason_is_on_record() -> None:
    first = changed(job_in(State.RUNNING), refuse(reason="It is too large."))
    again = changed(first.after, refuse(reason="It has no type."))

    [fact] = first.facts
    assert (fact.event_type, fact.reason) == ("job_publish_refused", "It is too large.")
    assert (fact.event_id, fact.attributes) == ("job-1/publish_refused/1", {})
    assert again.facts == ()
    assert again.after.flaws == Flaws(refused=2, reason="It has no type.")
    assert describe_flaws(first.after) == ["Once what attempt 1 published was refused: It is too large."]
    assert describe_flaws(again.after) == ["2 times what attempt 1 published was refused: It has no type."]


def test_a_long_reason_of_a_refusal_is_cut() -> None:
    flaws = changed(job_in(State.RUNNING), refuse(reason="x" * 5000)).after.flaws

    assert flaws is not None
    assert len(flaws.reason or "") <= MESSAGE_CHARACTERS_MAX


def test_what_comes_too_late_is_counted_as_refused() -> None:
    job = after(enqueue(PROMISING), claim(), complete(Success()))

    noted = changed(job, refuse(reason="too late"), NOW + 2 * OUTPUT_LATE_MAX)

    assert noted.after.flaws == Flaws(refused=1, reason="too late")


def test_the_next_attempt_begins_without_the_flaws_of_the_last() -> None:
    flawed = changed(changed(job_in(State.RUNNING), publish(2)).after, refuse()).after
    waiting = changed(flawed, release()).after

    assert all("attempt 1" in words for words in describe_flaws(waiting))
    assert changed(waiting, claim("op-2")).after.flaws is None


def test_events_in_order_leave_a_job_as_flawless_or_flawed_as_it_was() -> None:
    job = job_in(State.RUNNING)
    flawed = changed(job, publish(1, 3)).after

    assert changed(job, publish(1, 2)).after.flaws is None
    assert flawed.flaws == Flaws(missed=1)
    assert changed(flawed, publish(4)).after.flaws == Flaws(missed=1)
    assert changed(flawed, publish(6)).after.flaws == Flaws(missed=3)


def test_an_exit_code_is_taken_from_the_end_of_a_process_alone() -> None:
    job = job_in(State.RUNNING)
    other = Publish(token=1, actor=WORKER, events=(said(1, attributes={"exit_code": 3}),))

    assert changed(job, other).after.flaws is None
    failed = changed(job, ended(3)).after
    assert failed.flaws == Flaws(exit_code=3)
    assert changed(failed, publish(2)).after.flaws == Flaws(exit_code=3)
    assert changed(failed, ended(0, sequence=2)).after.flaws is None
