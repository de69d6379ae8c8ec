"""publish: a worker's own events, in its own order, each stored once."""

from collections.abc import Sequence
from functools import partial

from holdfast.core.errors import Exhausted, Fenced, Invalid
from holdfast.core.event import Event, check_published
from holdfast.core.job import Job
from holdfast.core.lifecycle import Change, Publish, Refusal, RefusePublish, decide
from holdfast.core.limits import EVENTS_PER_PUBLISH_MAX, PUBLISH_BYTES
from holdfast.core.quota import describe_dropped_output
from holdfast.ports import ById, Grant, Work
from holdfast.registry.commit_queue import CommitQueue


async def publish(commits: CommitQueue, grant: Grant, events: Sequence[Event]) -> Job:
    """Append the events to the attempt. Events that are stored already are ignored, so a repeat is safe. A
    refusal is recorded on the job, and the error says how much was stored before it.

    Events beyond the attempt's quota are counted on the job, and the others are stored; then `Exhausted` is
    raised. A repeat of these events returns the job."""
    if not events:
        raise Invalid("There is no event to publish.")
    job, rest, whole = grant.job, list(events), True
    try:
        check_published(events)
        while rest:
            job, rest, fits = await _publish(commits, grant, rest)
            whole = whole and fits
    except (Fenced, Invalid) as error:
        await refuse_publish(commits, grant, error.message)
        if job is not grant.job:
            error.message += f" What came before it is stored: up to sequence {job.published}."
        raise
    if not whole:
        dropped = job.flaws.dropped_bytes if job.flaws is not None else 0
        raise Exhausted(
            f"{describe_dropped_output(dropped, job.attempt)} The job goes on; send no more output."
        )
    return job


async def refuse_publish(commits: CommitQueue, grant: Grant, reason: str) -> None:
    """Record on the job that something its owner published was refused."""
    command = RefusePublish(token=grant.fencing_token, actor=_actor(grant), reason=reason)
    await commits.submit(Work(ById(grant.job_id), partial(decide, command)), owner=True)


async def _publish(commits: CommitQueue, grant: Grant, events: list[Event]) -> tuple[Job, list[Event], bool]:
    """Store the first events, as many as fit into one commit. Return the job, the rest of the events, and
    whether the quota had room for all that were sent."""
    some = events[: _fitting(events)]
    decision = await _append(commits, grant, some)
    if isinstance(decision, Change):
        return decision.after, events[len(some) :], len(decision.published) == len(some)
    job = decision.job
    if isinstance(decision.error, Invalid) and job is not None:
        fresh = await _unknown(commits, grant, events, job)
        if not fresh:
            return job, [], True
        if len(fresh) < len(events) and (fresh[0].sequence or 0) > job.published:
            return job, fresh, True
    return await commits.resolve_unchanged(grant.job_id, _command(grant, some), decision), [], True


def _fitting(events: Sequence[Event]) -> int:
    """How many of the first events fit into one commit; at least one."""
    size = 0
    for count, event in enumerate(events[:EVENTS_PER_PUBLISH_MAX]):
        size += len(event.data or b"")
        if size > PUBLISH_BYTES and count:
            return count
    return EVENTS_PER_PUBLISH_MAX


async def _append(commits: CommitQueue, grant: Grant, events: Sequence[Event]) -> Change | Refusal:
    command = _command(grant, events)
    work = Work(ById(grant.job_id), partial(decide, command))
    size = sum(len(event.data or b"") for event in events)
    [[decision]] = await commits.submit(work, owner=True, size_bytes=size)
    return decision


def _command(grant: Grant, events: Sequence[Event]) -> Publish:
    return Publish(token=grant.fencing_token, actor=_actor(grant), events=tuple(events))


def _actor(grant: Grant) -> str:
    return f"worker:{grant.job.owner}"


async def _unknown(commits: CommitQueue, grant: Grant, events: Sequence[Event], job: Job) -> list[Event]:
    """The events that are not in the log of this attempt yet. For an attempt that exceeded its quota the
    log is incomplete: there, events up to its last sequence count as known."""
    if job.flaws is not None and job.flaws.dropped_bytes:
        return [event for event in events if (event.sequence or 0) > job.published]
    known = set[int]()
    unknown = [event.sequence or 0 for event in events if (event.sequence or 0) <= job.published]
    while unknown:
        first = unknown[0]
        found = await commits.store.published(grant.job_id, grant.fencing_token, first=first)
        known.update(found)
        last = found[-1] if found else job.published
        unknown = [sequence for sequence in unknown if sequence > last]
    return [event for event in events if event.sequence not in known]
