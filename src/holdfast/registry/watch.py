"""watch and wait: follow the events of one job or of all. Reads decide; a wake-up is only a hint."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from holdfast.core.errors import Unavailable
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.ports import EventPage
from holdfast.registry.commit_queue import CommitQueue

PAGE = 500
POLL_SECONDS = 1.0


async def watch(
    commits: CommitQueue, job_id: str | None = None, *, after: str | None = None
) -> AsyncGenerator[Event, None]:
    """Yield every event from the cursor on, each once, in commit order. A job's stream ends with the job:
    what its owner publishes after that is in its log, after the last cursor."""
    wake = asyncio.Event()
    pages = _pages(commits, job_id, after, wake)
    if job_id is not None:
        job = await commits.get(job_id)
        pages = until_ended(pages, job, lambda: _status(commits, job.job_id), wake)
    async with aclosing(pages):
        async for page in pages:
            for event in page.events:
                yield event


async def until_ended(
    pages: AsyncGenerator[EventPage, None],
    job: Job,
    status: Callable[[], Awaitable[Job | None]],
    wake: asyncio.Event,
) -> AsyncGenerator[EventPage, None]:
    """Yield the pages of a job's log, until the job has ended and a page read after that is empty.

    An empty page says that this is all so far. Then the status is read; if the job has ended meanwhile,
    `wake` is set, so that the log is read once more at once: what led to the end is in it by then.
    """
    ended = job.ended
    async with aclosing(pages):
        async for page in pages:
            yield page
            if page.events:
                continue
            if ended:
                return
            now = await status()
            ended = now is None or now.ended
            if ended:
                wake.set()


async def _pages(
    commits: CommitQueue, job_id: str | None, after: str | None, wake: asyncio.Event
) -> AsyncGenerator[EventPage, None]:
    """The pages from the cursor on, for ever. After an empty one it waits for a commit, or for `wake`."""
    store, cursor = commits.store, after
    while True:
        mark = store.change_mark()
        if job_id is None:
            page = await store.events(after=cursor, limit=PAGE)
        else:
            page = await store.logs(job_id, after=cursor, limit=PAGE)
        cursor = page.cursor
        yield page
        if not page.events and not wake.is_set():
            await store.wait(mark, POLL_SECONDS)


async def _status(commits: CommitQueue, job_id: str) -> Job | None:
    [job] = await commits.store.get([job_id])
    return job


async def wait(commits: CommitQueue, job_id: str, *, timeout: float | None = None) -> Job:  # noqa: ASYNC109
    """Wait until the job has ended and return it; raise `Unavailable` after `timeout` seconds."""
    waited = 0.0
    while True:
        mark = commits.store.change_mark()
        before = await commits.store.now()
        job = await commits.get(job_id)
        if job.ended:
            return job
        if timeout is not None and waited >= timeout:
            raise Unavailable(f"Job {job_id} is still {job.state}.", job_id=job_id, version=job.version)
        rest = POLL_SECONDS if timeout is None else min(POLL_SECONDS, timeout - waited)
        await commits.store.wait(mark, rest)
        waited += max(0.0, (await commits.store.now() - before).total_seconds())
