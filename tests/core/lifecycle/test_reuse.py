"""A job whose outputs were all there before it began: made and ended in one commit, by a validator."""

import pytest
from msgspec.structs import replace

from holdfast.core.errors import Conflict, Denied, Invalid
from holdfast.core.lifecycle import Change, Enqueue, decide
from holdfast.core.outputs import ValidationResult
from holdfast.core.spec import Spec
from holdfast.core.state import State
from tests.core.sample_jobs import (
    LATER,
    NOW,
    PROMISING,
    USER,
    VALIDATOR,
    changed,
    claim,
    enqueue,
    job_in,
    refused,
)

ALL = ValidationResult(verified=8, reused=8, report="reports/1")
TYPES = ["job_queued", "job_claimed", "job_started", "job_validating", "job_succeeded"]


def made(spec: Spec = PROMISING, found: ValidationResult = ALL, **more: object) -> Enqueue:
    return replace(enqueue(spec, actor=VALIDATOR), found=found, **more)


def test_it_takes_five_transitions_at_once_under_its_first_token() -> None:
    change = changed(None, made(), LATER)

    assert change.before is None
    assert [event.event_type for event in change.events] == TYPES
    assert [event.offset for event in change.events] == [1, 2, 3, 4, 5]
    assert [event.transition_no for event in change.events] == [1, 2, 3, 4, 5]
    assert [event.fencing_token for event in change.events] == [None, 1, 1, 1, 1]
    assert {event.op_id for event in change.events} == {"op-enqueue"}
    assert {event.actor for event in change.events} == {VALIDATOR}
    assert {event.occurred_at for event in change.events} == {LATER}
    assert change.events[3].attributes == {"result": {"cached": True}}
    assert change.events[4].attributes == {"found": {"verified": 8, "reused": 8, "report": "reports/1"}}


def test_it_has_succeeded_at_birth_and_never_had_an_owner() -> None:
    job = changed(None, made(), LATER).after

    assert (job.state, job.attempt, job.version, job.transition_no) == ("succeeded", 1, 5, 5)
    assert (job.fencing_token, job.lease, job.claim_op_id, job.check) == (1, None, None, None)
    assert (job.found, job.result, job.missing_outputs) == (ALL, {"cached": True}, 0)
    assert job.created_at == job.started_at == job.ended_at == job.updated_at == LATER


def test_its_token_rises_from_those_of_a_forgotten_job() -> None:
    change = decide(made(), None, NOW, None, 41)

    assert isinstance(change, Change)
    assert change.after.fencing_token == 42


def test_a_repeat_answers_the_job_whether_it_was_found_or_run() -> None:
    cached = changed(None, made()).after
    ran = job_in(State.VALIDATING)

    for job in (cached, ran):
        for command in (made(), enqueue(PROMISING)):
            assert changed(job, command, LATER).after is job


def test_other_words_under_its_id_are_refused() -> None:
    job = changed(None, made()).after

    assert isinstance(refused(job, made(Spec(promised_outputs=8, kind="other"))).error, Conflict)


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (PROMISING, ValidationResult(verified=7, missing=1)),
        (PROMISING, ValidationResult(missing=8)),
        (PROMISING, ValidationResult(verified=7)),
        (PROMISING, ValidationResult(verified=9)),
        (PROMISING, ValidationResult(verified=9, missing=-1)),
        (PROMISING, ValidationResult(verified=8, reused=9)),
        (Spec(), ValidationResult()),
        (Spec(), ValidationResult(verified=1)),
    ],
)
def test_a_job_of_which_anything_is_left_to_do_is_not_made(spec: Spec, found: ValidationResult) -> None:
    refusal = refused(None, made(spec, found))

    assert type(refusal.error) is Invalid
    assert refusal.job is None


@pytest.mark.parametrize("actor", [USER, "system:x", "worker:w", "sync:k8s"])
def test_only_a_validator_says_that_everything_was_there(actor: str) -> None:
    assert type(refused(None, made(actor=actor)).error) is Denied


def test_a_job_for_an_executor_is_not_made_so() -> None:
    assert type(refused(None, made(register=True)).error) is Denied


def test_nobody_claims_it() -> None:
    job = changed(None, made()).after

    assert isinstance(refused(job, claim()).error, Conflict)
