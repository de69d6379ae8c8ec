"""The last attempt: which failure ends the job, and what becomes of its compensation."""

from itertools import product

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from holdfast.core.catalogue import ReasonCode
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import Outcome, Stopped, Success, is_last_failure
from holdfast.core.projection import differences, fold
from holdfast.core.retry import OnExhausted, Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from tests.core.sample_jobs import (
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
)

CRASH = Failure(message="killed by signal 9", exit_code=137, crash=True)


def owned(*, cancelled: bool = False, **retry: object) -> Job:
    job = after(enqueue(Spec(retry=Retry(**retry))), claim())  # type: ignore[arg-type]
    return changed(job, cancel(reason="enough")).after if cancelled else job


@pytest.mark.parametrize(
    ("failures", "crashes", "failure", "cancelled"),
    list(product(range(3), range(3), [TRANSIENT, CRASH, PERMANENT], [False, True])),
)
def test_the_last_failure_is_the_one_that_opens_no_other_attempt(
    failures: int, crashes: int, failure: Failure, cancelled: bool
) -> None:
    job = owned(max_failures=2, max_crashes=3, cancelled=cancelled)
    job = replace(job, failures=failures, crashes=crashes)

    ended = changed(job, complete(failure)).after.ended

    assert is_last_failure(job, failure) is ended


@pytest.mark.parametrize(
    ("job", "failure", "last"),
    [
        (owned(max_failures=2), TRANSIENT, False),
        (owned(max_failures=1), TRANSIENT, True),
        (owned(max_failures=1, max_crashes=2), CRASH, False),
        (owned(max_crashes=1), CRASH, True),
        (owned(max_failures=9), PERMANENT, True),
        (owned(max_failures=9, cancelled=True), TRANSIENT, True),
    ],
)
def test_a_budget_a_verdict_or_a_cancel_makes_a_failure_the_last(
    job: Job, failure: Failure, last: bool
) -> None:
    assert is_last_failure(job, failure) is last


@pytest.mark.parametrize("outcome", [TRANSIENT, Stopped()])
def test_a_compensation_before_a_cancel_takes_effect_is_recorded(outcome: Outcome) -> None:
    job = changed(job_in(State.RUNNING), cancel()).after

    change = changed(job, complete(outcome, compensated=True))

    types = [event.event_type for event in change.events]
    assert types == ["job_compensated", "job_cancelled"]
    assert change.after.state is State.CANCELLED


@pytest.mark.parametrize(
    ("outcome", "failures"), [(TRANSIENT, 1), (Stopped(reason="told to"), 0), (Stopped(), 0)]
)
def test_a_compensation_that_failed_parks_a_cancelled_job_too(outcome: Outcome, failures: int) -> None:
    begun = after(enqueue(), claim())
    asked = changed(begun, cancel())
    change = changed(asked.after, complete(outcome, compensated=False))

    ended = change.after
    words = {TRANSIENT: TRANSIENT.message, Stopped(): f"cancelled by {USER}"}.get(outcome, "told to")
    assert ended.state is State.DEAD_LETTERED
    assert ended.dead_letter is not None
    assert ended.dead_letter.reason_code is ReasonCode.COMPENSATION_FAILED
    assert ended.reason == f"compensation_failed: {words}"
    assert (ended.failures, ended.crashes) == (failures, 0)
    assert ended.error is not None
    assert change.events[-1].attributes["error"] == to_builtins(ended.error)
    history = [
        *changed(None, enqueue()).events,
        *changed(after(enqueue()), claim()).events,
        *asked.events,
        *change.events,
    ]
    assert differences(ended, fold(history, "job-1")) == []


def test_a_stop_without_a_failure_is_written_up_as_one() -> None:
    job = changed(job_in(State.RUNNING), cancel(reason="enough")).after

    ended = changed(job, complete(Stopped(), compensated=False)).after

    assert ended.error == Failure(message="enough", code="Cancelled", retryable=False)


@pytest.mark.parametrize("policy", OnExhausted)
def test_a_compensation_is_passed_over_where_another_attempt_follows(policy: OnExhausted) -> None:
    job = owned(max_failures=2, on_exhausted=policy)

    for compensated in (True, False):
        change = changed(job, complete(TRANSIENT, compensated=compensated))
        assert change.after.state is State.QUEUED
        assert [e.event_type for e in change.events] == ["job_started", "job_requeued"]


def test_a_success_needs_no_compensation() -> None:
    change = changed(job_in(State.RUNNING), complete(Success(), compensated=True))

    assert [event.event_type for event in change.events] == ["job_succeeded"]
