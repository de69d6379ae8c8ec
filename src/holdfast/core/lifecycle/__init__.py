"""The rules, in one place: `decide(command, job, now)` gives a `Change` or a `Refusal`. Pure."""

from datetime import datetime

from holdfast.core.catalogue import EventType
from holdfast.core.errors import Fenced, HoldfastError, Invalid, NotFound
from holdfast.core.event import Event
from holdfast.core.job import Job, ResourceLock
from holdfast.core.lifecycle import creation, ownership, termination, validation
from holdfast.core.lifecycle.commands import (
    Aggregate,
    Cancel,
    Claim,
    Command,
    Complete,
    CompleteValidation,
    Enqueue,
    Expire,
    Handoff,
    HandoffStep,
    Heartbeat,
    Outcome,
    Publish,
    RefusePublish,
    Release,
    ReportValidation,
    Restore,
    Stopped,
    Success,
)
from holdfast.core.lifecycle.draft import Change, Refusal, make_fact
from holdfast.core.lifecycle.termination import is_last_failure

__all__ = [
    "Aggregate",
    "Cancel",
    "Change",
    "Claim",
    "Command",
    "Complete",
    "CompleteValidation",
    "Enqueue",
    "Expire",
    "Handoff",
    "HandoffStep",
    "Heartbeat",
    "Outcome",
    "Publish",
    "Refusal",
    "RefusePublish",
    "Release",
    "ReportValidation",
    "Restore",
    "Stopped",
    "Success",
    "decide",
    "is_last_failure",
]


def decide(
    command: Command,
    job: Job | None,
    now: datetime,
    resource: ResourceLock | None = None,
    floor: int = 0,
) -> Change | Refusal:
    """Decide one command on one job as it is at `now` on the store's clock.

    `resource` is the lock the job names, as it is now; `floor` the highest token that a pruned job of the
    same id may have had. Pure: the same arguments always give the same decision, so a store may decide
    again after a conflict.
    """
    try:
        return _decide(command, job, now, resource, floor)
    except OverflowError:
        return Refusal(Invalid("A number or a time in the request is out of range."), job)
    except HoldfastError as error:
        if job is not None:
            error.job_id, error.version = job.job_id, job.version
            error.correlation_id, error.trace_id = job.correlation, job.trace_id
        stale = isinstance(error, Fenced) and job is not None and not _holds(command, job)
        return Refusal(error, job, (_stale(command, job, now),) if stale and job else ())


def _decide(
    command: Command, job: Job | None, now: datetime, resource: ResourceLock | None, floor: int
) -> Change:
    # The commands of every job first, by their very type: a class pattern costs 0.15 us each.
    if type(command) is Claim:
        return ownership.claim(job, command, now, resource, floor)
    if type(command) is Enqueue:
        return creation.enqueue(job, command, now, floor)
    if job is None:
        raise NotFound("There is no such job.")
    if type(command) is Complete:
        ownership.require_lease(job, command.token)
        return termination.complete(job, command, now, resource)
    match command:
        case Heartbeat():
            return ownership.heartbeat(job, command, now)
        case Publish() | RefusePublish():
            return ownership.publish_or_refuse(job, command, now)
        case Expire():
            return termination.expire(job, command, now, resource)
        case Release():
            ownership.require_lease(job, command.token)
            return termination.release(job, command, now, resource)
        case Cancel():
            return termination.cancel(job, command, now, resource)
        case Aggregate():
            return ownership.aggregate(job, command, now)
        case Handoff():
            return creation.handoff(job, command, now)
        case ReportValidation():
            return validation.report_validation(job, command, now)
        case CompleteValidation():
            return validation.complete_validation(job, command, now)
        case _:
            return termination.restore(job, command, now, resource)


def _holds(command: Command, job: Job) -> bool:
    return job.lease is not None and getattr(command, "token", None) == job.fencing_token


def _stale(command: Command, job: Job, now: datetime) -> Event:
    """The fact that a stale owner was refused: one per job, token and verb, however often it tries."""
    token = getattr(command, "token", 0)
    verb = type(command).__name__.lower()
    return make_fact(
        job,
        EventType.STALE_WRITE_REJECTED,
        now,
        token,
        verb,
        actor=command.actor,
        reason=f"{verb} with token {token}; the job is {job.state} under token {job.fencing_token}",
        token=token,
        attributes={"verb": verb},
    )
