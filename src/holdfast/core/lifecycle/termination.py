"""The end of an attempt, and whether the job ends with it: complete, release, expire, cancel, restore."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from holdfast.core.catalogue import EventType, ReasonCode, Stage
from holdfast.core.errors import Conflict, Denied
from holdfast.core.event import Attributes
from holdfast.core.job import CancelRequest, DeadLetter, Failure, Job, ResourceLock, timeout_failure
from holdfast.core.lifecycle.commands import (
    Cancel,
    Complete,
    Enqueue,
    Expire,
    Outcome,
    Release,
    Restore,
    Success,
)
from holdfast.core.lifecycle.creation import make_follow_ups
from holdfast.core.lifecycle.draft import Change, Draft, make_fact, unchanged
from holdfast.core.limits import (
    NOT_STARTED_MAX,
    NOT_UNDERSTOOD_MAX,
    RESULT_BYTES_MAX,
    WORK_SECONDS_MAX,
    check_delay,
    clip,
)
from holdfast.core.outputs import OWNER_GRACE, ValidationProgress
from holdfast.core.retry import OnExhausted, backoff, give_back_wait
from holdfast.core.spec import Json, check_value
from holdfast.core.state import LEGAL, UNSUCCESSFUL, State
from holdfast.core.tracebacks import clip_traceback

# A member's name is looked up by a Python function of the enum (0.1 us): once is enough.
ASSIGNED, RUNNING, SUCCEEDED = State.ASSIGNED, State.RUNNING, State.SUCCEEDED


def complete(job: Job, command: Complete, now: datetime, resource: ResourceLock | None) -> Change:
    """T9, T10, T15 to T19: decide on the outcome that the owner reports."""
    draft = Draft(job, now, command.op_id, command.actor, resource)
    draft.by_owner = True
    if job.state is ASSIGNED:
        draft.move(RUNNING, started_at=now)
    outcome = command.outcome
    if isinstance(outcome, Success):
        return _succeed(draft, outcome, command.follow_ups)
    if isinstance(outcome, Failure):
        _fail(draft, _as_stored(outcome), command.compensated)
    else:
        _cancelled(draft, job.cancel, outcome.reason, compensated=command.compensated)
    if (worked := _worked(outcome)) is not None:
        draft.amend_last(attributes={"seconds": worked})
    if outcome.where is not None and job.spec.promised_outputs > 0:
        _keep_place(draft, clip(outcome.where))
    return draft.change()


def _as_stored(failure: Failure) -> Failure:
    trace = None if failure.traceback is None else clip_traceback(failure.traceback)
    message, code = clip(failure.message), clip(failure.code, 128)
    return replace(failure, message=message, code=code, where=None, seconds=None, traceback=trace)


def _succeed(draft: Draft, outcome: Success, follow_ups: Sequence[Enqueue]) -> Change:
    result = outcome.result
    attributes: Attributes = {}
    if result is not None:
        attributes["result"] = result = check_value(result, "result", RESULT_BYTES_MAX)
    if follow_ups:
        attributes["follow_ups"] = [command.job_id for command in follow_ups]
    if (worked := _worked(outcome)) is not None:
        attributes["seconds"] = worked
    if draft.job.spec.promised_outputs > 0:
        _await_verdict(draft, outcome.where, attributes, result)
    else:
        draft.move(SUCCEEDED, attributes=attributes, result=result, error=None, ended_at=draft.now)
    change = draft.change()
    return replace(change, made=make_follow_ups(change, follow_ups)) if follow_ups else change


def _worked(outcome: Outcome) -> float | None:
    """Return how long the owner says that the work took, in whole milliseconds; None for no such time."""
    seconds = outcome.seconds
    return round(seconds, 3) if seconds is not None and 0 <= seconds <= WORK_SECONDS_MAX else None


def _await_verdict(draft: Draft, where: str | None, attributes: Attributes, result: Json) -> None:
    """T10. The worker that ran the job validates first, because it knows where the outputs are."""
    if where is not None:
        attributes["where"] = where = clip(where)
    check = ValidationProgress(where=where, next_at=draft.now + OWNER_GRACE)
    draft.move(State.VALIDATING, attributes=attributes, result=result, error=None, check=check)


def _keep_place(draft: Draft, where: str) -> None:
    """Store where an unsuccessful job ran, so that its outputs there can be validated."""
    if draft.state in UNSUCCESSFUL:
        check = ValidationProgress(where=where, next_at=draft.now + OWNER_GRACE)
        draft.amend_last(attributes={"where": where}, check=check)


def is_last_failure(job: Job, failure: Failure) -> bool:
    """Return whether this failure, reported now by the owner, ends the job instead of the attempt only.

    It does so, too, when a cancel was requested: then the job ends cancelled, and a compensation is due as
    after any other last failure. With an outdated copy of the job, True stays true; False may be wrong when
    a cancel came since, and then the job ends without its compensation.
    """
    if _is_forgiven(job, failure):
        return False
    if failure.not_understood:
        return True
    failures, crashes = _budgets(job, failure)
    retry = job.spec.retry
    spent = failures >= retry.max_failures or crashes >= retry.max_crashes
    return spent or not failure.retryable or job.cancel is not None


def _is_forgiven(job: Job, failure: Failure) -> bool:
    """Whether the job is given back for another owner, since nothing was started and the limit not
    reached."""
    if job.cancel is not None:
        return False
    if failure.not_understood:
        return job.not_understood < NOT_UNDERSTOOD_MAX
    return failure.not_started and job.not_started < NOT_STARTED_MAX


def _budgets(job: Job, failure: Failure) -> tuple[int, int]:
    """Failures and crashes, including this one."""
    return job.failures + (not failure.crash), job.crashes + failure.crash


def _fail(draft: Draft, failure: Failure, compensated: bool | None) -> None:
    job, retry = draft.job, draft.job.spec.retry
    if _is_forgiven(job, failure):
        _give_back(draft, failure)
        return
    if failure.not_understood:
        code = failure.reason_code or ReasonCode.PARSE_ERROR
        failure = replace(failure, retryable=False, stage=Stage.INPUT, reason_code=code)
    failures, crashes = _budgets(job, failure)
    budgets = {"failures": failures, "crashes": crashes}
    if not is_last_failure(job, failure):
        tries = crashes if failure.crash else failures
        ready_at = draft.now + backoff(retry, tries, f"{job.job_id}/{job.attempt}")
        error = msgspec.to_builtins(failure)
        when = msgspec.to_builtins(ready_at)
        draft.move(
            State.QUEUED,
            reason=failure.summary,
            attributes={"error": error, **budgets, "cause": "retryable_error", "ready_at": when},
            ready_at=ready_at,
            error=failure,
            **budgets,
        )
    elif job.cancel is not None:
        _cancelled(draft, job.cancel, None, error=failure, compensated=compensated, **budgets)
    elif failure.retryable:
        _end(draft, failure, retry.on_exhausted, compensated=compensated, **budgets)
    else:
        parked = failure.reason_code and retry.on_exhausted is OnExhausted.DEAD_LETTER
        policy = OnExhausted.DEAD_LETTER if parked else OnExhausted.FAIL
        _end(draft, failure, policy, compensated=compensated, **budgets)


def _give_back(draft: Draft, failure: Failure) -> None:
    """T16 at no cost: for an owner whose code understands the job, such as a newer one during a deploy; or
    for one whose machine can start it."""
    job = draft.job
    if failure.not_understood:
        cause, times = "not_understood", job.not_understood + 1
        reason = f"{job.owner} does not understand it: {failure.summary}"
    else:
        cause, times = "not_started", job.not_started + 1
        reason = f"{job.owner}: {failure.summary}"
    ready_at = draft.now + give_back_wait(times)
    draft.move(
        State.QUEUED,
        reason=clip(reason),
        attributes={"cause": cause, cause: times, "ready_at": msgspec.to_builtins(ready_at)},
        ready_at=ready_at,
        **{cause: times},
    )


def _end(
    draft: Draft,
    failure: Failure,
    policy: OnExhausted,
    *,
    compensated: bool | None = None,
    **budgets: int,
) -> None:
    """End the job as `policy` says; after a failed compensation, always as a dead letter."""
    code = failure.reason_code or ReasonCode.EXHAUSTED_RETRIES
    if compensated:
        draft.note(EventType.COMPENSATED)
    elif compensated is False:
        code, policy = ReasonCode.COMPENSATION_FAILED, OnExhausted.DEAD_LETTER
    reason = f"{code}: {failure.summary}" if failure.reason_code else failure.summary
    attributes: Attributes = {"error": msgspec.to_builtins(failure), **budgets}
    changes: dict[str, object] = {"error": failure, "ended_at": draft.now, **budgets}
    match policy:
        case OnExhausted.DEAD_LETTER:
            letter = _dead_letter(draft.job, failure, code)
            draft.move(
                State.DEAD_LETTERED,
                reason=f"{code}: {failure.summary}",
                attributes={**attributes, "dead_letter": msgspec.to_builtins(letter)},
                dead_letter=letter,
                **changes,
            )
        case OnExhausted.TIMEOUT:
            draft.move(State.TIMEOUT, reason=reason, attributes=attributes, **changes)
        case _:
            draft.move(State.FAILED, reason=reason, attributes=attributes, **changes)


def _dead_letter(job: Job, failure: Failure, code: ReasonCode) -> DeadLetter:
    return DeadLetter(
        reason_code=code,
        last_error=failure.summary,
        attempts=job.attempt,
        stage=failure.stage,
        correlation_id=job.correlation,
        last_owner=job.owner,
        last_lease_expires_at=job.lease.expires_at if job.lease else None,
    )


def _cancelled(
    draft: Draft,
    request: CancelRequest | None,
    reason: str | None,
    *,
    error: Failure | None = None,
    compensated: bool | None = None,
    **budgets: int,
) -> None:
    """End the job as its owner was asked to; after a failed compensation, as a dead letter."""
    words = clip(reason) if reason else (request.reason if request else None)
    words = words or f"cancelled by {request.actor if request else draft.actor}"
    if compensated is False:
        stopped = error or Failure(message=words, code="Cancelled", retryable=False)
        _end(draft, stopped, OnExhausted.DEAD_LETTER, compensated=False, **budgets)
        return
    if compensated:
        draft.note(EventType.COMPENSATED)
    attributes: Attributes = {**budgets}
    changes: dict[str, object] = {**budgets}
    if error is not None:
        attributes["error"], changes["error"] = msgspec.to_builtins(error), error
    draft.move(State.CANCELLED, reason=words, attributes=attributes, ended_at=draft.now, **changes)


def release(job: Job, command: Release, now: datetime, resource: ResourceLock | None) -> Change:
    """T16 at no cost: the job keeps its place in the queue, unless the command has a delay."""
    draft = Draft(job, now=now, op_id=command.op_id, actor=command.actor, resource=resource)
    draft.by_owner = True
    if job.cancel is not None:
        _cancelled(draft, job.cancel, command.reason)
        return draft.change()
    cause = "undelivered" if command.undelivered else "released"
    attributes: Attributes = {"cause": cause}
    changes: dict[str, object] = {}
    if command.delay is not None:
        changes["ready_at"] = ready_at = now + check_delay(command.delay)
        attributes["ready_at"] = msgspec.to_builtins(ready_at)
    reason = clip(command.reason) if command.reason else cause
    draft.move(State.QUEUED, reason=reason, attributes=attributes, **changes)
    return draft.change()


def expire(job: Job, command: Expire, now: datetime, resource: ResourceLock | None) -> Change:
    """Expire the job if it is due, else change nothing: so any process may call it at any time."""
    if job.due_at is None or job.due_at > now:
        return unchanged(job)
    timed_out = has_timed_out(job, now)
    if job.lease is not None and job.lease.expires_at > now and not timed_out:
        return _suspect(job, now)
    draft = Draft(job, now=now, op_id=f"expire:{job.version}", actor=command.actor, resource=resource)
    if timed_out:
        assert job.spec.timeout is not None  # it has passed
        _fail(draft, timeout_failure(job.spec.timeout), None)
    elif job.lease is not None:
        close_expired(draft, command)
    else:
        _pass_deadline(draft)
    return draft.change()


def has_timed_out(job: Job, now: datetime) -> bool:
    """Return whether the registry has to end the attempt for its timeout. A lease that expired before the
    timeout was lost instead."""
    end, lease = job.timeout_at, job.lease
    return end is not None and lease is not None and end <= min(now, lease.expires_at)


def _suspect(job: Job, now: datetime) -> Change:
    """Record once that two heartbeats were missed. The owner keeps the job until its lease expires."""
    lease = job.lease
    assert lease is not None  # the caller has just seen it
    event = make_fact(
        job,
        EventType.ORPHAN_SUSPECTED,
        now,
        job.fencing_token,
        job.heartbeats,
        actor="system:expire",
        reason=f"{lease.owner} missed two heartbeats",
    )
    return Change(job, replace(job, lease=replace(lease, suspected=True)), facts=(event,))


def close_expired(draft: Draft, command: Expire) -> None:
    """Close an attempt whose lease has expired: cancelled, ended by its budget, or tried again."""
    job, lease = draft.job, draft.job.lease
    assert lease is not None  # only leased jobs come here
    draft.op_id, draft.actor = f"expire:{job.version}", command.actor
    crashes = job.crashes + 1
    if job.cancel is not None:
        _cancelled(draft, job.cancel, None, crashes=crashes)
        return
    if job.deadline_at is not None and job.deadline_at <= draft.now:
        _end(draft, _time_up("the deadline passed"), _deadline_policy(job), crashes=crashes)
        return
    if crashes >= job.spec.retry.max_crashes:
        times = "once" if crashes == 1 else f"{crashes} times"
        words = f"the lease was lost {times}, last by {lease.owner}"
        _end(draft, _time_up(words), job.spec.retry.on_exhausted, crashes=crashes)
        return
    cause = "orphaned" if lease.heartbeat_interval else "lease_expired"
    draft.move(
        State.QUEUED,
        reason=f"{lease.owner} lost the lease",
        attributes={"cause": cause, "crashes": crashes},
        crashes=crashes,
    )


def _pass_deadline(draft: Draft) -> None:
    failure = _time_up("the deadline passed before it was claimed")
    match draft.state:
        case State.PENDING:
            draft.move(State.CANCELLED, reason=failure.message, ended_at=draft.now)
        case State.SUBMITTING:
            _end(draft, failure, OnExhausted.FAIL)
        case _:
            _end(draft, failure, _deadline_policy(draft.job))


def _time_up(words: str) -> Failure:
    return Failure(message=words, code="TimeUp", crash=True, reason_code=ReasonCode.TIMEOUT)


def _deadline_policy(job: Job) -> OnExhausted:
    """A missed deadline is a timeout, unless the job's policy is to dead-letter."""
    parked = job.spec.retry.on_exhausted is OnExhausted.DEAD_LETTER
    return OnExhausted.DEAD_LETTER if parked else OnExhausted.TIMEOUT


