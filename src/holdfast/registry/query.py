"""query: read jobs and their logs, and explain the state of a job."""

from collections.abc import Sequence

from holdfast.core.errors import Invalid
from holdfast.core.event import Event
from holdfast.core.explanation import explain
from holdfast.core.job import Job
from holdfast.core.limits import LABEL_CHARACTERS_MAX, PAGE_ITEMS_MAX, check_text
from holdfast.core.short_ids import SHORT_ID_CHARACTERS_MIN
from holdfast.core.state import State
from holdfast.ports import EventPage, HistoryPage, JobFilter, JobPage
from holdfast.registry.commit_queue import CommitQueue


async def list_jobs(
    commits: CommitQueue,
    which: JobFilter = JobFilter(),
    *,
    after: str | None = None,
    limit: int = 100,
    newest: bool = False,
) -> JobPage:
    """Return a page in creation order, or in the reverse order."""
    texts = (which.queue, which.kind, which.name, which.short_id, which.owner)
    for text in (*texts, *which.labels, *which.labels.values()):
        check_text(text or "", "A filter", LABEL_CHARACTERS_MAX)
    if which.short_id is not None and len(which.short_id) < SHORT_ID_CHARACTERS_MIN:
        raise Invalid(f"A short id has at least {SHORT_ID_CHARACTERS_MIN} characters.")
    return await commits.store.list_jobs(which, after=after, limit=_page(limit), newest=newest)


async def status(commits: CommitQueue, job_id: str) -> Job:
    """Return the job; raise `NotFound` when there is none of this id."""
    return await commits.get(job_id)


async def status_many(commits: CommitQueue, job_ids: Sequence[str]) -> list[Job | None]:
    """Return the jobs in the order of their ids, None where there is none."""
    return await commits.read_batcher.get(job_ids)


async def history(commits: CommitQueue, job_id: str) -> list[Event]:
    """Return all transitions and control events of the job, by offset."""
    found, cursor = list[Event](), None
    while True:
        page = await history_page(commits, job_id, after=cursor, limit=PAGE_ITEMS_MAX)
        found += page.events
        cursor = page.next
        if cursor is None:
            return found


async def history_page(
    commits: CommitQueue, job_id: str, *, after: str | None = None, limit: int = 1000
) -> HistoryPage:
    """Return a page of the job's transitions and control events, by offset."""
    page = await commits.store.history(job_id, after=after, limit=_page(limit))
    if not page.events:
        await commits.get(job_id)
    return page


async def logs(
    commits: CommitQueue,
    job_id: str,
    *,
    after: str | None = None,
    limit: int = 1000,
    output: bool = True,
) -> EventPage:
    """Return a page of the job's log from a cursor on; without `output`, all but the worker's events."""
    page = await commits.store.logs(job_id, after=after, limit=_page(limit), output=output)
    if not page.events:
        await commits.get(job_id)
    return page


async def events(commits: CommitQueue, *, after: str | None = None, limit: int = 1000) -> EventPage:
    """Return a page of the log of all jobs from a cursor on."""
    return await commits.store.events(after=after, limit=_page(limit))


async def why(commits: CommitQueue, job_id: str, *, beside: bool = True) -> str:
    """Return why the job is in its state and what happens next; with `beside`, how many others wait."""
    job = await commits.get(job_id)
    now = await commits.store.now()
    holder = waiting = None
    if job.state is State.QUEUED:
        if beside:
            counts = await commits.store.counts(job.spec.queue)
            waiting = counts.get(State.QUEUED, 0) - 1
        if job.spec.lock:
            resource = await commits.store.locks(job.spec.lock)
            if resource.holder is not None:
                [holder] = await commits.store.get([resource.holder])
    return explain(job, now, waiting=waiting, holder=holder)


def _page(limit: int) -> int:
    if not 1 <= limit <= PAGE_ITEMS_MAX:
        raise Invalid(f"A page has from 1 to {PAGE_ITEMS_MAX} items, not {limit}.")
    return limit
