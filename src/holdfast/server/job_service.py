"""JobService of job.v1: the queue, for existing clients of that protocol."""

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
from holdfast.ports import Grant, JobFilter, JobRequest
from holdfast.server import admission
from holdfast.server.call_records import in_caller_trace
from holdfast.server.calls import Unauthenticated, current_principal
from holdfast.server.claim_waiters import claim_key_of, owner_of
from holdfast.server.context import ServerContext
from holdfast.server.failure_reports import failure_of
from holdfast.server.grants import bound_op_id
from holdfast.server.limits import CLAIM_ITEMS_MAX, OFFSET_ITEMS_MAX, POLL_SECONDS_MAX
from holdfast.server.sizes import check_size
from holdfast.server.verbs.access import all_made, check_readable, visible_conflict
from holdfast.wire.generated.job.v1 import job_connect
from holdfast.wire.generated.job.v1 import job_pb as pb
from holdfast.wire.job_params import KINDS, STATES, VISIBILITY_SECONDS, job_of, spec_of, states_of
from holdfast.wire.mapping import to_timestamp
from holdfast.wire.verbs import Load

Q = TypeVar("Q")
A = TypeVar("A")
Call = RequestContext[Any, Any]
Handler: TypeAlias = Callable[["JobService", Q, Call], Coroutine[Any, Any, A]]

PAGE_SIZE = 20
POLL_MARGIN_SECONDS, POLL_MARGIN = 0.5, 0.02
"""What a poll leaves of its client's deadline for the response: seconds, or a share if that is more."""

SKIP_ITEMS = 200
VISIBILITY_SECONDS_MAX = int(LEASE_MAX.total_seconds())
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


def check_uuid(text: str, what: str) -> str:
    """Return the UUID in lower case, or raise `Invalid`."""
    lower = text.lower()
    if not _UUID.match(lower):
        raise Invalid(f"{what} must be a UUID, such as 018f3c5e-7c1a-7e6b-9f30-2b5d0f3f8a11.")
    return lower


def _in_slot(load: Load) -> Callable[[Handler[Q, A]], Handler[Q, A]]:
    """Run a handler in a slot of this load."""

    def decorate(handler: Handler[Q, A]) -> Handler[Q, A]:
        @wraps(handler)
        async def in_slot(self: "JobService", request: Q, call: Call) -> A:
            async with self.context.capacity.slot(load):
                return await handler(self, request, call)

        return in_slot

    return decorate


