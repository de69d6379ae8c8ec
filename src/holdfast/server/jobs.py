"""JobService of job.v1: the queue, as existing clients know it."""

import re
from collections.abc import AsyncGenerator, Callable, Coroutine
from datetime import timedelta
from functools import partial, wraps
from math import ceil
from typing import Any, TypeAlias, TypeVar

from connectrpc.request import RequestContext

from holdfast.core.access import Scope
from holdfast.core.errors import Conflict, Exhausted, Invalid, NotFound
from holdfast.core.job import Job
from holdfast.core.lifecycle import Outcome, Success
from holdfast.core.limits import LEASE_MAX, PAGE_ITEMS_MAX, check_id
from holdfast.ports import Filter, Grant, Request
from holdfast.server import admission
from holdfast.server.calls import Unknown, who
from holdfast.server.claims import lane_of, owner_of
from holdfast.server.context import Context
from holdfast.server.grants import bound
from holdfast.server.limits import CLAIM_ITEMS_MAX, POLL_SECONDS_MAX, WALK_ITEMS_MAX
from holdfast.server.reports import failure_of
from holdfast.server.sizes import check_size
from holdfast.server.tracing import tied
from holdfast.server.verbs.access import in_reach, known, made
from holdfast.wire.generated.job.v1 import job_connect
from holdfast.wire.generated.job.v1 import job_pb as pb
from holdfast.wire.job_params import KINDS, STATES, VISIBILITY_SECONDS, job_of, spec_of, states_of
from holdfast.wire.mapping import timestamp
from holdfast.wire.verbs import Load

Q = TypeVar("Q")
A = TypeVar("A")
Call = RequestContext[Any, Any]
Handler: TypeAlias = Callable[["JobService", Q, Call], Coroutine[Any, Any, A]]

PAGE_SIZE = 20
POLL_MARGIN_SECONDS, POLL_MARGIN = 0.5, 0.02
"""What a poll leaves of its client's time for the way back: so many seconds, or that part of it."""

WALK_ITEMS = 200
VISIBILITY_SECONDS_MAX = int(LEASE_MAX.total_seconds())
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


def check_uuid(text: str, what: str) -> str:
    """Return the UUID as it is written in lower case, or raise `Invalid`."""
    plain = text.lower()
    if not _UUID.match(plain):
        raise Invalid(f"{what} must be a UUID, such as 018f3c5e-7c1a-7e6b-9f30-2b5d0f3f8a11.")
    return plain


def _taking(load: Load) -> Callable[[Handler[Q, A]], Handler[Q, A]]:
    """A handler that takes a place of its kind among the calls of its key."""

    def decorate(handler: Handler[Q, A]) -> Handler[Q, A]:
        @wraps(handler)
        async def placed(self: "JobService", request: Q, call: Call) -> A:
            async with self.context.capacity.place(load):
                return await handler(self, request, call)

        return placed

    return decorate


