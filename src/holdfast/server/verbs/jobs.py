"""The verbs of jobs that need more than a check of the caller: enqueue and replay."""

from collections import Counter
from collections.abc import Sequence

from holdfast.core.access import Scope
from holdfast.core.errors import Conflict, Exhausted, Invalid
from holdfast.core.limits import BATCH_ITEMS_MAX, check_id
from holdfast.ports import EnqueuedJobs, JobRequest
from holdfast.server import admission
from holdfast.server.calls import current_principal
from holdfast.server.context import ServerContext
from holdfast.server.sizes import without_excess_data
from holdfast.server.verbs.access import (
    actor_of,
    all_made,
    check_readable,
    find,
    job_response,
    prepare,
    visible_conflict,
)
from holdfast.wire import requests
from holdfast.wire.responses import JobList, JobResponse


class JobVerbs:
    """What a submitter and an operator do to jobs."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._registry = context.registry

    async def enqueue(self, request: requests.Enqueue) -> JobList:
        principal = current_principal.get()
        if not 1 <= len(request.requests) <= BATCH_ITEMS_MAX:
            raise Invalid(f"From 1 to {BATCH_ITEMS_MAX} jobs may be enqueued at once.")
        for one in request.requests:
            admission.check_names(principal, one.job_id, one.spec)
        prepared_requests = [await prepare(self._context, one) for one in request.requests]
        await self._admit(prepared_requests)
        many = len(prepared_requests) > 1
        try:
            jobs = await self._make(prepared_requests, actor_of(request.actor), reuse=request.reuse)
        except Conflict as error:
            raise await visible_conflict(self._registry, error, many=many) from error
        readable = tuple(without_excess_data(check_readable(job, many=many) for job in jobs))
        return JobList(readable, tuple(sorted(jobs.existed)))

    async def _make(self, new: Sequence[JobRequest], actor: str, *, reuse: bool) -> EnqueuedJobs:
        if not reuse:
            return await self._registry.enqueue_many(new, actor=actor)
        return EnqueuedJobs(await self._context.outputs.submit(new, actor=actor))

    async def _admit(self, new: Sequence[JobRequest]) -> None:
        """Raise `Exhausted` if a queue would become too long. A repeat makes no job, so it is admitted."""
        for queue, count in Counter(check_id(one.spec.queue, "queue") for one in new).items():
            try:
                await self._context.queue_limit.admit(queue, count)
            except Exhausted:
                if not await all_made(self._registry, [one for one in new if one.spec.queue == queue]):
                    raise

    async def replay(self, request: requests.Replay) -> JobResponse:
        principal = current_principal.get()
        admission.require_scope(principal, Scope.ADMIN)
        job = await find(self._registry, request.job_id)
        admission.check_queue(principal, Scope.ADMIN, job.spec.queue, job.spec.region)
        await self._context.queue_limit.admit(job.spec.queue)
        return job_response(
            await self._registry.replay(
                request.job_id, actor=actor_of(request.actor), replay_id=request.op_id
            )
        )
