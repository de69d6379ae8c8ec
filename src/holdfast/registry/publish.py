"""publish: a worker's own events, in its own order, each stored once."""

from collections.abc import Sequence
from functools import partial

from holdfast.core.errors import Invalid
from holdfast.core.event import Event, check_published
from holdfast.core.job import Job
from holdfast.core.lifecycle import Change, Publish, Refusal, decide
from holdfast.ports import Grant, One, Work
from holdfast.registry.line import Line

_LOG_PAGE = 1000


async def publish(line: Line, grant: Grant, events: Sequence[Event]) -> Job:
    """Append the events to the attempt. What was stored before is dropped, so a re-send is safe."""
    check_published(events, await line.store.now())
    decision = await _append(line, grant, events)
    if isinstance(decision, Change):
        return decision.after
    job = decision.job
    if isinstance(decision.error, Invalid) and job is not None:
        fresh = await _unknown(line, grant, events)
        if not fresh:
            return job
        if (fresh[0].sequence or 0) > job.published:
            decision = await _append(line, grant, fresh)
    return await line.answer(grant.job_id, _command(grant, events), decision)


async def _append(line: Line, grant: Grant, events: Sequence[Event]) -> Change | Refusal:
    command = _command(grant, events)
    [[decision]] = await line.submit(Work(One(grant.job_id), partial(decide, command)))
    return decision


def _command(grant: Grant, events: Sequence[Event]) -> Publish:
    return Publish(
        token=grant.fencing_token, actor=f"worker:{grant.job.owner}", events=tuple(events)
    )


async def _unknown(line: Line, grant: Grant, events: Sequence[Event]) -> list[Event]:
    """Those of the events that are not in the log of this attempt yet."""
    known: set[int | None] = set()
    cursor: str | None = None
    while True:
        page = await line.store.log(grant.job_id, after=cursor, limit=_LOG_PAGE)
        known |= {e.sequence for e in page.events if e.fencing_token == grant.fencing_token}
        if not page.events:
            return [event for event in events if event.sequence not in known]
        cursor = page.cursor
