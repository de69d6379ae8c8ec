"""The queries: read jobs and their logs, follow them, wait for a change."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from hashlib import blake2b
from typing import Any

from msgspec import structs

from holdfast.core.access import Scope
from holdfast.core.errors import Invalid
from holdfast.core.event import Event
from holdfast.core.job import Job, ResourceLock
from holdfast.core.limits import BATCH_ITEMS_MAX, PAGE_ITEMS_MAX
from holdfast.core.spec import Spec
from holdfast.core.visibility import can_read_all, can_see_all
from holdfast.ports import EventPage, HistoryPage, JobFilter, JobPage
from holdfast.server import admission
from holdfast.server.admission import visible_lock, without_hidden_holder
from holdfast.server.calls import ShuttingDown, current_principal
from holdfast.server.claim_waiters import check_claim, claim_key
from holdfast.server.context import ServerContext
from holdfast.server.limits import (
    EVENT_READS_MAX,
    LIST_READS_MAX,
    RESPONSE_BYTES_MAX,
    SKIP_SECONDS_MAX,
    WAIT_SECONDS_MAX,
)
from holdfast.server.sizes import check_size, event_bytes
from holdfast.server.verbs.access import FEED, JOBS, Cursors, find, history_of, log_of
from holdfast.system import first_of
from holdfast.wire import requests
from holdfast.wire.responses import BatchResponse, ChangeMark, EventCursor, Explanation, JobCounts

SHUTTING_DOWN = "This server is shutting down. Read on from your cursor, here or at another server."
ALIVE_SECONDS = 15.0
JOBS_CACHED_MAX = 10_000
CACHED_SECONDS = 5.0
GET_ITEMS = 32


class QueryVerbs:
    """What changes nothing."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._registry = context.registry
        self._cursors = Cursors(context.registry)
        self._instance = context.ids.secret()
        self._cached_jobs: OrderedDict[str, Job | None] = OrderedDict()
        self._cached_at = 0.0

    async def status(self, request: requests.Status) -> BatchResponse:
        principal = current_principal.get()
        if len(request.job_ids) > BATCH_ITEMS_MAX:
            raise Invalid(f"At most {BATCH_ITEMS_MAX} jobs are read at once.")
        wanted = list(dict.fromkeys(request.job_ids))
        found: dict[str, Job] = {}
        for start in range(0, len(wanted), GET_ITEMS):
            jobs = await self._registry.status_many(wanted[start : start + GET_ITEMS])
            found |= {job.job_id: job for job in jobs if job and admission.sees(principal, job)}
            check_size(found[one] for one in request.job_ids if one in found)
        shown = {job_id: admission.visible_job(principal, job) for job_id, job in found.items()}
        return BatchResponse(tuple(shown.get(one) for one in request.job_ids))

    async def list_jobs(self, request: requests.ListJobs) -> JobPage:
        principal = current_principal.get()
        admission.require_scope(principal, Scope.OBSERVE, Scope.WORK, Scope.SUBMIT, Scope.ADMIN)
        viewer = None if can_see_all(principal) else principal
        if request.which.arguments and not can_read_all(principal):
            admission.require_scope(principal, Scope.DATA, Scope.SUBMIT)
            viewer = principal
        which = JobFilter(**structs.asdict(request.which), viewer=viewer)
        after = await self._cursors.open(principal, JOBS, request.after)
        page = await self._page(which, after, request)
        jobs = tuple(admission.visible_job(principal, job) for job in page.jobs)
        if page.next is None:
            return JobPage(jobs, None)
        return JobPage(jobs, await self._cursors.seal(principal, JOBS, page.next))

    async def _page(self, which: JobFilter, after: str | None, request: requests.ListJobs) -> JobPage:
        """Return a page of the store. For a caller that sees some jobs only, pages without any are skipped,
        up to a limit in number and time: empty pages would tell how many jobs others have."""
        limit = _limit(request.limit, 100)
        until = self._context.clock.monotonic() + SKIP_SECONDS_MAX
        for left in range(LIST_READS_MAX, 0, -1):
            page = await self._registry.list_jobs(which, after=after, limit=limit, newest=request.newest)
            if page.jobs or page.next is None or which.viewer is None or left == 1:
                break
            if self._context.clock.monotonic() >= until:
                break
            after = page.next
        return page

    async def counts(self, request: requests.Counts) -> JobCounts:
        admission.check_may_count(current_principal.get(), request.queue)
        return JobCounts(await self._registry.counts(request.queue))

    async def why(self, request: requests.JobById) -> Explanation:
        job = await find(self._registry, request.job_id)
        principal = current_principal.get()
        beside = admission.may_count(principal, job.spec.queue)
        text = await self._registry.why(
            request.job_id, beside=beside, reaches=lambda queue: principal.reaches(queue, None)
        )
        return Explanation(await without_hidden_holder(self._registry, job.spec.lock, text))

    async def history(self, request: requests.History) -> HistoryPage:
        principal, job = current_principal.get(), await find(self._registry, request.job_id)
        what = history_of(job.job_id)
        after = await self._cursors.open(principal, what, request.after)
        page = await self._registry.history_page(
            request.job_id, after=after, limit=_limit(request.limit, 1000)
        )
        events = _without_positions(_redacted(page.events, job))
        if page.next is None:
            return HistoryPage(events)
        return HistoryPage(events, await self._cursors.seal(principal, what, page.next))

    async def logs(self, request: requests.Logs) -> EventPage:
        job = await find(self._registry, request.job_id)
        after = await self._cursors.open(current_principal.get(), log_of(job.job_id), request.after)

        async def read(limit: int) -> EventPage:
            return await self._registry.logs(
                request.job_id,
                after=after,
                limit=limit,
                output=not request.without_output,
                tail=request.tail,
                since=request.since,
                attempt=request.attempt,
                stream=request.stream,
            )

        page = await _fitting(read, _limit(request.limit, 1000), _size)
        return await self._event_page(_redacted(page.events, job), page.cursor, job)

    async def events(self, request: requests.Events) -> EventPage:
        admission.require_scope(current_principal.get(), Scope.OBSERVE, Scope.ADMIN)
        after = await self._cursors.open(current_principal.get(), FEED, request.after)
        events, cursor = await self._feed(after, _limit(request.limit, 1000))
        return await self._event_page(events, cursor, None)

    async def _feed(self, after: str | None, limit: int) -> tuple[tuple[Event, ...], str]:
        """Return the next events that the caller may see, and the cursor after them. Others are skipped, up
        to a limit in number and time: empty pages would tell how many events others have."""
        rows = limit
        until = self._context.clock.monotonic() + SKIP_SECONDS_MAX
        for _ in range(EVENT_READS_MAX):

            async def read(limit: int, after: str | None = after) -> EventPage:
                return await self._registry.events(after=after, limit=limit)

            page = await _fitting(read, rows, _size)
            seen = await self._visible(page.events)
            if not page.events or (seen and (len(seen) <= limit or rows == limit)):
                break
            if seen:
                rows = limit  # more were found than the caller asked for
            elif self._context.clock.monotonic() >= until:
                break
            else:
                after, rows = page.cursor, min(2 * rows, PAGE_ITEMS_MAX)
        return seen, page.cursor

    async def tail(self, _: requests.Empty) -> EventCursor:
        admission.require_scope(current_principal.get(), Scope.OBSERVE, Scope.ADMIN)
        return EventCursor(
            await self._cursors.seal(current_principal.get(), FEED, await self._registry.tail())
        )

    async def watch(self, request: requests.Watch) -> AsyncGenerator[EventPage, None]:
        """Return a page at once, and then at least every 15 s, if an empty one, as a sign of life."""
        principal, context, job_id = current_principal.get(), self._context, request.job_id
        job: Job | None = None
        if job_id is None:
            admission.require_scope(principal, Scope.OBSERVE, Scope.ADMIN)
        else:
            job = await find(self._registry, job_id)
        after = await self._cursors.open(principal, log_of(job_id) if job_id else FEED, request.after)
        sent_at = -ALIVE_SECONDS
        async with aclosing(context.follow(job, after)) as pages:
            async for page in pages:
                now = context.clock.monotonic()
                events = _redacted(page.events, job) if job else await self._visible(page.events)
                if events or now - sent_at >= ALIVE_SECONDS:
                    sent_at = now
                    yield await self._event_page(events, page.cursor, job)
                    await context.clock.sleep(0)
                if context.stopping.is_set():
                    raise ShuttingDown(SHUTTING_DOWN)

    async def _event_page(self, events: tuple[Event, ...], cursor: str, job: Job | None) -> EventPage:
        """Return a page for the caller: without positions in the log of all, unless it sees all."""
        what = FEED if job is None else log_of(job.job_id)
        return EventPage(
            _without_positions(events),
            await self._cursors.seal(current_principal.get(), what, cursor),
        )

    async def locks(self, request: requests.Locks) -> ResourceLock:
        admission.require_scope(current_principal.get(), Scope.OBSERVE, Scope.WORK, Scope.ADMIN)
        return await visible_lock(self._registry, request.key)

    async def changes(self, request: requests.Changes) -> ChangeMark:
        marked = await self._changes(request)
        await self._context.check_key()
        return marked

    async def _changes(self, request: requests.Changes) -> ChangeMark:
        seconds = min(max(request.seconds, 0.0), WAIT_SECONDS_MAX)
        if request.claim is not None:
            check_claim(request.claim)
            await self._context.claim_waiters.wait_for_turn(claim_key(request.claim), seconds)
            return ChangeMark()
        if request.job_id is not None:
            return ChangeMark(await self._await_job(request.job_id, request.mark, seconds))
        if request.mark == self._mark():
            since = self._registry.change_mark()
            async with self._context.wait_limit.slot():
                changed = self._registry.changes(since=since, timeout=seconds)
                await first_of(changed, self._context.stopping.wait())
        return ChangeMark(self._mark())

    def _mark(self) -> str:
        """Return a mark that changes with every commit, and does not tell their number."""
        return blake2b(str(self._registry.change_mark()).encode(), key=self._instance).hexdigest()[:32]

    async def _await_job(self, job_id: str, mark: str | None, seconds: float) -> str:
        until = self._context.clock.monotonic() + seconds
        with self._context.event_streams.subscribe(current_principal.get(), job_id, counted=False) as wake:
            while True:
                wake.clear()
                job = await find(self._registry, job_id)
                now = f"{job.version}.{job.published}"
                left = until - self._context.clock.monotonic()
                if now != mark or left <= 0 or self._context.stopping.is_set():
                    return now
                async with self._context.wait_limit.slot():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(left):
                            await wake.wait()

    async def _visible(self, events: Sequence[Event]) -> tuple[Event, ...]:
        """Return the events that the caller may see, without the data that it may not."""
        principal = current_principal.get()
        if principal.everywhere:
            return tuple(admission.visible_events(events, data=principal.may(Scope.DATA, "", None)))
        jobs = await self._jobs_of([event.job_id for event in events if event.job_id])
        seen: list[Event] = []
        for event in events:
            job = jobs.get(event.job_id or "")
            if job is not None and admission.sees(principal, job):
                seen += admission.visible_events([event], data=admission.may_read(principal, job))
        return tuple(seen)

    async def _jobs_of(self, job_ids: list[str]) -> dict[str, Job | None]:
        """Return the jobs by id, with the fields that admission needs. They are cached for seconds."""
        now = self._context.clock.monotonic()
        if now - self._cached_at > CACHED_SECONDS:
            self._cached_jobs.clear()
            self._cached_at = now
        missing = [one for one in dict.fromkeys(job_ids) if one not in self._cached_jobs]
        for start in range(0, len(missing), BATCH_ITEMS_MAX):
            some = missing[start : start + BATCH_ITEMS_MAX]
            found = await self._registry.status_many(some)
            self._cached_jobs.update(
                (one, _admission_fields(job)) for one, job in zip(some, found, strict=True) if job
            )
        known = {one: self._cached_jobs.get(one) for one in job_ids}
        while len(self._cached_jobs) > JOBS_CACHED_MAX:
            self._cached_jobs.popitem(last=False)
        return known


def _admission_fields(job: Job) -> Job:
    """Return the job with its queue, its region and its submitter only."""
    spec = Spec(queue=job.spec.queue, region=job.spec.region)
    return Job(
        job.job_id,
        spec,
        job.state,
        job.created_at,
        job.updated_at,
        job.ready_at,
        submitted_by=job.submitted_by,
    )


def _limit(limit: int | None, default: int) -> int:
    return default if limit is None else limit


async def _fitting(read: Callable[[int], Awaitable[Any]], limit: int, size: Callable[[Any], int]) -> Any:  # noqa: ANN401
    """Return what `read` returns, read again with half the limit while it is too large for a response."""
    while True:
        page = await read(limit)
        if limit <= 1 or size(page) <= RESPONSE_BYTES_MAX:
            return page
        limit //= 2


def _size(page: EventPage) -> int:
    return sum(map(event_bytes, page.events))


def _without_positions(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """Return the events, without their positions in the log of all unless the caller sees all."""
    if can_see_all(current_principal.get()):
        return events
    return tuple(structs.replace(event, log_id=None) for event in events)


def _redacted(events: Sequence[Event], job: Job) -> tuple[Event, ...]:
    return tuple(admission.visible_events(events, data=admission.may_read(current_principal.get(), job)))