class JobService(job_connect.JobService):
    """The handlers, one for each method."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._registry = context.registry

    @_taking(Load.LIGHT)
    async def enqueue_job(self, request: pb.EnqueueJobRequest, _: Call) -> pb.EnqueueJobResponse:
        principal = who.get()
        request_id = check_uuid(request.request_id, "request_id") if request.request_id else None
        spec = spec_of(request.job_params, request.queue)
        admission.enter(principal, Scope.SUBMIT, spec.queue, spec.region)
        asked = Request(
            spec=spec, request_id=request_id, submitted_by=admission.submitter(principal)
        )
        try:
            await self.context.depth.admit(check_id(spec.queue, "queue"))
        except Exhausted:
            if not await known(self._registry, [asked]):
                raise
        try:
            job = made(await self._registry.enqueue(tied(asked), actor=principal.actor))
        except Conflict as error:
            raise await in_reach(self._registry, error) from error
        return pb.EnqueueJobResponse(
            job_id=job.job_id, created_at=timestamp(job.created_at), state=STATES[job.state]
        )

    async def dequeue_job(
        self, request: pb.DequeueJobRequest, call: Call
    ) -> AsyncGenerator[pb.DequeueJobResponse, None]:
        """Every grant that was not sent when the client goes is given back."""
        context = self.context
        queue = request.queue or "default"
        region = admission.region_of(who.get(), request.region or None)
        admission.enter(who.get(), Scope.WORK, check_id(queue, "queue"), region)
        ask = partial(self._ask, request, queue, region)
        lane = lane_of((queue,), KINDS, region, None)
        seconds = _patience(call.timeout_ms, context.settings.poll_seconds)
        unsent = await context.lanes.claim(lane, ask, seconds)
        named = bool(request.request_id)
        try:
            unsent = await context.grants.seal(unsent)
            await context.check_key()
            while unsent:
                grant = unsent[0]
                if await context.grants.left():
                    return
                await context.check_key()
                answer = pb.DequeueJobResponse(
                    job=job_of(grant.job),
                    task_token=grant.task_token or "",
                    attempt=grant.attempt,
                    fencing_token=grant.fencing_token,
                    lease_seconds=grant.lease_seconds,
                )
                del unsent[0]
                yield answer
        except Unknown:
            named = False  # nobody can ask again under this name
            raise
        finally:
            context.grants.give_back(unsent, named=named)

    async def _ask(
        self, request: pb.DequeueJobRequest, queue: str, region: str | None
    ) -> list[Grant]:
        seconds = request.visibility_timeout_seconds
        interval = request.heartbeat_interval_seconds
        op_id = (
            f"dequeue:{check_uuid(request.request_id, 'request_id')}"
            if request.request_id
            else None
        )
        declared = timedelta(seconds=interval) if interval > 0 else None
        visible = timedelta(seconds=_visible(seconds))
        claim = partial(
            self._registry.claim,
            [queue],
            owner=owner_of(request.worker_id),
            limit=min(max(request.max_jobs, 1), CLAIM_ITEMS_MAX),
            op_id=bound(op_id),
            kinds=KINDS,
            lease=visible if declared is None else None,
            heartbeat_interval=declared,
            region=region,
            plain=True,
            timed=True,
        )
        async with self.context.capacity.place(Load.LIGHT):
            await self.context.check_key()
            return await self.context.grants.deliver(claim(), named=op_id is not None)

    @_taking(Load.OWNER)
    async def update_job(self, request: pb.UpdateJobRequest, _: Call) -> pb.UpdateJobResponse:
        grant = await self.context.grants.open(request.task_token)
        if request.queue and request.queue != grant.job.spec.queue:
            raise Invalid(f"The job of this task token is not in queue {request.queue}.")
        seconds = request.visibility_timeout_seconds
        visible = timedelta(seconds=_visible(seconds))
        job = await self._registry.heartbeat(grant, lease=visible)
        left = job.lease.granted_for.total_seconds() if job.lease else 0.0
        return pb.UpdateJobResponse(cancel_requested=job.cancel is not None, lease_seconds=left)

    @_taking(Load.OWNER)
    async def complete_job(self, request: pb.CompleteJobRequest, _: Call) -> pb.CompleteJobResponse:
        grant = await self.context.grants.open(request.task_token)
        result = request.job_result
        if result is None:
            raise Invalid("There is no job_result: say how the job ended.")
        if result.job_id and result.job_id.lower() != grant.job_id.lower():
            raise Invalid(f"The task token is of another job than {result.job_id}.")
        await self._registry.complete(grant, _outcome(result))
        return pb.CompleteJobResponse()

    @_taking(Load.HEAVY)
    async def list_jobs(self, request: pb.ListJobsRequest, _: Call) -> pb.ListJobsResponse:
        principal = who.get()
        admission.overlook(principal, request.queue or None)
        size, page = request.page_size or PAGE_SIZE, request.page or 1
        if not 1 <= size <= PAGE_ITEMS_MAX:
            raise Invalid(f"page_size is from 1 to {PAGE_ITEMS_MAX}, not {size}.")
        if page < 1 or page * size > WALK_ITEMS_MAX:
            raise Invalid(
                f"page is from 1 on, and no deeper than {WALK_ITEMS_MAX:,} jobs: filter by queue and"
                " state, or list by cursor (holdfast.v1.RegistryService/ListJobs)."
            )
        states = states_of(request.state)
        counts = await self._registry.counts(request.queue or None)
        total = sum(n for state, n in counts.items() if not states or state in states)
        which = Filter(queue=request.queue or None, states=states)
        there = min(size, total - (page - 1) * size)
        jobs = await self._walk(which, there, (page - 1) * size) if there > 0 else []
        return pb.ListJobsResponse(
            jobs=[
                job_of(admission.shown(principal, job))
                for job in jobs
                if admission.sees(principal, job)
            ],
            last_page=max(1, ceil(total / size)),
        )

    async def _walk(self, which: Filter, size: int, skip: int) -> list[Job]:
        """So many jobs behind the first ones, as far as there are. Creation order only grows at its end,
        so a page stays what it was."""
        cursor: str | None = None
        found: list[Job] = []
        while True:
            wanted = min(WALK_ITEMS, skip or size - len(found))
            got = await self._registry.list_jobs(which, after=cursor, limit=wanted)
            if skip:
                skip -= len(got.jobs)
            else:
                found += got.jobs
                check_size(found)
            cursor = got.next
            if cursor is None or len(found) == size:
                return found

    @_taking(Load.LIGHT)
    async def get_job(self, request: pb.GetJobRequest, _: Call) -> pb.GetJobResponse:
        job = await self._find(request.job_id)
        return pb.GetJobResponse(job=job_of(admission.shown(who.get(), job)))

    @_taking(Load.LIGHT)
    async def cancel_job(self, request: pb.CancelJobRequest, _: Call) -> pb.CancelJobResponse:
        principal = who.get()
        job = await self._find(request.job_id)
        admission.command(principal, job, job.job_id)
        op_id = (
            f"cancel:{check_uuid(request.request_id, 'request_id')}" if request.request_id else None
        )
        after = await self._registry.cancel(
            job.job_id,
            actor=principal.actor,
            op_id=op_id,
            reason=request.reason or None,
            hard=request.hard,
        )
        return pb.CancelJobResponse(job=job_of(admission.shown(principal, after)))

    async def _find(self, job_id: str) -> Job:
        return await find(self.context, job_id)


async def find(context: Context, job_id: str) -> Job:
    """The job of this id, if the caller may know of it. An id that is no UUID names a job that was made
    with an id of its own; when there is none, it was a slip of the pen."""
    proper = bool(_UUID.match(job_id.lower()))
    known = job_id.lower() if proper else job_id
    [job] = await context.registry.get_many([known]) if known else [None]
    if job is not None and admission.sees(who.get(), job):
        return job
    if not proper:
        check_uuid(job_id, "job_id")
    raise NotFound(f"There is no job {job_id}.", job_id=job_id)


def _patience(deadline_ms: float | None, poll_seconds: float) -> float:
    """How long a poll waits: until shortly before its client gives up, so that the client gets an answer.
    A client that does not say when gets the same as ever."""
    if deadline_ms is None:
        return poll_seconds
    left = deadline_ms / 1000
    return min(max(left - max(POLL_MARGIN_SECONDS, left * POLL_MARGIN), 0.0), POLL_SECONDS_MAX)


def _visible(seconds: int) -> int:
    return min(seconds, VISIBILITY_SECONDS_MAX) if seconds > 0 else VISIBILITY_SECONDS


def _outcome(result: pb.JobResult) -> Outcome:
    if result.success and result.exit_code == 0:
        return Success(result={"exit_code": 0})
    return failure_of(result.error_message, result.exit_code)
