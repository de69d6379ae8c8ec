"""Timeouts that the registry keeps, for owners that do not keep them themselves."""

from datetime import timedelta

import pytest

from holdfast.core.catalogue import ReasonCode
from holdfast.core.errors import Conflict, Fenced
from holdfast.core.explanation import explain
from holdfast.core.job import Job, timeout_failure
from holdfast.core.lifecycle import Expire, Success
from holdfast.core.projection import differences, fold
from holdfast.core.retry import OnExhausted, Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from tests.core.sample_jobs import (
    NOW,
    after,
    cancel,
    changed,
    claim,
    complete,
    enqueue,
    heartbeat,
    lived,
    publish,
    refused,
)

SECOND = timedelta(seconds=1)
LIMIT = 5 * SECOND
WORDS = "It ran longer than its timeout of 5 s."


def started(*, timed: bool = True, **spec: object) -> Job:
    """A job that is said to run since NOW, under a lease of a minute."""
    asked = Spec(timeout=LIMIT, lease=60 * SECOND, **spec)  # type: ignore[arg-type]
    return after(enqueue(asked), claim(timed=timed), publish(1))


def test_an_attempt_that_has_had_its_time_fails_and_is_not_a_crash() -> None:
    job = started(retry=Retry(max_failures=1, on_exhausted=OnExhausted.FAIL))
    assert job.due_at == job.timeout_at == NOW + LIMIT

    change = changed(job, Expire(), NOW + LIMIT)

    ended = change.after
    assert (ended.state, ended.failures, ended.crashes) == (State.FAILED, 1, 0)
    assert ended.error is not None
    assert (ended.error.code, ended.error.reason_code) == ("Timeout", ReasonCode.TIMEOUT)
    assert (ended.error.message, ended.error.crash) == (WORDS, False)
    assert change.events[0].actor == "system:expire"
    assert changed(job, Expire(), NOW + LIMIT - SECOND).after is job


def test_with_failures_left_it_is_tried_again_after_a_wait() -> None:
    retry = Retry(max_failures=2, backoff=4 * SECOND)

    change = changed(started(retry=retry), Expire(), NOW + LIMIT)

    again = change.after
    assert (again.state, again.attempt, again.failures) == (State.QUEUED, 2, 1)
    assert NOW + LIMIT <= again.ready_at <= NOW + LIMIT + 4 * SECOND
    assert change.events[0].attributes["cause"] == "retryable_error"


def test_the_timeout_counts_from_the_first_sign_of_life_not_from_the_claim() -> None:
    claimed = after(enqueue(Spec(timeout=LIMIT, lease=60 * SECOND)), claim(timed=True))
    assert claimed.timeout_at is None
    assert claimed.due_at == NOW + 60 * SECOND

    begun = changed(claimed, publish(1), NOW + 9 * SECOND).after

    assert begun.due_at == NOW + 9 * SECOND + LIMIT


@pytest.mark.parametrize("told", [0, 3])
def test_no_renewal_outlives_the_timeout(told: int) -> None:
    job = after(enqueue(Spec(timeout=LIMIT, lease=60 * SECOND)), claim(timed=True))

    job = changed(job, heartbeat(), NOW).after
    job = changed(job, heartbeat(lease=300 * SECOND), NOW + told * SECOND).after

    assert job.lease is not None
    assert job.lease.expires_at == NOW + LIMIT
    assert job.lease.granted_for == LIMIT - told * SECOND


def test_a_sign_of_life_after_the_timeout_is_refused_and_names_it() -> None:
    error = refused(started(), heartbeat(), NOW + LIMIT).error

    assert isinstance(error, Fenced)
    assert WORDS in error.message


def test_late_calls_of_its_owner_name_the_timeout() -> None:
    ended = changed(started(), Expire(), NOW + LIMIT).after

    for late in (heartbeat(), publish(2), complete(Success())):
        error = refused(ended, late, NOW + LIMIT).error
        assert isinstance(error, Fenced)
        assert WORDS[:-1] in error.message


def test_an_owner_that_keeps_timeouts_itself_is_left_alone() -> None:
    job = started(timed=False)

    assert (job.timeout_at, job.due_at) == (None, NOW + 60 * SECOND)
    assert changed(job, Expire(), NOW + 2 * LIMIT).after is job
    assert changed(job, heartbeat(), NOW + 2 * LIMIT).after.lease is not None


def test_a_job_without_a_timeout_is_held_for_as_long_as_it_is_renewed() -> None:
    job = after(enqueue(), claim(timed=True), publish(1))

    assert job.timeout_at is None
    assert changed(job, heartbeat(), NOW + 50 * SECOND).after.due_at == NOW + 110 * SECOND


def test_a_lease_that_ended_before_the_timeout_was_lost() -> None:
    job = after(enqueue(Spec(timeout=LIMIT, lease=2 * SECOND)), claim(timed=True), publish(1))

    lost = changed(job, Expire(), NOW + 2 * LIMIT).after

    assert (lost.state, lost.failures, lost.crashes) == (State.QUEUED, 0, 1)


def test_missed_heartbeats_are_suspected_before_the_timeout_and_not_after_it() -> None:
    asked = Spec(timeout=LIMIT)
    job = after(enqueue(asked), claim(timed=True, heartbeat_interval=2 * SECOND), publish(1))

    suspected = changed(job, Expire(), NOW + 4 * SECOND)
    over = changed(suspected.after, Expire(), NOW + LIMIT)

    assert suspected.after.lease is not None
    assert suspected.after.lease.suspected
    assert suspected.after.due_at == NOW + LIMIT
    assert over.after.error is not None
    assert over.after.error.code == "Timeout"


def test_a_job_that_was_asked_to_stop_ends_cancelled_when_its_time_is_up() -> None:
    job = changed(started(), cancel(), NOW).after

    assert changed(job, Expire(), NOW + LIMIT).after.state is State.CANCELLED


def test_nobody_takes_over_before_the_timeout_is_written_down() -> None:
    """Its back-off and its budget come first, also when the lease is over as well."""
    job = started(retry=Retry(max_failures=1))

    for now in (NOW + LIMIT, NOW + 90 * SECOND):
        error = refused(job, claim("op-2"), now).error
        assert isinstance(error, Conflict)
        assert error.message == "Job owned by w."


def test_a_late_success_counts_while_nobody_has_looked() -> None:
    assert changed(started(), complete(Success()), NOW + LIMIT).after.state is State.SUCCEEDED


def test_the_log_says_what_the_record_says() -> None:
    job, events = lived(enqueue(Spec(timeout=LIMIT)), claim(timed=True), publish(1))

    over = changed(job, Expire(), NOW + LIMIT)

    assert differences(over.after, fold([*events, *over.events], job.job_id)) == []


def test_why_tells_of_the_timeout_only_when_it_comes_before_the_end_of_the_lease() -> None:
    asked = Spec(timeout=90 * SECOND, lease=60 * SECOND)
    job = after(enqueue(asked), claim(timed=True), publish(1))

    assert "its timeout ends the attempt in 5.0 s" in explain(started(), NOW)
    assert "unless it renews, the lease ends in 60 s" in explain(job, NOW)


def test_the_failure_of_an_overrun_keeps_the_exit_code() -> None:
    assert timeout_failure(LIMIT, exit_code=137).exit_code == 137
    assert timeout_failure(LIMIT).exit_code is None