class JobService(job_connect.JobService):
    """The handlers, one for each method."""

    def __init__(self, context: ServerContext) -> None:
        self.context = context
        self._registry = context.registry

    @_in_slot(Load.LIGHT)
    async def enqueue_job(self, request: pb.EnqueueJobRequest, _: Call) -> pb.EnqueueJobResponse:
        principal = current_principal.get()
        request_id = check_uuid(request.request_id, "request_id") if request.request_id else None
        spec = spec_of(request.job_params, request.queue)
        admission.check_queue(principal, Scope.SUBMIT, spec.queue, spec.region)
        new = JobRequest(spec=spec, request_id=request_id, submitted_by=admission.submitter(principal))
        try:
            await self.context.queue_limit.admit(check_id(spec.queue, "queue"))
        except Exhausted:
            if not await all_made(self._registry, [new]):
                raise
        try:
            job = check_readable(await self._registry.enqueue(in_caller_trace(new), actor=principal.actor))
        except Conflict as error:
            raise await visible_conflict(self._registry, error) from error
        return pb.EnqueueJobResponse(
            job_id=job.job_id, created_at=to_timestamp(job.created_at), state=STATES[job.state]
        )

    async def dequeue_job(
        self, request: pb.DequeueJobRequest, call: Call
    ) -> AsyncGenerator[pb.DequeueJobResponse, None]:
        """Return grants. Those that were not sent when the client disconnects are released."""
        context = self.context
        queue = request.queue or "default"
        region = admission.default_region(current_principal.get(), request.region or None)
        admission.check_queue(current_principal.get(), Scope.WORK, check_id(queue, "queue"), region)
        attempt = partial(self._claim, request, queue, region)
        key = claim_key_of((queue,), KINDS, region, None)
        seconds = _poll_seconds(call.timeout_ms, context.settings.poll_seconds)
        unsent = await context.claim_waiters.claim(key, attempt, seconds)
        named = bool(request.request_id)
        try:
            unsent = await context.grants.seal(unsent)
            await context.check_key()
            while unsent:
                grant = unsent[0]
                if await context.grants.client_left():
                    return
                await context.check_key()
                response = pb.DequeueJobResponse(
                    job=job_of(grant.job),
                    task_token=grant.task_token or "",
                    attempt=grant.attempt,
                    fencing_token=grant.fencing_token,
                    lease_seconds=grant.lease_seconds,
                )
                del unsent[0]
                yield response
        except Unauthenticated:
            named = False  # without a valid key, the client cannot repeat the claim
            raise
        finally:
            context.grants.release_undelivered(unsent, named=named)

    async def _claim(self, request: pb.DequeueJobRequest, queue: str, region: str | None) -> list[Grant]:
        seconds = request.visibility_timeout_seconds
        interval = request.heartbeat_interval_seconds
        op_id = f"dequeue:{check_uuid(request.request_id, 'request_id')}" if request.request_id else None
        declared = timedelta(seconds=interval) if interval > 0 else None
        visible = timedelta(seconds=_visibility(seconds))
        claim = partial(
            self._registry.claim,
            [queue],
            owner=owner_of(request.worker_id),
            limit=min(max(request.max_jobs, 1), CLAIM_ITEMS_MAX),
            op_id=bound_op_id(op_id),
            kinds=KINDS,
            lease=visible if declared is None else None,
            heartbeat_interval=declared,
            region=region,
            plain=True,
            timed=True,
        )
        async with self.context.capacity.slot(Load.LIGHT):
            await self.context.check_key()
            return await self.context.grants.deliver(claim(), named=op_id is not None)

    @_in_slot(Load.OWNER)
    async def update_job(self, request: pb.UpdateJobRequest, _: Call) -> pb.UpdateJobResponse:
        grant = await self.context.grants.open(request.task_token)
        if request.queue and request.queue != grant.job.spec.queue:
            raise Invalid(f"The job of this task token is not in queue {request.queue}.")
        seconds = request.visibility_timeout_seconds
        visible = timedelta(seconds=_visibility(seconds))
        job = await self._registry.heartbeat(grant, lease=visible)
        left = job.lease.granted_for.total_seconds() if job.lease else 0.0
        return pb.UpdateJobResponse(cancel_requested=job.cancel is not None, lease_seconds=left)

    @_in_slot(Load.OWNER)
    async def complete_job(self, request: pb.CompleteJobRequest, _: Call) -> pb.CompleteJobResponse:
        grant = await self.context.grants.open(request.task_token)
        result = request.job_result
        if result is None:
            raise Invalid("There is no job_result: send how the job ended.")
        if result.job_id and result.job_id.lower() != grant.job_id.lower():
            raise Invalid(f"The task token is of another job than {result.job_id}.")
        await self._registry.complete(grant, _outcome(result))
        return pb.CompleteJobResponse()

    @_in_slot(Load.HEAVY)
    async def list_jobs(self, request: pb.ListJobsRequest, _: Call) -> pb.ListJobsResponse:
        principal = current_principal.get()
        admission.check_may_count(principal, request.queue or None)
        size, page = request.page_size or PAGE_SIZE, request.page or 1
        if not 1 <= size <= PAGE_ITEMS_MAX:
            raise Invalid(f"page_size is from 1 to {PAGE_ITEMS_MAX}, not {size}.")
        if page < 1 or page * size > OFFSET_ITEMS_MAX:
            raise Invalid(
                f"page is at least 1, and page * page_size at most {OFFSET_ITEMS_MAX:,}: filter by queue and"
                " state, or list by cursor (holdfast.v1.RegistryService/ListJobs)."
            )
        states = states_of(request.state)
        counts = await self._registry.counts(request.queue or None)
        total = sum(n for state, n in counts.items() if not states or state in states)
        which = JobFilter(queue=request.queue or None, states=states)
        left = min(size, total - (page - 1) * size)
        jobs = await self._list_from(which, left, (page - 1) * size) if left > 0 else []
        return pb.ListJobsResponse(
            jobs=[
                job_of(admission.visible_job(principal, job))
                for job in jobs
                if admission.sees(principal, job)
            ],
            last_page=max(1, ceil(total / size)),
        )

    async def _list_from(self, which: JobFilter, size: int, skip: int) -> list[Job]:
        """Return up to `size` jobs after the first `skip`. New jobs come last: a page does not change."""
        cursor: str | None = None
        found: list[Job] = []
        while True:
            wanted = min(SKIP_ITEMS, skip or size - len(found))
            got = await self._registry.list_jobs(which, after=cursor, limit=wanted)
            if skip:
                skip -= len(got.jobs)
            else:
                found += got.jobs
                check_size(found)
            cursor = got.next
            if cursor is None or len(found) == size:
                return found

    @_in_slot(Load.LIGHT)
    async def get_job(self, request: pb.GetJobRequest, _: Call) -> pb.GetJobResponse:
        job = await self._find(request.job_id)
        return pb.GetJobResponse(job=job_of(admission.visible_job(current_principal.get(), job)))

    @_in_slot(Load.LIGHT)
    async def cancel_job(self, request: pb.CancelJobRequest, _: Call) -> pb.CancelJobResponse:
        principal = current_principal.get()
        job = await self._find(request.job_id)
        admission.find_cancellable(principal, job, job.job_id)
        op_id = f"cancel:{check_uuid(request.request_id, 'request_id')}" if request.request_id else None
        after = await self._registry.cancel(
            job.job_id,
            actor=principal.actor,
            op_id=op_id,
            reason=request.reason or None,
            hard=request.hard,
        )
        return pb.CancelJobResponse(job=job_of(admission.visible_job(principal, after)))

    async def _find(self, job_id: str) -> Job:
        return await find(self.context, job_id)


