"""query: read jobs and their logs, and say in a sentence why a job is where it is."""

from collections.abc import Sequence

from holdfast.core.errors import Invalid
from holdfast.core.event import Event
from holdfast.core.explain import explain
from holdfast.core.job import Job
from holdfast.core.limits import LABEL_CHARACTERS_MAX, PAGE_ITEMS_MAX, check_text
from holdfast.core.state import State
from holdfast.ports import Filter, HistoryPage, Page, Slice
from holdfast.registry.line import Line


async def list_jobs(
    line: Line,
    which: Filter = Filter(),
    *,
    after: str | None = None,
    limit: int = 100,
    newest: bool = False,
) -> Page:
    """A page in creation order, or in the reverse of it."""
    for text in (which.queue, which.kind, which.owner, *which.labels, *which.labels.values()):
        check_text(text or "", "A filter", LABEL_CHARACTERS_MAX)
    return await line.store.list_jobs(which, after=after, limit=_page(limit), newest=newest)


async def get(line: Line, job_id: str) -> Job:
    """Return the job; `NotFound` when there is none of this id."""
    return await line.get(job_id)


async def get_many(line: Line, job_ids: Sequence[str]) -> list[Job | None]:
    """Return the jobs in the order of their ids, None where there is none."""
    return await line.reads.get(job_ids)


async def history(line: Line, job_id: str) -> list[Event]:
    """The job's transitions and control facts, by offset: all of them."""
    events, cursor = list[Event](), None
    while True:
        page = await history_page(line, job_id, after=cursor, limit=PAGE_ITEMS_MAX)
        events += page.events
        cursor = page.next
        if cursor is None:
            return events


async def history_page(
    line: Line, job_id: str, *, after: str | None = None, limit: int = 1000
) -> HistoryPage:
    """A page of the job's transitions and control facts, by offset."""
    page = await line.store.history(job_id, after=after, limit=_page(limit))
    if not page.events:
        await line.get(job_id)
    return page


async def log(
    line: Line, job_id: str, *, after: str | None = None, limit: int = 1000, output: bool = True
) -> Slice:
    """The job's whole log from a cursor on; without `output`, all but the worker's events."""
    page = await line.store.log(job_id, after=after, limit=_page(limit), output=output)
    if not page.events:
        await line.get(job_id)
    return page


async def feed(line: Line, *, after: str | None = None, limit: int = 1000) -> Slice:
    """Everybody's log from a cursor on."""
    return await line.store.feed(after=after, limit=_page(limit))


async def why(line: Line, job_id: str, *, beside: bool = True) -> str:
    """Why the job is where it is, and what will happen next; `beside` says how many others wait."""
    job = await line.get(job_id)
    now = await line.store.now()
    holder = waiting = None
    if job.state is State.QUEUED:
        if beside:
            counts = await line.store.counts(job.spec.queue)
            waiting = counts.get(State.QUEUED, 0) - 1
        if job.spec.lock:
            resource = await line.store.resource(job.spec.lock)
            if resource.holder is not None:
                [holder] = await line.store.get([resource.holder])
    return explain(job, now, waiting=waiting, holder=holder)


def _page(limit: int) -> int:
    if not 1 <= limit <= PAGE_ITEMS_MAX:
        raise Invalid(f"A page has from 1 to {PAGE_ITEMS_MAX} items, not {limit}.")
    return limit
