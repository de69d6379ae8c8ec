"""Follow-ups: a success makes the jobs it was asked for, tied to it; nothing else makes any."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.core.derived_ids import derived_id, follow_up_id
from holdfast.core.errors import Fenced, Invalid
from holdfast.core.job import Failure
from holdfast.core.lifecycle import Complete, Enqueue, Outcome, Stopped, Success
from holdfast.core.projection import differences, fold
from holdfast.core.spec import Spec
from holdfast.core.state import State
from tests.core.sample_jobs import (
    LATER,
    NOW,
    PERMANENT,
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
    refused,
)


def asked(name: str, **more: object) -> Enqueue:
    return Enqueue(op_id=name, job_id=name, spec=Spec(kind=name), actor=WORKER, **more)  # type: ignore[arg-type]


def following(outcome: Outcome, *follow_ups: Enqueue, token: int = 1) -> Complete:
    return replace(complete(outcome, token), follow_ups=follow_ups)


def test_a_success_makes_its_follow_ups_in_order_and_lists_them() -> None:
    job = replace(job_in(State.RUNNING), correlation_id="order-7", trace_id="trace-7")

    change = changed(job, following(Success(result=1), asked("a"), asked("b")), LATER)

    assert change.events[-1].attributes == {"result": 1, "follow_ups": ["a", "b"]}
    assert [made.after.job_id for made in change.made] == ["a", "b"]
    for made in change.made:
        [event] = made.events
        assert made.before is None
        assert (made.after.state, made.after.created_at) == (State.QUEUED, LATER)
        assert made.after.fencing_token == 0
        assert (made.after.correlation_id, made.after.trace_id) == ("order-7", "trace-7")
        assert (event.cause, event.occurred_at) == ("job-1/4", LATER)
        assert differences(made.after, fold([event], made.after.job_id)) == []


def test_a_follow_up_is_caused_by_the_success_not_by_the_start_beside_it() -> None:
    change = changed(job_in(State.ASSIGNED), following(Success(), asked("a")))

    [made] = change.made
    started, succeeded = change.events
    assert made.events[0].cause == succeeded.event_id != started.event_id


def test_a_follow_up_may_be_tied_to_something_else_or_be_handed_to_an_executor() -> None:
    own = asked("a", correlation_id="c", trace_id="t", register=True)

    [made] = changed(job_in(State.RUNNING), following(Success(), own)).made

    assert (made.after.correlation_id, made.after.trace_id) == ("c", "t")
    assert made.after.state is State.PENDING


def test_a_job_of_its_own_is_what_its_follow_ups_are_tied_to() -> None:
    [made] = changed(job_in(State.RUNNING), following(Success(), asked("a"))).made

    assert (made.after.correlation_id, made.after.trace_id) == ("job-1", None)


def test_a_job_whose_outputs_are_checked_makes_them_when_it_is_done() -> None:
    job = after(enqueue(Spec(promised_outputs=1)), claim(), heartbeat())

    change = changed(job, following(Success(), asked("a")))

    assert change.after.state is State.VALIDATING
    assert change.events[-1].attributes == {"follow_ups": ["a"]}
    assert len(change.made) == 1


@pytest.mark.parametrize("outcome", [TRANSIENT, PERMANENT, Stopped()])
def test_no_other_outcome_makes_any(outcome: Outcome) -> None:
    change = changed(job_in(State.RUNNING), following(outcome, asked("a")))

    assert change.made == ()
    assert "follow_ups" not in change.events[-1].attributes


def test_a_success_that_nobody_follows_is_as_it_was() -> None:
    change = changed(job_in(State.RUNNING), complete(Success()))

    assert (change.made, change.events[-1].attributes) == ((), {})


def test_a_stale_owner_and_a_bad_result_make_none() -> None:
    stale = refused(job_in(State.RUNNING), following(Success(), asked("a"), token=9))
    wrong = refused(job_in(State.RUNNING), following(Success(result={1, object()}), asked("a")))

    assert isinstance(stale.error, Fenced)
    assert isinstance(wrong.error, Invalid)


def test_a_success_after_a_soft_cancel_makes_them() -> None:
    job = changed(job_in(State.RUNNING), cancel()).after

    assert len(changed(job, following(Success(), asked("a"))).made) == 1


def test_a_follow_up_in_no_possible_time_refuses_the_completion() -> None:
    never = replace(asked("a"), spec=Spec(delay=timedelta.max))

    assert isinstance(refused(job_in(State.RUNNING), following(Success(), never), NOW).error, Invalid)


def test_the_id_of_a_follow_up_is_nobody_elses() -> None:
    ids = {
        follow_up_id("job-1", 1, 0),
        follow_up_id("job-1", 1, 1),
        follow_up_id("job-1", 2, 0),
        follow_up_id("job-2", 1, 0),
        derived_id("job-1", "follow-up"),
        derived_id("job-1", "replay", "1"),
    }

    assert len(ids) == 6
    assert follow_up_id("job-1", 1, 0) == "4ff03ed7-b0e8-8901-bab4-fb2d22f11410"


def test_a_failure_keeps_its_words_when_they_can_be_kept() -> None:
    job = changed(job_in(State.RUNNING), complete(Failure(message="a\0b\udcff"))).after

    assert job.error is not None
    assert job.error.message == "a?b?"
