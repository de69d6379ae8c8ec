"""The validation of promised outputs: reports of its progress, and the verdict (T11 to T14).

The verdict does not change a job that ended without success: the result is recorded beside its state.
"""

from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from holdfast.core.catalogue import EventType
from holdfast.core.errors import Conflict, Denied, Invalid
from holdfast.core.event import Attributes
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle.commands import CompleteValidation, ReportValidation
from holdfast.core.lifecycle.draft import (
    Change,
    Draft,
    legal_transition,
    make_fact,
    unchanged,
)
from holdfast.core.limits import clip
from holdfast.core.outputs import (
    FIRST_RETRY_WAITS,
    RECHECK_WAIT_MIN,
    VALIDATION_TIMEOUT,
    VALIDATION_TRIES_MAX,
    ValidationProgress,
    ValidationResult,
    check_validation_result,
    is_being_validated,
    recheck_wait,
    retry_wait,
    to_json_value,
)
from holdfast.core.state import UNSUCCESSFUL, State


def report_validation(job: Job, command: ReportValidation, now: datetime) -> Change:
    """Record the progress of a validator, which keeps others away; after `trouble`, when to try again."""
    _check_validatable(job, command.version)
    check = job.check or ValidationProgress()
    if check.by not in (None, command.actor) and is_being_validated(check, now):
        raise Conflict(f"{check.by} is validating its outputs already.")
    if command.trouble is not None:
        return _unseen(job, check, command, now)
    progress = replace(
        check,
        by=command.actor,
        until=now + VALIDATION_TIMEOUT,
        done=command.done,
        total=command.total,
    )
    return Change(job, replace(job, check=progress))


def _unseen(job: Job, check: ValidationProgress, command: ReportValidation, now: datetime) -> Change:
    """Schedule the next try. An event records the first tries, and later ones with a new reason."""
    tries, reason = check.tries + 1, clip(command.trouble or "")
    unseen = ValidationProgress(
        where=check.where, tries=tries, reason=reason, next_at=_next_try(job, tries, now)
    )
    change = Change(job, replace(job, check=unseen))
    if reason == check.reason and tries > len(FIRST_RETRY_WAITS) + 1:
        return change
    event = make_fact(
        job,
        EventType.OUTPUTS_UNSEEN,
        now,
        tries,
        now.isoformat(),
        actor=command.actor,
        reason=reason,
        attributes={"tries": tries},
    )
    return replace(change, facts=(event,))


def _next_try(job: Job, tries: int, now: datetime) -> datetime | None:
    """When to try again; never, once an unsuccessful job was validated, or tried too often."""
    age = now - (job.ended_at or job.updated_at)
    if job.state is State.PARTIAL_SUCCESS:
        return now + recheck_wait(age)
    if job.state in UNSUCCESSFUL and (job.found is not None or tries >= VALIDATION_TRIES_MAX):
        return None
    return now + retry_wait(tries, age)


def complete_validation(job: Job, command: CompleteValidation, now: datetime) -> Change:
    """Decide the verdict: succeeded with all outputs, partial_success with some, failed with none. An
    override needs a reason. A job that ended without success keeps its state."""
    _check_validatable(job, command.version)
    found, override = command.found, command.override
    if override is not None and not command.reason:
        raise Invalid("An override needs a reason.")
    if override is None:
        check_validation_result(found, job.spec.promised_outputs)
    draft = Draft(job, now=now, op_id=command.op_id, actor=command.actor)
    if job.state in UNSUCCESSFUL:
        return _record_beside(draft, command)
    target = override or _verdict(found)
    if job.state is State.PARTIAL_SUCCESS and override is None and target is not State.SUCCEEDED:
        return _still_partial(draft, command)
    if job.state is override:
        return unchanged(job)
    if job.state is State.PARTIAL_SUCCESS:
        _check_upgrade(job, target, command.actor)
    attributes: Attributes = {"override": True} if override else _evidence(command)
    failure = _failure(command) if target is State.FAILED else None
    if failure is not None:
        attributes["error"] = msgspec.to_builtins(failure)
    partial = target is State.PARTIAL_SUCCESS
    draft.move(
        target,
        reason=command.reason or (failure.message if failure else None),
        attributes=attributes,
        found=job.found if override else found,
        error=failure,
        ended_at=now,
        check=_next_progress(job, now, RECHECK_WAIT_MIN) if partial else _last_progress(job, target),
    )
    return draft.change()


