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
from holdfast.core.job import Job, Resource
from holdfast.core.limits import BATCH_ITEMS_MAX, PAGE_ITEMS_MAX
from holdfast.core.spec import Spec
from holdfast.core.visibility import sees_all
from holdfast.ports import Filter, HistoryPage, Page, Slice
from holdfast.server import admission
from holdfast.server.calls import Leaving, who
from holdfast.server.claims import enter, lane
from holdfast.server.context import Context
from holdfast.server.cursors import FEED, JOBS, Cursors, history_of, log_of
from holdfast.server.limits import (
    ANSWER_BYTES_MAX,
    FEED_CALLS_MAX,
    LIST_CALLS_MAX,
    LOOK_SECONDS_MAX,
    WAIT_SECONDS_MAX,
)
from holdfast.server.locks import discreet, shown_resource
from holdfast.server.sizes import check_size, event_bytes
from holdfast.server.verbs.access import find
from holdfast.system import first_of
from holdfast.wire import asks
from holdfast.wire.answers import Because, Counted, Marked, OfEach, Place

GOING = "This server is going away. Read on from your cursor, here or at another."
ALIVE_SECONDS = 15.0
JOBS_REMEMBERED_MAX = 10_000
REMEMBERED_SECONDS = 5.0
GET_ITEMS = 32


