"""publish: a worker's own events, in its own order, each stored once."""

from collections.abc import Sequence
from functools import partial

from holdfast.core.errors import Exhausted, Fenced, Invalid
from holdfast.core.event import Event, check_published
from holdfast.core.job import Job
from holdfast.core.lifecycle import Change, Publish, Refusal, Refuse, decide
from holdfast.core.limits import EVENTS_PER_PUBLISH_MAX, PUBLISH_BYTES
from holdfast.core.quota import quota_words
from holdfast.ports import Grant, One, Work
from holdfast.registry.line import Line


async def publish(line: Line, grant: Grant, events: Sequence[Event]) -> Job:
    """Append the events to the attempt. What was stored before is dropped, so a re-send is safe. What is
    refused is noted on the job, and the error says how much was stored before that.

    What the attempt's quota has no room for is noted as well, and the rest is stored; then `Exhausted` says
    so. The same events sent again are answered with the job: they have been dealt with."""
    if not events:
        raise Invalid("There is no event to publish.")
    job, rest, whole = grant.job, list(events), True
    try:
        check_published(events)
        while rest:
            job, rest, fits = await _publish(line, grant, rest)
            whole = whole and fits
    except (Fenced, Invalid) as error:
        await refuse(line, grant, error.message)
        if job is not grant.job:
            error.message += f" What came before it is stored: up to sequence {job.published}."
        raise
    if not whole:
        dropped = job.flaws.dropped_bytes if job.flaws is not None else 0
        raise Exhausted(
            f"{quota_words(dropped, job.attempt)} The job goes on; send no more output."
        )
    return job


async def refuse(line: Line, grant: Grant, reason: str) -> None:
    """Note on the job that something its owner published was refused."""
    command = Refuse(token=grant.fencing_token, actor=_actor(grant), reason=reason)
    await line.submit(Work(One(grant.job_id), partial(decide, command)), owner=True)


async def _publish(line: Line, grant: Grant, events: list[Event]) -> tuple[Job, list[Event], bool]:
    """Store the first of the events, as many as go into one commit; returns those that are left, and
    whether the quota had room for all that are not."""
    some = events[: _fitting(events)]
    decision = await _append(line, grant, some)
    if isinstance(decision, Change):
        return decision.after, events[len(some) :], len(decision.published) == len(some)
    job = decision.job
    if isinstance(decision.error, Invalid) and job is not None:
        fresh = await _unknown(line, grant, events, job)
        if not fresh:
            return job, [], True
        if len(fresh) < len(events) and (fresh[0].sequence or 0) > job.published:
            return job, fresh, True
    return await line.answer(grant.job_id, _command(grant, some), decision), [], True


def _fitting(events: Sequence[Event]) -> int:
    """How many of the first events go into one commit; at least one."""
    size = 0
    for count, event in enumerate(events[:EVENTS_PER_PUBLISH_MAX]):
        size += len(event.data or b"")
        if size > PUBLISH_BYTES and count:
            return count
    return EVENTS_PER_PUBLISH_MAX


async def _append(line: Line, grant: Grant, events: Sequence[Event]) -> Change | Refusal:
    command = _command(grant, events)
    work = Work(One(grant.job_id), partial(decide, command))
    size = sum(len(event.data or b"") for event in events)
    [[decision]] = await line.submit(work, owner=True, size_bytes=size)
    return decision


def _command(grant: Grant, events: Sequence[Event]) -> Publish:
    return Publish(token=grant.fencing_token, actor=_actor(grant), events=tuple(events))


def _actor(grant: Grant) -> str:
    return f"worker:{grant.job.owner}"


async def _unknown(line: Line, grant: Grant, events: Sequence[Event], job: Job) -> list[Event]:
    """Those of the events that are not in the log of this attempt yet. Of one that has said more than is
    kept, the log does not tell: what is not beyond its last sequence has been dealt with."""
    if job.flaws is not None and job.flaws.dropped_bytes:
        return [event for event in events if (event.sequence or 0) > job.published]
    known = set[int]()
    asked = [event.sequence or 0 for event in events if (event.sequence or 0) <= job.published]
    while asked:
        found = await line.store.published(grant.job_id, grant.fencing_token, first=asked[0])
        known.update(found)
        last = found[-1] if found else job.published
        asked = [sequence for sequence in asked if sequence > last]
    return [event for event in events if event.sequence not in known]