def _check_validatable(job: Job, version: int | None) -> None:
    ended = job.state in UNSUCCESSFUL and job.spec.promised_outputs > 0
    if not ended and job.state not in (State.VALIDATING, State.PARTIAL_SUCCESS):
        raise Conflict(f"Job is {job.state}: there are no outputs to validate.")
    if version not in (None, job.version):
        raise Conflict(f"Another validation was completed since: the job is {job.state} now.")


def _check_upgrade(job: Job, target: State, actor: str) -> None:
    """Raise `Denied` unless the table allows it, with advice: no override can complete a partial
    success."""
    try:
        legal_transition(job.state, target, actor)
    except Denied as error:
        raise Denied(
            error.message,
            advice="An override cannot complete a partial success, only its outputs can. Validate again:"
            f" holdfast validate {job.job_id} --force. Make what is missing: holdfast resume {job.job_id}",
        ) from None


def _verdict(found: ValidationResult) -> State:
    if found.missing == 0:
        return State.SUCCEEDED
    return State.PARTIAL_SUCCESS if found.verified else State.FAILED


def _still_partial(draft: Draft, command: CompleteValidation) -> Change:
    """Keep a partial success as it is; the missing outputs may have changed."""
    job, now = draft.job, draft.now
    legal_transition(job.state, State.SUCCEEDED, command.actor)  # the right to find all outputs
    check = _next_progress(job, now, recheck_wait(now - (job.ended_at or now)))
    if command.found == job.found:
        return Change(job, replace(job, check=check))
    return _note_found(draft, command, check)


def _record_beside(draft: Draft, command: CompleteValidation) -> Change:
    """Record which outputs of a job that ended without success exist; its state stays."""
    job = draft.job
    if command.override is not None:
        raise Conflict(f"Job is {job.state}: it has ended, and no override changes that.")
    legal_transition(State.PARTIAL_SUCCESS, State.SUCCEEDED, command.actor)  # the right to validate
    check = _last_progress(job, job.state)
    if command.found == job.found:
        return unchanged(job) if check == job.check else Change(job, replace(job, check=check))
    return _note_found(draft, command, check)


def _note_found(draft: Draft, command: CompleteValidation, check: ValidationProgress | None) -> Change:
    attributes = _evidence(command)
    draft.note(EventType.OUTPUTS_VERIFIED, attributes=attributes, found=command.found, check=check)
    return draft.change()


def _last_progress(job: Job, target: State) -> ValidationProgress | None:
    """The progress after the last validation: where the plain outputs of an unsuccessful job are."""
    where = job.check.where if job.check else None
    return ValidationProgress(where=where) if where is not None and target in UNSUCCESSFUL else None


def _next_progress(job: Job, now: datetime, wait: timedelta) -> ValidationProgress:
    return ValidationProgress(where=job.check.where if job.check else None, next_at=now + wait)


def _evidence(command: CompleteValidation) -> Attributes:
    attributes: Attributes = {"found": to_json_value(command.found)}
    if command.evidence:
        attributes["evidence"] = to_json_value(command.evidence)
    return attributes


def _failure(command: CompleteValidation) -> Failure:
    if command.override is not None:
        return Failure(message=clip(command.reason or ""), code="Overridden", retryable=False)
    return Failure(message="No promised output was found.", code="NO_OUTPUTS", retryable=False)
