"""How attempts and jobs end: budgets, policies, compensation, cancel, expiry, restore."""

from datetime import timedelta

import pytest
from lives import (
    LATER,
    NOW,
    PERMANENT,
    TRANSIENT,
    USER,
    after,
    cancel,
    changed,
    claim,
    complete,
    enqueue,
    job_in,
    refused,
    release,
)
from msgspec.structs import replace

from holdfast.core.catalogue import ReasonCode, Stage
from holdfast.core.errors import Conflict, Fenced, Invalid
from holdfast.core.job import Failure, Job, Resource
from holdfast.core.lifecycle import Expire, Restore, Stopped, Success
from holdfast.core.limits import MESSAGE_CHARACTERS_MAX
from holdfast.core.projection import facts, fold
from holdfast.core.retry import OnExhausted, Retry
from holdfast.core.spec import Spec
from holdfast.core.state import ENDED, LEASED, State

SECOND = timedelta(seconds=1)
CRASH = Failure(message="killed by signal 9", exit_code=137, crash=True)
PARSE = Failure(
    message="not JSON", retryable=False, stage=Stage.INPUT, reason_code=ReasonCode.PARSE_ERROR
)
RESTORE = Restore(op_id="op-restore")


def running(**retry: object) -> Job:
    spec = Spec(retry=Retry(**retry))  # type: ignore[arg-type]
    return after(enqueue(spec), claim())


def test_success_keeps_the_result_and_forgets_the_error_before_it() -> None:
    job = replace(job_in(State.RUNNING), error=TRANSIENT)

    done = changed(job, complete(Success(result={"answer": (1, 2)}))).after

    assert (done.state, done.result, done.error) == (State.SUCCEEDED, {"answer": [1, 2]}, None)
    assert (done.ended_at, done.lease) == (NOW, None)


@pytest.mark.parametrize("result", [object(), "x" * 300_000, float])
def test_a_result_that_is_no_small_json_is_refused_and_the_lease_stays(result: object) -> None:
    refusal = refused(job_in(State.RUNNING), complete(Success(result=result)))

    assert isinstance(refusal.error, Invalid)
    assert refusal.facts == ()


def test_promised_outputs_are_validated_before_success() -> None:
    job = after(enqueue(Spec(promised_outputs=2)), claim(), complete(Success(result=1)))

    assert (job.state, job.result, job.ended_at, job.lease) == (State.VALIDATING, 1, None, None)


def test_a_retryable_failure_waits_and_costs_one_failure() -> None:
    change = changed(running(), complete(TRANSIENT))

    job = change.after
    assert (job.state, job.attempt, job.failures, job.crashes) == (State.QUEUED, 2, 1, 0)
    assert NOW <= job.ready_at <= NOW + timedelta(milliseconds=500)
    assert job.error == TRANSIENT
    assert change.events[-1].attributes["cause"] == "retryable_error"


def test_a_crash_costs_the_other_budget() -> None:
    job = changed(running(), complete(CRASH)).after

    assert (job.state, job.failures, job.crashes) == (State.QUEUED, 0, 1)


@pytest.mark.parametrize("outcome", [TRANSIENT, CRASH])
@pytest.mark.parametrize(
    ("policy", "end"),
    [
        (OnExhausted.DEAD_LETTER, State.DEAD_LETTERED),
        (OnExhausted.FAIL, State.FAILED),
        (OnExhausted.TIMEOUT, State.TIMEOUT),
    ],
)
def test_a_used_up_budget_ends_the_job_by_its_policy(
    outcome: Failure, policy: OnExhausted, end: State
) -> None:
    job = running(max_failures=1, max_crashes=1, on_exhausted=policy)

    ended = changed(job, complete(outcome)).after

    assert (ended.state, ended.error, ended.ended_at) == (end, outcome, NOW)
    assert (ended.dead_letter is not None) == (end is State.DEAD_LETTERED)


@pytest.mark.parametrize(
    ("failure", "policy", "end"),
    [
        (PERMANENT, OnExhausted.DEAD_LETTER, State.FAILED),
        (PARSE, OnExhausted.DEAD_LETTER, State.DEAD_LETTERED),
        (PARSE, OnExhausted.FAIL, State.FAILED),
        (PARSE, OnExhausted.TIMEOUT, State.FAILED),
    ],
)
def test_a_failure_for_good_is_never_tried_again(
    failure: Failure, policy: OnExhausted, end: State
) -> None:
    assert changed(running(on_exhausted=policy), complete(failure)).after.state is end


