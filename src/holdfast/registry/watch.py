"""watch: follow one job, or all of them, as it happens. Reading is the truth; a wake-up is a hint."""

from collections.abc import AsyncGenerator

from holdfast.core.errors import Unavailable
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.registry.line import Line

PAGE = 500
POLL_SECONDS = 1.0


async def watch(
    line: Line, job_id: str | None, *, after: str | None
) -> AsyncGenerator[Event, None]:
    """Every event from the cursor on, each once, in commit order. A job's stream ends with the job: what its
    owner publishes after that is in the log for whoever reads on from the last cursor."""
    store, cursor = line.store, after
    if job_id is not None:
        await line.get(job_id)
    while True:
        mark = store.mark()
        ended = job_id is not None and await _ended(line, job_id)
        while True:
            if job_id is None:
                page = await store.feed(after=cursor, limit=PAGE)
            else:
                page = await store.log(job_id, after=cursor, limit=PAGE)
            if not page.events:
                break
            for event in page.events:
                yield event
            cursor = page.cursor
        if ended:
            return
        await store.wait(mark, POLL_SECONDS)


async def _ended(line: Line, job_id: str) -> bool:
    """Whether the job had ended by now, so that all that led to it is in its log."""
    [job] = await line.store.get([job_id])
    return job is None or job.ended


async def wait(line: Line, job_id: str, *, seconds: float | None) -> Job:
    """The job once it has ended; `Unavailable` when that takes longer than `seconds`."""
    waited = 0.0
    while True:
        mark = line.store.mark()
        before = await line.store.now()
        job = await line.get(job_id)
        if job.ended:
            return job
        if seconds is not None and waited >= seconds:
            raise Unavailable(
                f"Job {job_id} is still {job.state}.", job_id=job_id, version=job.version
            )
        rest = POLL_SECONDS if seconds is None else min(POLL_SECONDS, seconds - waited)
        await line.store.wait(mark, rest)
        waited += max(0.0, (await line.store.now() - before).total_seconds())
