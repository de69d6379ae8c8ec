"""RegistryService of holdfast.v1, second part: looking at jobs and following what happens."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext
from protobuf import Message

from holdfast.core.access import Principal, Scope
from holdfast.core.errors import Invalid
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.limits import BATCH_ITEMS_MAX
from holdfast.core.spec import Spec
from holdfast.ports import Filter, Page, Slice
from holdfast.server import admission
from holdfast.server.calls import who
from holdfast.server.claims import enter, lane
from holdfast.server.context import Context
from holdfast.server.limits import ANSWER_BYTES_MAX, WAIT_SECONDS_MAX
from holdfast.server.locks import discreet, shown_resource
from holdfast.server.sizes import check_size, event_bytes, job_bytes
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.mapping import optional
from holdfast.wire.values import EVENT, FILTER, JOB, RESOURCE, AJob

Call = RequestContext[Any, Any]

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

    async def get_jobs(self, request: pb.GetJobsRequest, _: Call) -> pb.GetJobsResponse:
        principal = who.get()
        if len(request.job_ids) > BATCH_ITEMS_MAX:
            raise Invalid(f"At most {BATCH_ITEMS_MAX} jobs are read at once.")
        wanted = list(dict.fromkeys(request.job_ids))
        found: dict[str, Job] = {}
        for start in range(0, len(wanted), GET_ITEMS):
            jobs = await self._registry.get_many(wanted[start : start + GET_ITEMS])
            found |= {job.job_id: job for job in jobs if job and admission.sees(principal, job)}
            check_size(found[one] for one in request.job_ids if one in found)
        answers = [_answer(principal, found.get(one)) for one in request.job_ids]
        return pb.GetJobsResponse(answers=answers)

    async def list_jobs(self, request: pb.ListJobsRequest, _: Call) -> pb.ListJobsResponse:
        principal = who.get()
        admission.demand(principal, Scope.OBSERVE, Scope.WORK, Scope.SUBMIT, Scope.ADMIN)
        which = FILTER.decode(request.which) if request.which else Filter()

        async def read(limit: int) -> Page:
            return await self._registry.list_jobs(
                which, after=optional(request, "after"), limit=limit, newest=request.newest
            )

        page = await _fitting(
            read, _limit(request, 100), lambda page: sum(map(job_bytes, page.jobs))
        )
        return pb.ListJobsResponse(
            jobs=[
                JOB.encode(admission.shown(principal, job))
                for job in page.jobs
                if admission.sees(principal, job)
            ],
            next=page.next,
        )

    async def count_jobs(self, request: pb.CountJobsRequest, _: Call) -> pb.CountJobsResponse:
        principal, queue = who.get(), optional(request, "queue")
        admission.overlook(principal, queue)
        counts = await self._registry.counts(queue)
        return pb.CountJobsResponse(counts={str(state): n for state, n in counts.items()})

    async def why(self, request: pb.WhyRequest, _: Call) -> pb.WhyResponse:
        job = await self._find(request.job_id)
        text = await self._registry.why(request.job_id)
        return pb.WhyResponse(text=await discreet(self._registry, job.spec.lock, text))

    async def history(self, request: pb.HistoryRequest, _: Call) -> pb.HistoryResponse:
        job = await self._find(request.job_id)
        events = await self._registry.history(request.job_id)
        return pb.HistoryResponse(events=_encoded(events, data=admission.reads(who.get(), job)))

    async def read_log(self, request: pb.ReadLogRequest, _: Call) -> pb.Slice:
        job = await self._find(request.job_id)

        async def read(limit: int) -> Slice:
            return await self._registry.log(
                request.job_id,
                after=optional(request, "after"),
                limit=limit,
                output=not request.without_output,
            )

        page = await _fitting(read, _limit(request, 1000), _size)
        events = _encoded(page.events, data=admission.reads(who.get(), job))
        return pb.Slice(events=events, cursor=page.cursor)

    async def read_feed(self, request: pb.ReadFeedRequest, _: Call) -> pb.Slice:
        admission.demand(who.get(), Scope.OBSERVE, Scope.ADMIN)

        async def read(limit: int) -> Slice:
            return await self._registry.feed(after=optional(request, "after"), limit=limit)

        page = await _fitting(read, _limit(request, 1000), _size)
        return pb.Slice(events=await self._visible(page.events), cursor=page.cursor)

    async def tail(self, request: pb.TailRequest, _: Call) -> pb.TailResponse:
        admission.demand(who.get(), Scope.OBSERVE, Scope.ADMIN)
        return pb.TailResponse(cursor=await self._registry.tail())

    async def watch(self, request: pb.WatchRequest, _: Call) -> AsyncGenerator[pb.Slice, None]:
        """The first slice comes at once, and one now and then, so that both sides know of each other."""
        principal, context = who.get(), self._context
        job_id, after = optional(request, "job_id"), optional(request, "after")
        job: Job | None = None
        if job_id is None:
            admission.demand(principal, Scope.OBSERVE, Scope.ADMIN)
        else:
            job = await self._find(job_id)
        said_at = -ALIVE_SECONDS
        with context.readers.seat(principal, job_id) as stirred:
            ended = job is not None and job.ended
            follow = context.readers.follow(principal, job, after, stirred)
            async with aclosing(follow) as slices:
                async for page in slices:
                    now = context.clock.monotonic()
                    if page.events or now - said_at >= ALIVE_SECONDS:
                        said_at = now
                        yield await self._slice(page, job)
                        await context.clock.sleep(0)
                    if context.stopping.is_set():
                        raise ConnectError(Code.UNAVAILABLE, GOING)
                    if not page.events and job_id is not None:
                        if ended:
                            return
                        [there] = await self._registry.get_many([job_id])
                        ended = there is None or there.ended
                        if ended:
                            stirred.set()

    async def _slice(self, page: Slice, job: Job | None) -> pb.Slice:
        if job is None:
            return pb.Slice(events=await self._visible(page.events), cursor=page.cursor)
        events = _encoded(page.events, data=admission.reads(who.get(), job))
        return pb.Slice(events=events, cursor=page.cursor)

    async def get_resource(self, request: pb.GetResourceRequest, _: Call) -> pb.Resource:
        admission.demand(who.get(), Scope.OBSERVE, Scope.WORK, Scope.ADMIN)
        return RESOURCE.encode(await shown_resource(self._registry, request.key))

    async def await_change(self, request: pb.AwaitChangeRequest, _: Call) -> pb.AwaitChangeResponse:
        seconds = min(max(request.seconds, 0.0), WAIT_SECONDS_MAX)
        mark = optional(request, "mark")
        if request.claim is not None:
            enter(request.claim)
            await self._context.lanes.turn(lane(request.claim), seconds)
            return pb.AwaitChangeResponse()
        if (job_id := optional(request, "job_id")) is not None:
            return pb.AwaitChangeResponse(mark=await self._await_job(job_id, mark, seconds))
        if mark == self._mark():
            since = self._registry.mark()
            waiting = self._registry.changed(since=since, timeout=seconds)
            await self._unless_stopping(waiting, seconds)
        return pb.AwaitChangeResponse(mark=self._mark())

    def _mark(self) -> str:
        return f"{self._instance}:{self._registry.mark()}"

    async def _await_job(self, job_id: str, mark: str | None, seconds: float) -> str:
        until = self._context.clock.monotonic() + seconds
        with self._context.readers.seat(who.get(), job_id, counted=False) as stirred:
            while True:
                stirred.clear()
                job = await self._find(job_id)
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

    async def _visible(self, events: Sequence[Event]) -> list[pb.Event]:
        """Those of everybody's events that the caller may see, as they may see them."""
        principal = who.get()
        if principal.everywhere:
            return _encoded(events, data=principal.may(Scope.DATA, "", None))
        jobs = await self._jobs_of([event.job_id for event in events if event.job_id])
        seen: list[pb.Event] = []
        for event in events:
            job = jobs.get(event.job_id or "")
            if job is not None and admission.sees(principal, job):
                seen += _encoded([event], data=admission.reads(principal, job))
        return seen

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

    async def _find(self, job_id: str) -> Job:
        [job] = await self._registry.get_many([job_id]) if job_id else [None]
        return admission.find(who.get(), job, job_id)


def _answer(principal: Principal, job: Job | None) -> pb.Answer:
    if job is None or not admission.sees(principal, job):
        return pb.Answer()
    return pb.Answer(answer=AJob("job", JOB.encode(admission.shown(principal, job))))


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


def _limit(request: Message, default: int) -> int:
    limit = optional(request, "limit")
    return default if limit is None else int(limit)


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


def _encoded(events: Sequence[Event], *, data: bool) -> list[pb.Event]:
    return [EVENT.encode(event) for event in admission.told(events, data=data)]
