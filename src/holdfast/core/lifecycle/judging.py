"""The verdict on promised outputs: T11 to T14."""

from datetime import datetime

import msgspec

from holdfast.core.errors import Conflict, Invalid
from holdfast.core.event import Attributes
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle.commands import Judge
from holdfast.core.lifecycle.draft import Change, Draft, same
from holdfast.core.state import State


def judge(job: Job, command: Judge, now: datetime) -> Change:
    """All there: succeeded. Some: partial_success. None: failed. An override carries its reason."""
    if job.state not in (State.VALIDATING, State.PARTIAL_SUCCESS):
        raise Conflict(f"Job is {job.state}: there are no outputs to judge.")
    draft = Draft(job, now=now, op_id=command.op_id, actor=command.actor)
    target = command.override or _verdict(command)
    if command.override is not None and not command.reason:
        raise Invalid("An override needs a reason.")
    if target is job.state or (job.state is State.PARTIAL_SUCCESS and target is State.FAILED):
        return same(job)
    attributes: Attributes = {"verified": command.verified, "missing": command.missing}
    failure = (
        Failure(message="No promised output was found.", code="NO_OUTPUTS", retryable=False)
        if target is State.FAILED
        else None
    )
    if failure is not None:
        attributes["error"] = msgspec.to_builtins(failure)
    draft.move(
        target,
        reason=command.reason or (failure.message if failure else None),
        attributes=attributes,
        missing_outputs=command.missing,
        error=failure,
        ended_at=now,
    )
    return draft.change()


def _verdict(command: Judge) -> State:
    if command.missing == 0:
        return State.SUCCEEDED
    return State.PARTIAL_SUCCESS if command.verified else State.FAILED
