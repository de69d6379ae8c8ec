"""The verbs, second part: looking at jobs and following what happens."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any

from msgspec import structs

from holdfast.core.access import Scope
from holdfast.core.errors import Invalid
from holdfast.core.event import Event
from holdfast.core.job import Job, Resource
from holdfast.core.limits import BATCH_ITEMS_MAX
from holdfast.core.spec import Spec
from holdfast.core.visibility import sees_all
from holdfast.ports import Filter, Page, Slice
from holdfast.server import admission
from holdfast.server.calls import Leaving, who
from holdfast.server.claims import enter, lane
from holdfast.server.context import Context
from holdfast.server.limits import ANSWER_BYTES_MAX, LIST_CALLS_MAX, WAIT_SECONDS_MAX
from holdfast.server.locks import discreet, shown_resource
from holdfast.server.owning import find
from holdfast.server.sizes import check_size, event_bytes
from holdfast.wire import asks
from holdfast.wire.answers import Because, Counted, Happened, Marked, OfEach, Place

GOING = "This server is going away. Read on from your cursor, here or at another."
ALIVE_SECONDS = 15.0
JOBS_REMEMBERED_MAX = 10_000
REMEMBERED_SECONDS = 5.0
GET_ITEMS = 32


class Looking:
    """What changes nothing."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._registry = context.registry
        self._instance = context.ids.new()
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
        page = await self._page(which, ask)
        return Page(tuple(admission.shown(principal, job) for job in page.jobs), page.next)

    async def _page(self, which: Filter, ask: asks.ListJobs) -> Page:
        """A page of the store. For a caller that sees some jobs only, pages without any are passed over,
        up to a limit: how many there are tells how many jobs the others have."""
        after, limit = ask.after, _limit(ask.limit, 100)
        for left in range(LIST_CALLS_MAX, 0, -1):
            page = await self._registry.list_jobs(
                which, after=after, limit=limit, newest=ask.newest
            )
            if page.jobs or page.next is None or which.viewer is None or left == 1:
                break
            after = page.next
        return page

    async def count_jobs(self, ask: asks.CountJobs) -> Counted:
        admission.overlook(who.get(), ask.queue)
        return Counted(await self._registry.counts(ask.queue))

    async def why(self, ask: asks.OneJob) -> Because:
        job = await find(self._registry, ask.job_id)
        text = await self._registry.why(ask.job_id)
        return Because(await discreet(self._registry, job.spec.lock, text))

    async def history(self, ask: asks.OneJob) -> Happened:
        job = await find(self._registry, ask.job_id)
        events = await self._registry.history(ask.job_id)
        return Happened(_told(events, job))

    async def read_log(self, ask: asks.ReadLog) -> Slice:
        job = await find(self._registry, ask.job_id)

        async def read(limit: int) -> Slice:
            return await self._registry.log(
                ask.job_id, after=ask.after, limit=limit, output=not ask.without_output
            )

        page = await _fitting(read, _limit(ask.limit, 1000), _size)
        return Slice(_told(page.events, job), page.cursor)

    async def read_feed(self, ask: asks.ReadFeed) -> Slice:
        admission.demand(who.get(), Scope.OBSERVE, Scope.ADMIN)

        async def read(limit: int) -> Slice:
            return await self._registry.feed(after=ask.after, limit=limit)

        page = await _fitting(read, _limit(ask.limit, 1000), _size)
        return Slice(await self._visible(page.events), page.cursor)

    async def tail(self, _: asks.Nothing) -> Place:
        admission.demand(who.get(), Scope.OBSERVE, Scope.ADMIN)
        return Place(await self._registry.tail())

    async def watch(self, ask: asks.Watch) -> AsyncGenerator[Slice, None]:
        """The first slice comes at once, and one now and then, so that both sides know of each other."""
        principal, context, job_id = who.get(), self._context, ask.job_id
        job: Job | None = None
        if job_id is None:
            admission.demand(principal, Scope.OBSERVE, Scope.ADMIN)
        else:
            job = await find(self._registry, job_id)
        said_at = -ALIVE_SECONDS
        with context.readers.seat(principal, job_id) as stirred:
            ended = job is not None and job.ended
            follow = context.readers.follow(principal, job, ask.after, stirred)
            async with aclosing(follow) as slices:
                async for page in slices:
                    now = context.clock.monotonic()
                    if page.events or now - said_at >= ALIVE_SECONDS:
                        said_at = now
                        yield await self._slice(page, job)
                        await context.clock.sleep(0)
                    if context.stopping.is_set():
                        raise Leaving(GOING)
                    if not page.events and job_id is not None:
                        if ended:
                            return
                        [there] = await self._registry.get_many([job_id])
                        ended = there is None or there.ended
                        if ended:
                            stirred.set()

    async def _slice(self, page: Slice, job: Job | None) -> Slice:
        if job is None:
            return Slice(await self._visible(page.events), page.cursor)
        return Slice(_told(page.events, job), page.cursor)

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
            waiting = self._registry.changed(since=since, timeout=seconds)
            await self._unless_stopping(waiting, seconds)
        return Marked(self._mark())

    def _mark(self) -> str:
        return f"{self._instance}:{self._registry.mark()}"

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
                with suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await stirred.wait()

    async def _unless_stopping(self, waiting: Awaitable[None], seconds: float) -> None:
        changed = asyncio.ensure_future(waiting)
        stopping = asyncio.ensure_future(self._context.stopping.wait())
        try:
            for first in asyncio.as_completed((changed, stopping)):
                await first
                break
        finally:
            for task in (changed, stopping):
                task.cancel()

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


def _told(events: Sequence[Event], job: Job) -> tuple[Event, ...]:
    return tuple(admission.told(events, data=admission.reads(who.get(), job)))