def cancel(job: Job, command: Cancel, now: datetime, resource: ResourceLock | None) -> Change:
    """T5 and T19 at once if the job has no owner or the cancel is hard; else a request to the owner."""
    draft = Draft(job, now=now, op_id=command.op_id, actor=command.actor, resource=resource)
    reason = clip(command.reason) if command.reason else None
    if job.ended:
        raise Conflict(f"Job has ended already: {job.state}.")
    if job.state is State.VALIDATING:
        raise Conflict("The work is done and its outputs are being validated: too late to cancel.")
    if job.state in (State.PENDING, State.QUEUED) or (command.hard and job.leased):
        draft.move(
            State.CANCELLED,
            reason=reason or f"cancelled by {command.actor}",
            ended_at=now,
        )
        return draft.change()
    if command.actor.partition(":")[0] not in LEGAL[State.ASSIGNED, State.CANCELLED].actors:
        raise Denied(f"{command.actor} may not cancel a job.")
    if job.cancel is not None:
        return unchanged(job)
    request = CancelRequest(actor=command.actor, requested_at=now, reason=reason)
    draft.note(EventType.CANCEL_REQUESTED, reason=reason, cancel=request)
    return draft.change()


RESTORED_TOKEN_STEP = 2**40
"""More than the number of grants that can be made between a backup and its restore."""


def restore(job: Job, command: Restore, now: datetime, resource: ResourceLock | None) -> Change:
    """Raise the token above any that was granted after the backup, and take the job from its owner.
    A job that only waits for its verdict keeps the token under which its outputs were written."""
    if job.ended or job.state is State.VALIDATING:
        return unchanged(job)
    draft = Draft(job, now=now, op_id=command.op_id, actor=command.actor, resource=resource)
    draft.token += RESTORED_TOKEN_STEP
    draft.note(EventType.RESTORED)
    if job.leased and job.cancel is not None:
        _cancelled(draft, job.cancel, None)
    elif job.leased:
        draft.move(State.QUEUED, reason="restored from a backup", attributes={"cause": "restored"})
    return draft.change()
