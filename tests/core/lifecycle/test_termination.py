"""How attempts and jobs end by what their owner reports: budgets, policies, compensation, release."""

from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.core.catalogue import ReasonCode, Stage
from holdfast.core.errors import Invalid
from holdfast.core.job import Failure, Job, ResourceLock
from holdfast.core.lifecycle import Command, Expire, Success
from holdfast.core.limits import MESSAGE_CHARACTERS_MAX
from holdfast.core.retry import OnExhausted, Retry, backoff
from holdfast.core.spec import Spec
from holdfast.core.state import State
from tests.core.sample_jobs import (
    LATER,
    NOW,
    PERMANENT,
    TRANSIENT,
    after,
    changed,
    claim,
    complete,
    enqueue,
    job_in,
    refused,
    release,
)

SECOND = timedelta(seconds=1)
CRASH = Failure(message="killed by signal 9", exit_code=137, crash=True)
PARSE = Failure(message="not JSON", retryable=False, stage=Stage.INPUT, reason_code=ReasonCode.PARSE_ERROR)


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

    change = changed(job, complete(outcome))

    ended = change.after
    assert (ended.state, ended.error, ended.ended_at) == (end, outcome, NOW)
    assert change.events[-1].attributes["error"] == msgspec.to_builtins(outcome)
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
def test_a_failure_for_good_is_never_tried_again(failure: Failure, policy: OnExhausted, end: State) -> None:
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


def test_the_wait_grows_with_the_failures_of_the_same_kind() -> None:
    retry = Retry(max_failures=9, max_crashes=9)
    job = replace(after(enqueue(Spec(retry=retry)), claim()), failures=3, crashes=1)

    failed = changed(job, complete(TRANSIENT))
    crashed = changed(job, complete(CRASH))

    assert failed.after.ready_at == NOW + backoff(retry, 4, "job-1/1")
    assert crashed.after.ready_at == NOW + backoff(retry, 2, "job-1/1")
    assert failed.after.reason == TRANSIENT.message
    assert failed.events[-1].attributes == {
        "error": {"message": TRANSIENT.message, "code": "TransientError"},
        "failures": 4,
        "crashes": 1,
        "cause": "retryable_error",
        "ready_at": msgspec.to_builtins(failed.after.ready_at),
    }


@pytest.mark.parametrize("compensated", [None, True, False])
def test_the_end_of_a_failure_for_good_counts_and_compensates(compensated: bool | None) -> None:
    change = changed(running(), complete(PERMANENT, compensated=compensated))

    types = [event.event_type for event in change.events]
    assert ("job_compensated" in types) == (compensated is True)
    assert (change.after.dead_letter is not None) == (compensated is False)
    assert (change.after.failures, change.after.crashes) == (1, 0)


def test_a_used_up_budget_is_counted_and_told() -> None:
    job = running(max_failures=1, on_exhausted=OnExhausted.FAIL)
    known = replace(TRANSIENT, reason_code=ReasonCode.DEPENDENCY_UNAVAILABLE)

    plain = changed(job, complete(TRANSIENT)).after
    coded = changed(job, complete(known)).after

    assert (plain.reason, plain.failures) == (TRANSIENT.message, 1)
    assert coded.reason == f"dependency_unavailable: {TRANSIENT.message}"


def test_the_first_thing_heard_may_be_the_end() -> None:
    change = changed(job_in(State.ASSIGNED), complete(Success()), LATER)

    assert (change.after.started_at, change.after.ended_at) == (LATER, LATER)
    assert change.events[-1].attributes == {}


def test_one_promised_output_is_enough_to_be_checked() -> None:
    job = after(enqueue(Spec(promised_outputs=1)), claim(), complete(Success()))

    assert job.state is State.VALIDATING


def test_a_result_at_its_limit_is_kept_and_one_above_is_named() -> None:
    done = changed(running(), complete(Success(result="x" * (256 * 1024 - 2)))).after

    refusal = refused(running(), complete(Success(result="x" * (256 * 1024 - 1))))

    assert len(str(done.result)) == 256 * 1024 - 2
    assert refusal.error.message.startswith("result has 262,145 bytes")


def test_a_code_is_kept_short() -> None:
    def kept(code: str) -> str:
        error = changed(running(), complete(Failure(message="x", code=code))).after.error
        assert error is not None
        return error.code

    assert kept("c" * 128) == "c" * 128
    assert kept("c" * 129) == "c" * 113 + " … [shortened]"


@pytest.mark.parametrize(
    "command",
    [complete(Success()), complete(TRANSIENT), complete(PERMANENT), release(), Expire()],
)
def test_a_lock_is_let_go_however_an_attempt_ends(command: Command) -> None:
    job = changed(after(enqueue(Spec(lock="disk"))), claim(), resource=ResourceLock("disk")).after

    change = changed(job, command, LATER, ResourceLock("disk", 1, "job-1"))

    assert not change.after.leased
    assert change.resource == ResourceLock("disk", 1, None)


def test_a_long_reason_for_a_release_is_shortened() -> None:
    back = changed(job_in(State.RUNNING), release(reason="x" * 5000)).after

    assert len(back.reason or "") <= MESSAGE_CHARACTERS_MAX
