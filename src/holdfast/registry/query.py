"""query: read jobs and their logs, and explain the state of a job."""

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import chain

from holdfast.core.errors import Invalid
from holdfast.core.event import Event
from holdfast.core.explanation import explain
from holdfast.core.job import Job
from holdfast.core.limits import LABEL_CHARACTERS_MAX, PAGE_ITEMS_MAX, check_text
from holdfast.core.short_ids import SHORT_ID_CHARACTERS_MIN
from holdfast.core.state import LEASED, State
from holdfast.core.wait_explanation import AHEAD_MAX, Surroundings, describe_wait
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
    pairs = (*which.labels.items(), *which.arguments.items())
    for text in (*texts, *chain.from_iterable(pairs)):
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


async def events(commits: CommitQueue, *, after: str | None = None, limit: int = 1000) -> EventPage:
    """Return a page of the log of all jobs from a cursor on."""
    return await commits.store.events(after=after, limit=_page(limit))


async def why(
    commits: CommitQueue,
    job_id: str,
    *,
    beside: bool = True,
    reaches: Callable[[str], bool] = lambda queue: True,
) -> str:
    """Return why the job is in its state and what happens next; with `beside`, how many others wait, and
    which workers are there. Other queues are named only where the caller `reaches` them."""
    job, now = await commits.get(job_id), await commits.store.now()
    if job.state is State.QUEUED:
        return await _why_queued(commits, job, now, beside=beside, reaches=reaches)
    return explain(job, now, published_at=await _published_at(commits, job))


async def _published_at(commits: CommitQueue, job: Job) -> datetime | None:
    """Return when the last event of the attempt under way came."""
    if not job.leased or not job.published:
        return None
    beyond = (job.fencing_token + 1, 0)
    newest = await commits.store.published_before(job.job_id, beyond, limit=1)
    return next((one.received_at for one in newest if one.fencing_token == job.fencing_token), None)


async def _why_queued(
    commits: CommitQueue, job: Job, now: datetime, *, beside: bool, reaches: Callable[[str], bool]
) -> str:
    store, spec, holder = commits.store, job.spec, None
    counts = await store.counts(spec.queue)
    ahead = await store.count_ready(spec.queue, ahead_of=job, limit=AHEAD_MAX) if beside else None
    around = Surroundings(
        workers=await store.list_workers(),
        ahead=ahead,
        moving=any(counts.get(state) for state in LEASED),
        names=beside,
        reaches=reaches,
    )
    if spec.lock:
        resource = await store.locks(spec.lock)
        if resource.holder is not None:
            [holder] = await store.get([resource.holder])
    waiting = counts.get(State.QUEUED, 0) - 1 if beside else None
    return explain(job, now, waiting=waiting, holder=holder, wait=describe_wait(job, now, around))


def _page(limit: int) -> int:
    if not 1 <= limit <= PAGE_ITEMS_MAX:
        raise Invalid(f"A page has from 1 to {PAGE_ITEMS_MAX} items, not {limit}.")
    return limit
