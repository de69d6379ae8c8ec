"""Planted mistakes about promised outputs and their validation."""

from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from holdfast.core import outputs, projection
from holdfast.core.catalogue import EventType
from holdfast.core.event import Event
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import (
    Change,
    CompleteValidation,
    ReportValidation,
    creation,
    validation,
)
from holdfast.core.lifecycle.draft import Draft
from holdfast.core.outputs import ValidationResult
from holdfast.core.state import State
from holdfast.outputs import validator
from holdfast.outputs.resume_chain import ResumeChain, load_resume_chain
from holdfast.outputs.scan import OutputScan, ScanFailed, ScanResult
from holdfast.registry import job_links, resume
from holdfast.testing.simulation.planted_bug import Swaps, bug


@bug(trap=19, validators=2)
def stale_verdict_accepted() -> Swaps:
    """A verdict is accepted though another validation was completed since."""
    real = validation._check_validatable
    return ((validation, "_check_validatable", lambda job, version: real(job, None)),)


@bug(trap="C-72", validators=2)
def partial_counts_as_success() -> Swaps:
    """A job with only some of its outputs has succeeded."""
    real = validation._verdict

    def verdict(found: ValidationResult) -> State:
        return State.SUCCEEDED if found.verified else real(found)

    return ((validation, "_verdict", verdict),)


@bug(trap=49, validators=2)
def partial_success_becomes_failure() -> Swaps:
    """A partial success becomes a failure when more is missing than before."""
    real = validation._still_partial

    def still_partial(draft: Draft, command: CompleteValidation) -> Change:
        if draft.job.found is None or command.found.verified >= draft.job.found.verified:
            return real(draft, command)
        draft.state = State.VALIDATING
        draft.move(State.FAILED, ended_at=draft.now, found=command.found)
        return draft.change()

    return ((validation, "_still_partial", still_partial),)


@bug(trap="C-72", validators=2)
def unseen_is_missing() -> Swaps:
    """An output store that is unavailable is taken for an empty one."""
    real = OutputScan.run

    async def run(self: OutputScan, *args: Any, **more: Any) -> ScanResult | None:
        try:
            return await real(self, *args, **more)
        except ScanFailed:
            return ScanResult(found=ValidationResult(missing=self._promise.count))

    return ((OutputScan, "run", run),)


@bug(trap=49, validators=2)
def outputs_of_stale_attempts_count() -> Swaps:
    """The outputs of every attempt count, not only those of the accepted one."""

    async def every_owner(registry: Any, job: Job) -> ResumeChain:
        family = await load_resume_chain(registry, job)
        tokens = [(job.job_id, token) for token in range(1, job.fencing_token + 1)]
        return replace(family, owners=(*family.owners, *tokens))

    return ((validator, "load_resume_chain", every_owner),)


@bug(trap=46, validators=2)
def validation_claim_never_expires() -> Swaps:
    """A validator that has died keeps other validators from the job for ever."""
    return tuple((place, "VALIDATION_TIMEOUT", timedelta(days=1)) for place in (validation, outputs))


@bug(trap="R0.92", validators=2)
def unseen_outputs_fail_job() -> Swaps:
    """A job whose outputs could not be seen twice has failed."""
    real = validation._unseen

    def unseen(job: Job, check: Any, command: ReportValidation, now: datetime) -> Change:
        if check.tries < 1 or job.state is not State.VALIDATING:
            return real(job, check, command, now)
        draft = Draft(job, now=now, op_id=f"look:{job.version}", actor=command.actor)
        failure = Failure(message="unavailable", retryable=False)
        error = {"message": "unavailable", "retryable": False}
        draft.move(State.FAILED, attributes={"error": error}, error=failure, ended_at=now)
        return draft.change()

    return ((validation, "_unseen", unseen),)


@bug(trap="R0.95", validators=2)
def override_without_reason() -> Swaps:
    """An override is stored without its reason."""
    real = validation.complete_validation

    def complete_validation(job: Job, command: CompleteValidation, now: datetime) -> Change:
        change = real(job, command, now)
        if command.override is None or not change.events:
            return change
        silent = tuple(replace(event, reason=None) for event in change.events)
        return replace(change, after=replace(change.after, reason=None), own_events=silent)

    return ((validation, "complete_validation", complete_validation),)


@bug(trap=39, validators=2)
def late_results_not_folded() -> Swaps:
    """The projection ignores a validation after the end of the job."""
    real = projection._follows

    def follows(state: State | None, event: Event) -> bool:
        return event.event_type != EventType.OUTPUTS_VERIFIED and real(state, event)

    return ((projection, "_follows", follows),)


@bug(trap=42, validators=2)
def resumes_twice() -> Swaps:
    """A repeated resume makes a second job."""

    async def made_by(*_: object) -> None:
        return None

    return ((resume, "_made_by", made_by),)


@bug(trap="R0.2", validators=2)
def verdict_changes_ended_job() -> Swaps:
    """A cancelled or dead-lettered job becomes failed when its outputs are found missing."""
    real = validation._record_beside

    def found_after(draft: Draft, command: CompleteValidation) -> Change:
        if command.found.missing and not command.found.verified:
            draft.state = State.VALIDATING
            draft.move(State.FAILED, ended_at=draft.now, found=command.found)
            return draft.change()
        return real(draft, command)

    return ((validation, "_record_beside", found_after),)


@bug(trap="R0.2", validators=2)
def same_result_recorded_again() -> Swaps:
    """The same result of a failed job is recorded again by every validation."""
    real = validation._record_beside

    def found_after(draft: Draft, command: CompleteValidation) -> Change:
        draft.job = replace(draft.job, found=None)
        return real(draft, command)

    return ((validation, "_record_beside", found_after),)


@bug(trap=42, validators=2)
def concurrent_resume_created() -> Swaps:
    """A job that is being resumed is resumed once more."""
    return ((resume, "current_resume", lambda original, earlier: None),)


@bug(trap=42, validators=2)
def resume_not_linked() -> Swaps:
    """A resume is created, and the original has no link to it."""
    real = job_links.link_fact

    def link(*args: Any) -> Event:
        return replace(real(*args), given_id="another-fact")

    return ((job_links, "link_fact", link), (resume, "link_fact", link))


@bug(trap="C-53", validators=2)
def reused_job_queued() -> Swaps:
    """A job whose outputs all exist is queued."""
    return ((creation, "_reuse", lambda made, *_: made),)


@bug(trap="C-53", validators=2)
def reused_with_missing_outputs() -> Swaps:
    """A job succeeds at its creation though an output is missing."""
    real = creation._reuse

    def reuse(made: Change, found: ValidationResult, actor: str) -> Change:
        claimed = replace(found, verified=found.verified + found.missing, missing=0)
        change = real(made, claimed, actor)
        return replace(change, after=replace(change.after, found=found))

    return ((creation, "_reuse", reuse),)


@bug(trap=19, validators=2)
def progress_report_undoes_verdict() -> Swaps:
    """A progress report writes the job as it was when the validation began."""
    real = validation.report_validation

    def report_validation(job: Job, command: ReportValidation, now: datetime) -> Change:
        change = real(job, command, now)
        if job.state is not State.PARTIAL_SUCCESS:
            return change
        return replace(change, after=replace(change.after, state=State.VALIDATING, ended_at=None))

    return ((validation, "report_validation", report_validation),)
