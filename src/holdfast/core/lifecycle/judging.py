"""The verdict on promised outputs: T11 to T14, and what is said while somebody looks.

Of a job that ended without success the verdict changes nothing: what was found is put down beside it.
"""

from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from holdfast.core.catalogue import EventType
from holdfast.core.errors import Conflict, Denied, Invalid
from holdfast.core.event import Attributes
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle.commands import Judge, Look
from holdfast.core.lifecycle.draft import Change, Draft, arrow, fact, same
from holdfast.core.limits import clip
from holdfast.core.outputs import (
    LATER_MIN,
    LOOK,
    TRIES_MAX,
    WAITS,
    Check,
    Found,
    again,
    check_found,
    later,
    looks,
    told,
)
from holdfast.core.state import UNSUCCESSFUL, State


def look(job: Job, command: Look, now: datetime) -> Change:
    """A sign of life of the one who looks; it keeps others away. Trouble says when to try again."""
    _judged(job, command.version)
    check = job.check or Check()
    if check.by not in (None, command.actor) and looks(check, now):
        raise Conflict(f"{check.by} is looking for its outputs already.")
    if command.trouble is not None:
        return _unseen(job, check, command, now)
    seen = replace(
        check, by=command.actor, until=now + LOOK, done=command.done, total=command.total
    )
    return Change(job, replace(job, check=seen))


def _unseen(job: Job, check: Check, command: Look, now: datetime) -> Change:
    """Try again later. The first tries, and whatever is new about a later one, are on record."""
    tries, reason = check.tries + 1, clip(command.trouble or "")
    unseen = Check(
        where=check.where, tries=tries, reason=reason, next_at=_next_try(job, tries, now)
    )
    change = Change(job, replace(job, check=unseen))
    if reason == check.reason and tries > len(WAITS) + 1:
        return change
    event = fact(
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
    """When to try again; never, once what became of an unsuccessful job is known or was tried too often."""
    age = now - (job.ended_at or job.updated_at)
    if job.state is State.PARTIAL_SUCCESS:
        return now + later(age)
    if job.state in UNSUCCESSFUL and (job.found is not None or tries >= TRIES_MAX):
        return None
    return now + again(tries, age)


def judge(job: Job, command: Judge, now: datetime) -> Change:
    """All there: succeeded. Some: partial_success. None: failed. An override carries its reason. A job
    that ended without success stays what it is."""
    _judged(job, command.version)
    found, override = command.found, command.override
    if override is not None and not command.reason:
        raise Invalid("An override needs a reason.")
    if override is None:
        check_found(found, job.spec.promised_outputs)
    draft = Draft(job, now=now, op_id=command.op_id, actor=command.actor)
    if job.state in UNSUCCESSFUL:
        return _found_after(draft, command)
    target = override or _verdict(found)
    if job.state is State.PARTIAL_SUCCESS and override is None and target is not State.SUCCEEDED:
        return _still_partial(draft, command)
    if job.state is override:
        return same(job)
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
        check=_next(job, now, LATER_MIN) if partial else _last(job, target),
    )
    return draft.change()


def _judged(job: Job, version: int | None) -> None:
    ended = job.state in UNSUCCESSFUL and job.spec.promised_outputs > 0
    if not ended and job.state not in (State.VALIDATING, State.PARTIAL_SUCCESS):
        raise Conflict(f"Job is {job.state}: there are no outputs to judge.")
    if version not in (None, job.version):
        raise Conflict(f"Somebody else has judged it since: it is {job.state} now.")


def _check_upgrade(job: Job, target: State, actor: str) -> None:
    """Raise what the table says against it; for an override, which nobody may have, with the way there is."""
    try:
        arrow(job.state, target, actor)
    except Denied as error:
        raise Denied(
            error.message,
            advice="Nobody's word makes a partial success whole, only its outputs. Look for them again:"
            f" holdfast validate {job.job_id} --force. Make what is missing: holdfast resume {job.job_id}",
        ) from None


def _verdict(found: Found) -> State:
    if found.missing == 0:
        return State.SUCCEEDED
    return State.PARTIAL_SUCCESS if found.verified else State.FAILED


def _still_partial(draft: Draft, command: Judge) -> Change:
    """A partial success never becomes worse than that; what is missing now may have changed."""
    job, now = draft.job, draft.now
    arrow(job.state, State.SUCCEEDED, command.actor)  # whoever may say that nothing is missing
    check = _next(job, now, later(now - (job.ended_at or now)))
    if command.found == job.found:
        return Change(job, replace(job, check=check))
    draft.note(
        EventType.OUTPUTS_VERIFIED,
        attributes=_evidence(command),
        found=command.found,
        check=check,
    )
    return draft.change()


def _found_after(draft: Draft, command: Judge) -> Change:
    """What is there of a job that ended without success: a fact beside its end, which stays."""
    job = draft.job
    if command.override is not None:
        raise Conflict(f"Job is {job.state}: it has ended, and no override changes that.")
    arrow(State.PARTIAL_SUCCESS, State.SUCCEEDED, command.actor)  # whoever may judge outputs at all
    check = _last(job, job.state)
    if command.found == job.found:
        return same(job) if check == job.check else Change(job, replace(job, check=check))
    draft.note(
        EventType.OUTPUTS_VERIFIED,
        attributes=_evidence(command),
        found=command.found,
        check=check,
    )
    return draft.change()


def _last(job: Job, target: State) -> Check | None:
    """What is left of a look that was the last: where plain outputs of an unsuccessful job are."""
    where = job.check.where if job.check else None
    return Check(where=where) if where is not None and target in UNSUCCESSFUL else None


def _next(job: Job, now: datetime, wait: timedelta) -> Check:
    return Check(where=job.check.where if job.check else None, next_at=now + wait)


def _evidence(command: Judge) -> Attributes:
    attributes: Attributes = {"found": told(command.found)}
    if command.evidence:
        attributes["evidence"] = told(command.evidence)
    return attributes


def _failure(command: Judge) -> Failure:
    if command.override is not None:
        return Failure(message=clip(command.reason or ""), code="Overridden", retryable=False)
    return Failure(message="No promised output was found.", code="NO_OUTPUTS", retryable=False)