def test_a_dead_letter_says_what_somebody_needs_months_later() -> None:
    job = running(max_failures=1)

    letter = changed(job, complete(TRANSIENT)).after.dead_letter

    assert letter is not None
    assert letter.reason_code is ReasonCode.EXHAUSTED_RETRIES
    assert (letter.last_error, letter.attempts, letter.stage) == (TRANSIENT.message, 1, Stage.EXEC)
    assert (letter.correlation_id, letter.last_owner) == ("job-1", "w")
    assert letter.last_lease_expires_at == NOW + 60 * SECOND


def test_a_compensation_that_went_well_is_a_fact_of_the_version_chain() -> None:
    change = changed(running(max_failures=1), complete(TRANSIENT, compensated=True))

    types = [event.event_type for event in change.events]
    assert types == ["job_started", "job_compensated", "job_dead_lettered"]
    assert (change.after.version, change.after.transition_no) == (5, 4)


@pytest.mark.parametrize("policy", OnExhausted)
def test_a_compensation_that_failed_always_parks_the_job(policy: OnExhausted) -> None:
    job = running(max_failures=1, on_exhausted=policy)

    ended = changed(job, complete(TRANSIENT, compensated=False)).after

    assert ended.dead_letter is not None
    assert ended.dead_letter.reason_code is ReasonCode.COMPENSATION_FAILED


def test_a_long_message_is_shortened() -> None:
    job = changed(running(), complete(Failure(message="x" * 10_000))).after

    assert job.error is not None
    assert len(job.error.message) <= MESSAGE_CHARACTERS_MAX
    assert job.error.message.endswith("[shortened]")


@pytest.mark.parametrize("outcome", [TRANSIENT, PERMANENT, CRASH, Stopped()])
def test_whatever_an_asked_owner_reports_but_success_ends_cancelled(outcome: Failure) -> None:
    job = changed(job_in(State.RUNNING), cancel(reason="enough")).after

    ended = changed(job, complete(outcome)).after

    assert (ended.state, ended.reason, ended.lease) == (State.CANCELLED, "enough", None)


def test_success_wins_over_a_cancel_request() -> None:
    job = changed(job_in(State.RUNNING), cancel()).after

    assert changed(job, complete(Success())).after.state is State.SUCCEEDED


@pytest.mark.parametrize(
    ("asked", "said", "words"),
    [
        (None, "the pod is going", "the pod is going"),
        (None, None, "cancelled by worker:w"),
        ("enough", None, "enough"),
    ],
)
def test_a_stop_says_why(asked: str | None, said: str | None, words: str) -> None:
    job = job_in(State.RUNNING)
    if asked:
        job = changed(job, cancel(reason=asked)).after

    assert changed(job, complete(Stopped(reason=said))).after.reason == words


def test_a_release_costs_nothing_and_keeps_its_place() -> None:
    job = replace(job_in(State.RUNNING), failures=1, crashes=2)

    change = changed(job, release(reason="rolling update"), LATER)

    back = change.after
    assert (back.state, back.attempt, back.failures, back.crashes) == (State.QUEUED, 2, 1, 2)
    assert (back.ready_at, back.reason, back.lease) == (job.ready_at, "rolling update", None)
    assert change.events[0].attributes == {"cause": "released"}


def test_a_release_may_wait_and_may_say_that_it_was_never_delivered() -> None:
    waiting = changed(job_in(State.RUNNING), release(delay=5 * SECOND)).after
    lost = changed(job_in(State.ASSIGNED), release(undelivered=True))

    assert waiting.ready_at == NOW + 5 * SECOND
    assert lost.events[0].attributes == {"cause": "undelivered"}
    assert lost.after.reason == "undelivered"


@pytest.mark.parametrize("delay", [timedelta.max, timedelta(days=-1)])
def test_a_release_cannot_wait_for_ever_nor_go_back(delay: timedelta) -> None:
    assert isinstance(refused(job_in(State.RUNNING), release(delay=delay)).error, Invalid)


def test_a_release_after_a_cancel_request_ends_cancelled() -> None:
    job = changed(job_in(State.RUNNING), cancel()).after

    assert changed(job, release()).after.state is State.CANCELLED


