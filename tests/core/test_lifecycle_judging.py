"""The verdict on promised outputs, and an operator's word in its place."""

import pytest
from lives import LATER, NOW, USER, VALIDATOR, changed, job_in, judge, refused

from holdfast.core.errors import Conflict, Denied, Invalid
from holdfast.core.state import State


@pytest.mark.parametrize(
    ("verified", "missing", "end"),
    [(8, 0, State.SUCCEEDED), (5, 3, State.PARTIAL_SUCCESS), (0, 8, State.FAILED)],
)
def test_the_verdict_follows_from_what_is_there(verified: int, missing: int, end: State) -> None:
    change = changed(job_in(State.VALIDATING), judge(verified, missing), LATER)

    assert (change.after.state, change.after.missing_outputs) == (end, missing)
    assert change.after.ended_at == LATER
    assert change.events[0].attributes["verified"] == verified


def test_no_output_at_all_is_a_failure_with_its_code() -> None:
    job = changed(job_in(State.VALIDATING), judge(0, 8)).after

    assert job.error is not None
    assert (job.error.code, job.error.retryable) == ("NO_OUTPUTS", False)
    assert job.reason == "No promised output was found."


@pytest.mark.parametrize(("verified", "missing"), [(8, 0), (5, 3)])
def test_outputs_that_are_there_are_no_error(verified: int, missing: int) -> None:
    change = changed(job_in(State.VALIDATING), judge(verified, missing))

    assert change.after.error is None
    assert change.events[0].attributes == {"verified": verified, "missing": missing}


def test_a_partial_success_is_upgraded_when_everything_is_found() -> None:
    job = changed(job_in(State.PARTIAL_SUCCESS), judge(8, 0), LATER).after

    assert (job.state, job.missing_outputs, job.ended_at) == (State.SUCCEEDED, 0, LATER)


@pytest.mark.parametrize("verdict", [judge(5, 3), judge(0, 8)])
def test_a_partial_success_never_gets_worse(verdict: object) -> None:
    job = job_in(State.PARTIAL_SUCCESS)

    assert changed(job, verdict).after is job  # type: ignore[arg-type]


@pytest.mark.parametrize("state", [s for s in State if s not in ("validating", "partial_success")])
def test_nothing_else_is_judged(state: State) -> None:
    assert isinstance(refused(job_in(state), judge(8, 0)).error, Conflict)


def test_an_operator_may_decide_with_a_reason() -> None:
    command = judge(0, 0, actor=USER, override=State.SUCCEEDED, reason="checked by hand")

    job = changed(job_in(State.VALIDATING), command).after

    assert (job.state, job.reason) == (State.SUCCEEDED, "checked by hand")


def test_an_override_without_a_reason_is_invalid() -> None:
    command = judge(0, 0, actor=USER, override=State.FAILED)

    assert isinstance(refused(job_in(State.VALIDATING), command).error, Invalid)


def test_only_the_validator_upgrades_a_partial_success() -> None:
    command = judge(0, 0, actor=USER, override=State.SUCCEEDED, reason="checked by hand")

    assert isinstance(refused(job_in(State.PARTIAL_SUCCESS), command).error, Denied)


@pytest.mark.parametrize("target", [State.QUEUED, State.CANCELLED, State.RUNNING])
def test_an_override_cannot_go_round_the_table(target: State) -> None:
    command = judge(0, 0, actor=VALIDATOR, override=target, reason="because")

    assert isinstance(refused(job_in(State.VALIDATING), command, NOW).error, Conflict)
