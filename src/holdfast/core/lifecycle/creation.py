"""The creation of jobs: enqueued for any worker, or registered and handed to one executor."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from holdfast.core.catalogue import EventClass
from holdfast.core.errors import Conflict, Invalid
from holdfast.core.event import Event
from holdfast.core.job import CancelRequest, Failure, Job
from holdfast.core.lifecycle.commands import Enqueue, Handoff, HandoffStep
from holdfast.core.lifecycle.draft import Change, Draft, legal_transition, unchanged
from holdfast.core.limits import clip
from holdfast.core.outputs import ValidationResult, check_validation_result, to_json_value
from holdfast.core.spec import Spec
from holdfast.core.state import State

_TRANSITION = EventClass.TRANSITION


def enqueue(job: Job | None, command: Enqueue, now: datetime, floor: int) -> Change:
    """Create the job, or return the existing one for a repeat of the same request."""
    if job is not None:
        if job.spec == command.spec:
            return unchanged(job)
        raise Conflict(
            f"Job {job.job_id} exists already, for a different request; use another request_id or job_id."
        )
    made = create(command, now, _first_state(command), floor)
    return made if command.found is None else _reuse(made, command.found, command.actor)


def _reuse(made: Change, found: ValidationResult, actor: str) -> Change:
    """T6, T7, T10 and T11 in the commit that creates the job: there is nothing left to run."""
    check_validation_result(found, made.after.spec.promised_outputs)
    if found.missing or not found.verified:
        raise Invalid("Only a job whose promised outputs were all found ends as it begins.")
    draft = Draft.from_creation(made, actor=actor, resource=None)
    draft.token += 1
    draft.move(State.ASSIGNED)
    draft.move(State.RUNNING, started_at=draft.now)
    result = {"cached": True}
    draft.move(State.VALIDATING, attributes={"result": result}, result=result)
    draft.move(
        State.SUCCEEDED,
        attributes={"found": to_json_value(found)},
        found=found,
        ended_at=draft.now,
    )
    return draft.change()


def make_follow_ups(done: Change, follow_ups: Sequence[Enqueue]) -> tuple[Change, ...]:
    """Return the follow-ups of a job that has just succeeded, tied to it and caused by its last event."""
    parent, event = done.after, done.events[-1]
    return tuple(
        create(
            replace(
                command,
                correlation_id=command.correlation_id or parent.correlation,
                trace_id=command.trace_id or parent.trace_id,
                traceparent=command.traceparent if command.trace_id else parent.traceparent,
            ),
            event.occurred_at,
            _first_state(command),
            cause=event.event_id,
        )
        for command in follow_ups
    )


def _first_state(command: Enqueue) -> State:
    return State.PENDING if command.register else State.QUEUED


def create(
    command: Enqueue, now: datetime, state: State, floor: int = 0, *, cause: str | None = None
) -> Change:
    """T0 or T1: the job at version 1, with its first event. Its tokens rise from `floor`."""
    spec = command.spec
    if command.job_id in (spec.resumed_from, spec.replayed_from):
        raise Invalid("A job cannot resume or replay itself.")
    legal = legal_transition(None, state, command.actor)
    job = first_record(
        command.job_id,
        spec,
        now,
        state,
        floor,
        submitted_by=command.submitted_by,
        correlation_id=command.correlation_id,
        trace_id=command.trace_id,
        traceparent=command.traceparent,
    )
    event = Event(
        legal.event,
        _TRANSITION,
        now,
        command.job_id,
        1,
        1,
        None,
        state,
        1,
        floor or None,
        command.op_id,
        command.actor,
        None,
        {},
        command.correlation_id,
        command.trace_id,
    )
    if cause is not None:
        event = replace(event, cause=cause)
    return Change(None, job, (event,))


def first_record(
    job_id: str,
    spec: Spec,
    now: datetime,
    state: State,
    floor: int,
    *,
    submitted_by: str | None,
    correlation_id: str | None,
    trace_id: str | None,
    traceparent: str | None,
) -> Job:
    """Return the job as it is created: it follows from what never changes about it, and its first event."""
    if spec.run_at is not None:
        ready_at = max(now, spec.run_at)
    elif spec.delay is not None:
        ready_at = now + spec.delay
    else:
        ready_at = now
    return Job(
        job_id,
        spec,
        state,
        now,
        now,
        ready_at,
        version=1,
        transition_no=1,
        fencing_token=floor,
        deadline_at=None if spec.ttl is None else now + spec.ttl,
        submitted_by=submitted_by,
        correlation_id=correlation_id,
        trace_id=trace_id,
        traceparent=traceparent,
    )


def handoff(job: Job, command: Handoff, now: datetime) -> Change:
    """T2 to T4. A cancel that came meanwhile takes effect as soon as the executor has accepted the job."""
    draft = Draft(job, now=now, op_id=command.op_id, actor=command.actor)
    begins = command.step is HandoffStep.BEGIN
    if job.state is not (State.PENDING if begins else State.SUBMITTING):
        raise Conflict(f"Job is {job.state}: {_wrong_step(job.state)}")
    match command.step:
        case HandoffStep.BEGIN:
            draft.move(State.SUBMITTING)
        case HandoffStep.DONE:
            handle = command.handle
            draft.move(State.QUEUED, attributes={"handle": handle} if handle else None, handle=handle)
            if job.cancel is not None:
                draft.move(State.CANCELLED, reason=_cancel_reason(job.cancel), ended_at=now)
        case _:
            failure = Failure(message=clip(command.error or "The executor refused the job."), retryable=False)
            draft.move(
                State.FAILED,
                reason=failure.message,
                attributes={"error": msgspec.to_builtins(failure)},
                error=failure,
                ended_at=now,
            )
    return draft.change()


def _wrong_step(state: State) -> str:
    """Why this step of a handoff cannot be taken in this state."""
    if state is State.SUBMITTING:
        return "its handoff to an executor has begun already; the next step is done or refused."
    if state is State.PENDING:
        return "its handoff to an executor has not begun; the next step is begin."
    return "there is no handoff to an executor to begin or to end."


def _cancel_reason(request: CancelRequest) -> str:
    return request.reason or f"cancelled by {request.actor}"
