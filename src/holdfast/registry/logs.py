"""logs: read the log of a job, or a part of its output, page by page."""

from datetime import datetime

from holdfast.core.catalogue import EventType
from holdfast.core.errors import Invalid
from holdfast.core.event import Event
from holdfast.core.limits import NUMBER_MAX, PAGE_ITEMS_MAX
from holdfast.core.output_part import OutputPart, OutputStart, StartSearch
from holdfast.ports import EventPage
from holdfast.registry.commit_queue import CommitQueue

_BATCHES_READ = 100


async def logs(
    commits: CommitQueue,
    job_id: str,
    *,
    after: str | None = None,
    limit: int = 1000,
    output: bool = True,
    tail: int | None = None,
    since: datetime | None = None,
    attempt: int | None = None,
    stream: str | None = None,
) -> EventPage:
    """Return a page of the job's log from a cursor on; without `output`, all but the worker's events.

    `attempt` leaves out what is of other attempts, and `stream` the output in other streams. With `tail` the
    page begins at the last lines of that output, with `since` at the first that was written then or later;
    what comes before it is searched from the end. Read on with the cursor, and without these two.
    """
    if not 1 <= limit <= PAGE_ITEMS_MAX:
        raise Invalid(f"A page has from 1 to {PAGE_ITEMS_MAX} items, not {limit}.")
    part = OutputPart(tail=tail, since=since, attempt=attempt, stream=stream)
    part.check(after)
    start: OutputStart | None = None
    claims: list[Event] = []
    if attempt is not None:
        [events] = await commits.store.histories([job_id])
        claims = [event for event in events if event.event_type == EventType.CLAIMED]
    mine = [claim for claim in claims if claim.attempt == attempt]
    if attempt is not None and not mine:
        return await _nothing(commits, job_id, after)
    if after is None and part.has_start:
        start = await _search(commits, job_id, part, mine)
    if after is None and (start is not None or mine):
        first = start.log_id if start is not None else mine[0].log_id or 0
        after = commits.store.log_cursor(first)
    later = [claim.log_id or 0 for claim in claims if (claim.attempt or 0) > (attempt or 0)]
    end = min(later, default=None)
    return await _page(commits, job_id, part, start, after, limit, output=output, end=end)


async def _page(
    commits: CommitQueue,
    job_id: str,
    part: OutputPart,
    start: OutputStart | None,
    after: str | None,
    limit: int,
    *,
    output: bool,
    end: int | None,
) -> EventPage:
    """Return the next page with an event of the part on it; an empty one if there is none, or none before
    the end of its attempt."""
    while True:
        page = await commits.store.logs(job_id, after=after, limit=limit, output=output)
        if not page.events:
            await commits.get(job_id)
            return page
        kept = tuple(one for event in page.events if (one := part.of(event, start)) is not None)
        if kept or (end is not None and (page.events[-1].log_id or 0) >= end):
            return EventPage(kept, page.cursor)
        after = page.cursor


async def _nothing(commits: CommitQueue, job_id: str, after: str | None) -> EventPage:
    """Return the page of an attempt that there is not (yet)."""
    await commits.get(job_id)
    return EventPage((), after or commits.store.log_cursor(1))


async def _search(
    commits: CommitQueue, job_id: str, part: OutputPart, claims: list[Event]
) -> OutputStart | None:
    """Return where the part begins: None if that is where its attempt, or the log, begins."""
    search = StartSearch(part)
    first = claims[0].fencing_token or 0 if claims else 0
    before = ((claims[-1].fencing_token or 0) if claims else NUMBER_MAX, NUMBER_MAX)
    while events := await commits.store.published_before(job_id, before, limit=_BATCHES_READ):
        mine = [event for event in events if (event.fencing_token or 0) >= first]
        if search.add(mine) or len(mine) < len(events):
            return search.start
        before = (events[-1].fencing_token or 0, events[-1].sequence or 0)
    return None
