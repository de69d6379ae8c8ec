"""The verdict on promised outputs."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.core.errors import Conflict, Denied, Invalid
from holdfast.core.lifecycle import Command, CompleteValidation, Restore, Success
from holdfast.core.outputs import Output, ValidationProgress, ValidationResult
from holdfast.core.state import State
from tests.core.sample_jobs import (
    LATER,
    NOW,
    PROMISING,
    SYNC,
    USER,
    VALIDATOR,
    WORKER,
    after,
    changed,
    claim,
    complete,
    enqueue,
    job_in,
    judge,
    look,
    refused,
)

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
PLACED = after(enqueue(PROMISING), claim(), complete(Success(where="box-1:/data")))
SOME = ValidationResult(verified=5, missing=3, reused=2, names=("a", "b"), report="reports/1")


def verdict(found: ValidationResult, **more: object) -> CompleteValidation:
    return CompleteValidation(op_id="op-verdict", actor=VALIDATOR, found=found, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verified", "missing", "end"),
    [
        (8, 0, State.SUCCEEDED),
        (5, 3, State.PARTIAL_SUCCESS),
        (1, 7, State.PARTIAL_SUCCESS),
        (7, 1, State.PARTIAL_SUCCESS),
        (0, 8, State.FAILED),
    ],
)
def test_the_verdict_follows_from_what_is_there(verified: int, missing: int, end: State) -> None:
    change = changed(job_in(State.VALIDATING), judge(verified, missing), LATER)

    assert change.after.state is end
    assert change.after.found == ValidationResult(verified=verified, missing=missing)
    assert change.after.missing_outputs == missing
    assert change.after.ended_at == LATER


def test_nothing_is_known_of_the_outputs_before_the_verdict() -> None:
    job = job_in(State.VALIDATING)

    assert (job.found, job.missing_outputs) == (None, None)


def test_no_output_at_all_is_a_failure_with_its_code() -> None:
    job = changed(job_in(State.VALIDATING), judge(0, 8)).after

    assert job.error is not None
    assert (job.error.code, job.error.retryable) == ("NO_OUTPUTS", False)
    assert job.reason == "No promised output was found."


@pytest.mark.parametrize(("verified", "missing"), [(8, 0), (5, 3)])
def test_outputs_that_are_there_are_no_error(verified: int, missing: int) -> None:
    change = changed(job_in(State.VALIDATING), judge(verified, missing))

    assert (change.after.error, change.after.reason) == (None, None)
    assert set(change.events[0].attributes) == {"found"}


def test_the_verdict_carries_its_evidence_as_a_log_keeps_it() -> None:
    evidence = (Output(name="a", missing="it is not there"), Output(name="b", size=3, reused=True))

    change = changed(PLACED, verdict(SOME, evidence=evidence))

    assert change.after.found == SOME
    assert change.events[0].attributes == {
        "found": {
            "verified": 5, "missing": 3, "reused": 2, "names": ["a", "b"], "report": "reports/1",
        },
        "evidence": [
            {"name": "a", "missing": "it is not there"},
            {"name": "b", "size": 3, "reused": True},
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    "found",
    [
        ValidationResult(verified=8, missing=1),
        ValidationResult(verified=7),
        ValidationResult(missing=7),
        ValidationResult(),
        ValidationResult(verified=9, missing=-1),
        ValidationResult(verified=-1, missing=9),
        ValidationResult(verified=5, missing=3, reused=6),
        ValidationResult(verified=5, missing=3, reused=-1),
    ],
)
@pytest.mark.parametrize("state", [State.VALIDATING, State.PARTIAL_SUCCESS])
def test_a_verdict_that_does_not_add_up_is_invalid(state: State, found: ValidationResult) -> None:
    assert type(refused(job_in(state), verdict(found)).error) is Invalid


@pytest.mark.parametrize(
    "found", [ValidationResult(verified=8, reused=8), ValidationResult(missing=7, verified=1)]
)
def test_all_that_is_there_may_have_been_there_before(found: ValidationResult) -> None:
    assert changed(PLACED, verdict(found)).after.found == found


@pytest.mark.parametrize("state", [s for s in State if s not in ("validating", "partial_success")])
def test_nothing_else_is_judged(state: State) -> None:
    error = refused(job_in(state), judge(8, 0)).error

    assert isinstance(error, Conflict)
    assert str(error) == f"Job is {state}: there are no outputs to validate."


def test_a_verdict_on_what_has_been_judged_since_is_refused() -> None:
    partial = changed(PLACED, judge(5, 3, version=PLACED.version)).after

    error = refused(partial, judge(8, 0, version=PLACED.version)).error

    assert isinstance(error, Conflict)
    assert str(error) == "Another validation was completed since: the job is partial_success now."
    assert changed(partial, judge(8, 0, version=partial.version)).after.state is State.SUCCEEDED


def test_a_look_is_no_verdict_and_leaves_the_version_of_the_job() -> None:
    looked = changed(PLACED, look()).after

    assert changed(looked, judge(8, 0, version=PLACED.version)).after.state is State.SUCCEEDED


@pytest.mark.parametrize(
    ("verified", "check"),
    [
        (8, None),
        (0, ValidationProgress(where="box-1:/data")),
        (5, ValidationProgress(where="box-1:/data", next_at=LATER + 5 * MINUTE)),
    ],
)
def test_only_a_partial_success_is_looked_at_again(verified: int, check: ValidationProgress | None) -> None:
    looked = changed(PLACED, look(done=3, total=8)).after

    assert changed(looked, judge(verified, 8 - verified), LATER).after.check == check


def test_a_partial_success_without_any_sign_of_life_is_looked_at_again_too() -> None:
    job = replace(PLACED, check=None)

    assert changed(job, judge(5, 3)).after.check == ValidationProgress(next_at=NOW + 5 * MINUTE)


def test_a_partial_success_is_upgraded_when_everything_is_found() -> None:
    job = changed(job_in(State.PARTIAL_SUCCESS), judge(8, 0), LATER).after

    assert (job.state, job.missing_outputs, job.ended_at) == (State.SUCCEEDED, 0, LATER)
    assert (job.check, job.transition_no) == (None, 6)


@pytest.mark.parametrize(
    "found", [ValidationResult(verified=6, missing=2), ValidationResult(missing=8), SOME]
)
def test_other_findings_of_a_partial_success_are_noted_and_end_nothing_anew(
    found: ValidationResult,
) -> None:
    job = replace(job_in(State.PARTIAL_SUCCESS), reason="as it was")

    change = changed(job, verdict(found, version=job.version), LATER)

    [event] = change.events
    assert (event.event_type, event.event_class) == ("job_outputs_verified", "control")
    assert (event.offset, event.transition_no) == (job.version + 1, None)
    assert (event.from_state, event.to_state, event.actor) == (None, None, VALIDATOR)
    assert (event.op_id, event.reason) == ("op-verdict", None)
    assert change.after == replace(
        job,
        found=found,
        version=job.version + 1,
        updated_at=LATER,
        check=ValidationProgress(next_at=LATER + 5 * MINUTE),
    )


def test_what_was_noted_of_a_partial_success_has_its_evidence() -> None:
    evidence = (Output(name="a", sha256="0" * 64),)

    [event] = changed(job_in(State.PARTIAL_SUCCESS), verdict(SOME, evidence=evidence)).events

    assert event.attributes["evidence"] == [{"name": "a", "sha256": "0" * 64}]
    assert event.attributes["found"] == {
        "verified": 5, "missing": 3, "reused": 2, "names": ["a", "b"], "report": "reports/1",
    }  # fmt: skip


def test_the_same_findings_of_a_partial_success_only_say_when_to_look_again() -> None:
    job = changed(PLACED, verdict(SOME)).after

    change = changed(changed(job, look()).after, verdict(SOME), LATER)

    assert change.events == change.facts == ()
    assert change.after == replace(
        job, check=ValidationProgress(where="box-1:/data", next_at=LATER + 5 * MINUTE)
    )


@pytest.mark.parametrize(
    ("age", "wait"),
    [
        (timedelta(), 5 * MINUTE),
        (5 * MINUTE, 5 * MINUTE),
        (6 * MINUTE, 6 * MINUTE),
        (DAY, DAY),
        (9 * DAY, DAY),
    ],
)
def test_the_older_a_partial_success_the_rarer_it_is_looked_at(age: timedelta, wait: timedelta) -> None:
    job = job_in(State.PARTIAL_SUCCESS)

    same, other = judge(5, 3), judge(6, 2)

    for command in (same, other):
        check = changed(job, command, NOW + age).after.check
        assert check == ValidationProgress(next_at=NOW + age + wait)


def test_a_partial_success_of_no_known_age_counts_as_new() -> None:
    job = replace(job_in(State.PARTIAL_SUCCESS), ended_at=None)

    assert changed(job, judge(5, 3), LATER).after.check == ValidationProgress(next_at=LATER + 5 * MINUTE)


@pytest.mark.parametrize("command", [judge(5, 3), judge(6, 2), judge(0, 8)])
@pytest.mark.parametrize("actor", [USER, WORKER, SYNC, "system:x"])
def test_only_the_validator_says_anything_of_a_partial_success(
    command: CompleteValidation, actor: str
) -> None:
    error = refused(job_in(State.PARTIAL_SUCCESS), replace(command, actor=actor)).error

    assert type(error) is Denied


def test_of_outputs_that_are_still_looked_for_no_advice_calls_them_partial() -> None:
    error = refused(job_in(State.VALIDATING), judge(8, 0, actor=WORKER)).error

    assert type(error) is Denied
    assert error.advice == Denied("").advice


@pytest.mark.parametrize("verdicts", [(), (judge(5, 3),), (judge(8, 0),), (judge(0, 8),)])
def test_a_restore_leaves_the_token_under_which_the_outputs_were_written(
    verdicts: tuple[Command, ...],
) -> None:
    job = after(enqueue(PROMISING), claim(), complete(Success()), *verdicts)

    assert changed(job, Restore(op_id="op-restore"), LATER).after is job