@pytest.mark.parametrize("state", [*sorted(ENDED), State.VALIDATING])
def test_a_cancel_comes_too_late_once_the_work_is_done(state: State) -> None:
    refusal = refused(job_in(state), cancel(hard=True))

    assert isinstance(refusal.error, Conflict)
    assert refusal.error.version == job_in(state).version


def test_a_soft_cancel_asks_once_and_leaves_the_owner_its_lease() -> None:
    job = job_in(State.RUNNING)

    asked = changed(job, cancel(reason="enough"))
    again = changed(asked.after, cancel(reason="really"))

    assert [event.event_type for event in asked.events] == ["job_cancel_requested"]
    assert asked.after.cancel is not None
    assert (asked.after.cancel.reason, asked.after.cancel.actor) == ("enough", USER)
    assert (asked.after.lease, asked.after.version) == (job.lease, 4)
    assert again.after is asked.after


@pytest.mark.parametrize("state", sorted(LEASED))
def test_a_hard_cancel_ends_at_once_and_frees_the_lock(state: State) -> None:
    ended = changed(job_in(state), cancel(hard=True), resource=Resource("disk", 1, "job-1"))

    assert (ended.after.state, ended.after.lease) == (State.CANCELLED, None)
    assert ended.after.reason == "cancelled by user:ana"
    assert ended.resource == Resource("disk", 1, None)
    assert isinstance(refused(ended.after, complete(Success())).error, Fenced)


def test_an_ignored_cancel_takes_effect_when_the_lease_ends() -> None:
    job = changed(job_in(State.RUNNING), cancel(reason="enough")).after

    ended = changed(job, Expire(), LATER).after

    assert (ended.state, ended.reason, ended.crashes) == (State.CANCELLED, "enough", 1)


def test_a_lost_lease_opens_the_next_attempt_in_the_old_place() -> None:
    change = changed(job_in(State.RUNNING), Expire(), LATER)

    job = change.after
    assert (job.state, job.attempt, job.crashes, job.failures) == (State.QUEUED, 2, 1, 0)
    assert (job.ready_at, job.reason) == (NOW, "w lost the lease")
    assert change.events[0].attributes == {"cause": "lease_expired", "crashes": 1}
    assert change.events[0].op_id == "expire:3"


@pytest.mark.parametrize("state", list(State))
def test_looking_again_changes_nothing(state: State) -> None:
    job = changed(job_in(state), Expire(), LATER).after

    assert changed(job, Expire(), LATER).after is job


@pytest.mark.parametrize(("crashes", "times"), [(0, "once"), (2, "3 times")])
def test_the_last_lost_lease_parks_the_job_with_reason_timeout(crashes: int, times: str) -> None:
    job = replace(running(max_crashes=crashes + 1), crashes=crashes)

    ended = changed(job, Expire(), LATER).after

    assert ended.dead_letter is not None
    assert ended.dead_letter.reason_code is ReasonCode.TIMEOUT
    assert ended.crashes == crashes + 1
    assert f"lost {times}, last by w" in (ended.reason or "")


def test_a_deadline_ends_a_leased_job_even_with_budget_left() -> None:
    job = after(enqueue(Spec(ttl=30 * SECOND)), claim())

    ended = changed(job, Expire(), NOW + 30 * SECOND).after

    assert ended.dead_letter is not None
    assert ended.dead_letter.reason_code is ReasonCode.TIMEOUT
    assert ended.attempt == 1


def test_a_restore_shuts_out_every_owner_and_raises_the_token() -> None:
    change = changed(job_in(State.RUNNING), RESTORE, resource=Resource("disk", 1, "job-1"))

    job = change.after
    assert [event.event_type for event in change.events] == ["job_restored", "job_requeued"]
    assert (job.state, job.attempt, job.fencing_token) == (State.QUEUED, 2, 1 + 2**40)
    assert (job.failures, job.crashes) == (0, 0)
    assert change.resource == Resource("disk", 1, None)
    assert isinstance(refused(job, complete(Success(), 1)).error, Fenced)


def test_a_restore_keeps_a_cancel_request_and_leaves_ended_jobs_alone() -> None:
    asked = changed(job_in(State.RUNNING), cancel()).after
    ended = job_in(State.SUCCEEDED)
    made = changed(None, enqueue())

    waiting = changed(made.after, RESTORE)

    assert changed(asked, RESTORE).after.state is State.CANCELLED
    assert changed(ended, RESTORE).after is ended
    assert waiting.after.fencing_token == 2**40
    assert fold((*made.events, *waiting.events), "job-1").job == facts(waiting.after)