async def find(context: ServerContext, job_id: str) -> Job:
    """Return the job of this id, if the caller may know of it. An id that is not a UUID was chosen by its
    submitter outside of job.v1; when there is no such job, it is `Invalid`, as a typing error."""
    is_uuid = bool(_UUID.match(job_id.lower()))
    known_id = job_id.lower() if is_uuid else job_id
    [job] = await context.registry.status_many([known_id]) if known_id else [None]
    if job is not None and admission.sees(current_principal.get(), job):
        return job
    if not is_uuid:
        check_uuid(job_id, "job_id")
    raise NotFound(f"There is no job {job_id}.", job_id=job_id)


def _poll_seconds(deadline_ms: float | None, poll_seconds: float) -> float:
    """Return how long a poll waits: until shortly before the deadline of its client, so that the client
    gets a response; without a deadline, for the configured time."""
    if deadline_ms is None:
        return poll_seconds
    left = deadline_ms / 1000
    return min(max(left - max(POLL_MARGIN_SECONDS, left * POLL_MARGIN), 0.0), POLL_SECONDS_MAX)


def _visibility(seconds: int) -> int:
    return min(seconds, VISIBILITY_SECONDS_MAX) if seconds > 0 else VISIBILITY_SECONDS


def _outcome(result: pb.JobResult) -> Outcome:
    if result.success and result.exit_code == 0:
        return Success(result={"exit_code": 0})
    return failure_of(result.error_message, result.exit_code)
