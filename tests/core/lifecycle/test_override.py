"""An operator's word in the place of a verdict: it needs a reason, and cannot go round the table."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.core.errors import Conflict, Denied, Invalid
from holdfast.core.job import Failure
from holdfast.core.lifecycle import Success
from holdfast.core.outputs import ValidationProgress, ValidationResult
from holdfast.core.state import State
from tests.core.sample_jobs import (
    LATER,
    NOW,
    PROMISING,
    USER,
    VALIDATOR,
    after,
    changed,
    claim,
    complete,
    enqueue,
    job_in,
    judge,
    refused,
)

MINUTE = timedelta(minutes=1)
PLACED = after(enqueue(PROMISING), claim(), complete(Success(where="box-1:/data")))
SOME = ValidationResult(verified=5, missing=3, reused=2, names=("a", "b"), report="reports/1")


@pytest.mark.parametrize(("target", "error"), [(State.SUCCEEDED, None), (State.FAILED, "enough")])
def test_an_operator_may_decide_with_a_reason(target: State, error: str | None) -> None:
    command = judge(0, 0, actor=USER, override=target, reason="enough")

    change = changed(PLACED, command, LATER)

    job, [event] = change.after, change.events
    failure = Failure(message="enough", code="Overridden", retryable=False) if error else None
    assert (job.state, job.reason, job.ended_at) == (target, "enough", LATER)
    placed = ValidationProgress(where="box-1:/data") if error else None
    assert (job.error, job.found, job.check) == (failure, None, placed)
    assert event.attributes == {"override": True} | (
        {"error": {"message": "enough", "code": "Overridden", "retryable": False}} if error else {}
    )
    assert (event.actor, event.reason) == (USER, "enough")


def test_an_override_says_nothing_of_what_was_found_before() -> None:
    job = changed(PLACED, replace(judge(0, 0), found=SOME)).after
    command = judge(0, 0, override=State.SUCCEEDED, reason="the rest is not needed")

    change = changed(job, command)

    assert (change.after.state, change.after.found) == (State.SUCCEEDED, SOME)
    assert change.events[0].attributes == {"override": True}


def test_a_long_reason_of_an_override_is_shortened_in_the_error() -> None:
    command = judge(0, 0, actor=USER, override=State.FAILED, reason="x" * 5000)

    error = changed(PLACED, command).after.error

    assert error is not None
    assert len(error.message) <= 4096


@pytest.mark.parametrize("reason", [None, ""])
@pytest.mark.parametrize("target", [State.FAILED, State.SUCCEEDED])
@pytest.mark.parametrize("state", [State.VALIDATING, State.PARTIAL_SUCCESS])
def test_an_override_without_a_reason_is_invalid(state: State, target: State, reason: str | None) -> None:
    command = judge(8, 0, override=target, reason=reason)

    assert type(refused(job_in(state), command).error) is Invalid


def test_an_override_of_another_version_is_refused() -> None:
    command = judge(0, 0, actor=USER, override=State.FAILED, reason="enough", version=1)

    assert type(refused(PLACED, command).error) is Conflict


def test_only_the_validator_upgrades_a_partial_success() -> None:
    command = judge(0, 0, actor=USER, override=State.SUCCEEDED, reason="checked by hand")

    error = refused(job_in(State.PARTIAL_SUCCESS), command).error
    assert isinstance(error, Denied)
    assert "holdfast resume" in error.advice


@pytest.mark.parametrize("target", [State.QUEUED, State.CANCELLED, State.RUNNING])
@pytest.mark.parametrize("state", [State.VALIDATING, State.PARTIAL_SUCCESS])
def test_an_override_cannot_go_round_the_table(state: State, target: State) -> None:
    command = judge(0, 0, actor=VALIDATOR, override=target, reason="because")

    assert isinstance(refused(job_in(state), command, NOW).error, Conflict)


def test_no_override_makes_a_partial_success_a_failure() -> None:
    command = judge(0, 0, override=State.FAILED, reason="because")

    assert isinstance(refused(job_in(State.PARTIAL_SUCCESS), command).error, Conflict)


def test_an_override_with_what_the_job_is_already_changes_nothing() -> None:
    job = job_in(State.PARTIAL_SUCCESS)
    command = judge(0, 0, override=State.PARTIAL_SUCCESS, reason="because")

    assert changed(job, command, LATER).after is job


def test_an_override_may_call_a_stuck_job_partial_and_finds_nothing_itself() -> None:
    command = judge(0, 0, override=State.PARTIAL_SUCCESS, reason="the disk is gone")

    job = changed(PLACED, command, LATER).after

    assert (job.state, job.found, job.reason) == ("partial_success", None, "the disk is gone")
    assert job.check == ValidationProgress(where="box-1:/data", next_at=LATER + 5 * MINUTE)