class Queries:
    """What changes nothing."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._registry = context.registry
        self._cursors = Cursors(context.registry)
        self._instance = context.ids.secret()
        self._jobs: OrderedDict[str, Job | None] = OrderedDict()
        self._remembered_at = 0.0

    async def get_jobs(self, ask: asks.GetJobs) -> OfEach:
        principal = who.get()
        if len(ask.job_ids) > BATCH_ITEMS_MAX:
            raise Invalid(f"At most {BATCH_ITEMS_MAX} jobs are read at once.")
        wanted = list(dict.fromkeys(ask.job_ids))
        found: dict[str, Job] = {}
        for start in range(0, len(wanted), GET_ITEMS):
            jobs = await self._registry.get_many(wanted[start : start + GET_ITEMS])
            found |= {job.job_id: job for job in jobs if job and admission.sees(principal, job)}
            check_size(found[one] for one in ask.job_ids if one in found)
        shown = {job_id: admission.shown(principal, job) for job_id, job in found.items()}
        return OfEach(tuple(shown.get(one) for one in ask.job_ids))

    async def list_jobs(self, ask: asks.ListJobs) -> Page:
        principal = who.get()
        admission.demand(principal, Scope.OBSERVE, Scope.WORK, Scope.SUBMIT, Scope.ADMIN)
        viewer = None if sees_all(principal) else principal
        which = Filter(**structs.asdict(ask.which), viewer=viewer)
        after = await self._cursors.open(principal, JOBS, ask.after)
        page = await self._page(which, after, ask)
        jobs = tuple(admission.shown(principal, job) for job in page.jobs)
        if page.next is None:
            return Page(jobs, None)
        return Page(jobs, await self._cursors.seal(principal, JOBS, page.next))

    async def _page(self, which: Filter, after: str | None, ask: asks.ListJobs) -> Page:
        """A page of the store. For a caller that sees some jobs only, pages without any are passed over,
        up to a limit in number and in time: how many there are tells how many jobs the others have."""
        limit = _limit(ask.limit, 100)
        until = self._context.clock.monotonic() + LOOK_SECONDS_MAX
        for left in range(LIST_CALLS_MAX, 0, -1):
            page = await self._registry.list_jobs(
                which, after=after, limit=limit, newest=ask.newest
            )
            if page.jobs or page.next is None or which.viewer is None or left == 1:
                break
            if self._context.clock.monotonic() >= until:
                break
            after = page.next
        return page

    async def count_jobs(self, ask: asks.CountJobs) -> Counted:
        admission.overlook(who.get(), ask.queue)
        return Counted(await self._registry.counts(ask.queue))

    async def why(self, ask: asks.OneJob) -> Because:
        job = await find(self._registry, ask.job_id)
        beside = admission.overlooks(who.get(), job.spec.queue)
        text = await self._registry.why(ask.job_id, beside=beside)
        return Because(await discreet(self._registry, job.spec.lock, text))

    async def history(self, ask: asks.History) -> HistoryPage:
        principal, job = who.get(), await find(self._registry, ask.job_id)
        what = history_of(job.job_id)
        after = await self._cursors.open(principal, what, ask.after)
        page = await self._registry.history_page(
            ask.job_id, after=after, limit=_limit(ask.limit, 1000)
        )
        events = _placeless(_told(page.events, job))
        if page.next is None:
            return HistoryPage(events)
        return HistoryPage(events, await self._cursors.seal(principal, what, page.next))

    async def read_log(self, ask: asks.ReadLog) -> Slice:
        job = await find(self._registry, ask.job_id)
        after = await self._cursors.open(who.get(), log_of(job.job_id), ask.after)

        async def read(limit: int) -> Slice:
            return await self._registry.log(
                ask.job_id, after=after, limit=limit, output=not ask.without_output
            )

        page = await _fitting(read, _limit(ask.limit, 1000), _size)
        return await self._slice(_told(page.events, job), page.cursor, job)

    async def read_feed(self, ask: asks.ReadFeed) -> Slice:
        admission.demand(who.get(), Scope.OBSERVE, Scope.ADMIN)
        after = await self._cursors.open(who.get(), FEED, ask.after)
        events, cursor = await self._feed(after, _limit(ask.limit, 1000))
        return await self._slice(events, cursor, None)

    async def _feed(self, after: str | None, limit: int) -> tuple[tuple[Event, ...], str]:
        """The next events that the caller may see, and the place behind them. What lies between is passed
        over, up to a limit in number and in time: how often it must be asked for tells how much happens
        out of reach."""
        rows = limit
        until = self._context.clock.monotonic() + LOOK_SECONDS_MAX
        for _ in range(FEED_CALLS_MAX):

            async def read(limit: int, after: str | None = after) -> Slice:
                return await self._registry.feed(after=after, limit=limit)

            page = await _fitting(read, rows, _size)
            seen = await self._visible(page.events)
            if not page.events or (seen and (len(seen) <= limit or rows == limit)):
                break
            if seen:
                rows = limit  # these are more than were asked for
            elif self._context.clock.monotonic() >= until:
                break
            else:
                after, rows = page.cursor, min(2 * rows, PAGE_ITEMS_MAX)
        return seen, page.cursor

    async def tail(self, _: asks.Nothing) -> Place:
        admission.demand(who.get(), Scope.OBSERVE, Scope.ADMIN)
        return Place(await self._cursors.seal(who.get(), FEED, await self._registry.tail()))

    async def watch(self, ask: asks.Watch) -> AsyncGenerator[Slice, None]:
        """The first slice comes at once, and one now and then, so that both sides know of each other."""
        principal, context, job_id = who.get(), self._context, ask.job_id
        job: Job | None = None
        if job_id is None:
            admission.demand(principal, Scope.OBSERVE, Scope.ADMIN)
        else:
            job = await find(self._registry, job_id)
        after = await self._cursors.open(principal, log_of(job_id) if job_id else FEED, ask.after)
        said_at = -ALIVE_SECONDS
        async with aclosing(context.follow(job, after)) as pages:
            async for page in pages:
                now = context.clock.monotonic()
                events = _told(page.events, job) if job else await self._visible(page.events)
                if events or now - said_at >= ALIVE_SECONDS:
                    said_at = now
                    yield await self._slice(events, page.cursor, job)
                    await context.clock.sleep(0)
                if context.stopping.is_set():
                    raise Leaving(GOING)

    async def _slice(self, events: tuple[Event, ...], cursor: str, job: Job | None) -> Slice:
        """The events and the cursor as the caller may have them: their places among everybody's are for
        those alone who see everything."""
        what = FEED if job is None else log_of(job.job_id)
        return Slice(_placeless(events), await self._cursors.seal(who.get(), what, cursor))

    async def get_resource(self, ask: asks.GetResource) -> Resource:
        admission.demand(who.get(), Scope.OBSERVE, Scope.WORK, Scope.ADMIN)
        return await shown_resource(self._registry, ask.key)

    async def await_change(self, ask: asks.AwaitChange) -> Marked:
        marked = await self._await_change(ask)
        await self._context.check_key()
        return marked

    async def _await_change(self, ask: asks.AwaitChange) -> Marked:
        seconds = min(max(ask.seconds, 0.0), WAIT_SECONDS_MAX)
        if ask.claim is not None:
            enter(ask.claim)
            await self._context.lanes.turn(lane(ask.claim), seconds)
            return Marked()
        if ask.job_id is not None:
            return Marked(await self._await_job(ask.job_id, ask.mark, seconds))
        if ask.mark == self._mark():
            since = self._registry.mark()
            async with self._context.waits.place():
                changed = self._registry.changed(since=since, timeout=seconds)
                await first_of(changed, self._context.stopping.wait())
        return Marked(self._mark())

    def _mark(self) -> str:
        """What changes with every commit, and does not count them."""
        return blake2b(str(self._registry.mark()).encode(), key=self._instance).hexdigest()[:32]

    async def _await_job(self, job_id: str, mark: str | None, seconds: float) -> str:
        until = self._context.clock.monotonic() + seconds
        with self._context.readers.seat(who.get(), job_id, counted=False) as stirred:
            while True:
                stirred.clear()
                job = await find(self._registry, job_id)
                now = f"{job.version}.{job.published}"
                left = until - self._context.clock.monotonic()
                if now != mark or left <= 0 or self._context.stopping.is_set():
                    return now
                async with self._context.waits.place():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(left):
                            await stirred.wait()

    async def _visible(self, events: Sequence[Event]) -> tuple[Event, ...]:
        """Those of everybody's events that the caller may see, as they may see them."""
        principal = who.get()
        if principal.everywhere:
            return tuple(admission.told(events, data=principal.may(Scope.DATA, "", None)))
        jobs = await self._jobs_of([event.job_id for event in events if event.job_id])
        seen: list[Event] = []
        for event in events:
            job = jobs.get(event.job_id or "")
            if job is not None and admission.sees(principal, job):
                seen += admission.told([event], data=admission.reads(principal, job))
        return tuple(seen)

    async def _jobs_of(self, job_ids: list[str]) -> dict[str, Job | None]:
        """The jobs by id, as far as admission looks at them: remembered for a moment."""
        now = self._context.clock.monotonic()
        if now - self._remembered_at > REMEMBERED_SECONDS:
            self._jobs.clear()
            self._remembered_at = now
        missing = [one for one in dict.fromkeys(job_ids) if one not in self._jobs]
        for start in range(0, len(missing), BATCH_ITEMS_MAX):
            some = missing[start : start + BATCH_ITEMS_MAX]
            found = await self._registry.get_many(some)
            self._jobs.update(
                (one, _outline(job)) for one, job in zip(some, found, strict=True) if job
            )
        known = {one: self._jobs.get(one) for one in job_ids}
        while len(self._jobs) > JOBS_REMEMBERED_MAX:
            self._jobs.popitem(last=False)
        return known


def _outline(job: Job) -> Job:
    """Where a job is and whose, without what is in it."""
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


async def _fitting(
    read: Callable[[int], Awaitable[Any]], limit: int, size: Callable[[Any], int]
) -> Any:  # noqa: ANN401
    """What `read` gives, read again with half as much until the answer is no larger than it may be."""
    while True:
        page = await read(limit)
        if limit <= 1 or size(page) <= ANSWER_BYTES_MAX:
            return page
        limit //= 2


def _size(page: Slice) -> int:
    return sum(map(event_bytes, page.events))


def _placeless(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """The events without their places in everybody's log, unless the caller sees everything."""
    if sees_all(who.get()):
        return events
    return tuple(structs.replace(event, log_id=None) for event in events)


def _told(events: Sequence[Event], job: Job) -> tuple[Event, ...]:
    return tuple(admission.told(events, data=admission.reads(who.get(), job)))
