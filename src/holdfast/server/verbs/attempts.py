"""The verbs of attempts that need more than a check of the caller: claim, acquire, publish, complete."""

from collections import Counter
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

import msgspec

from holdfast.core.access import Scope
from holdfast.core.catalogue import EventClass
from holdfast.core.errors import Conflict, HoldfastError, Invalid
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.limits import BATCH_ITEMS_MAX, EVENTS_PER_PUBLISH_MAX, check_id
from holdfast.ports import Completion, Grant, JobRequest
from holdfast.registry.job_requests import JOB_ID_MISMATCH
from holdfast.server import admission
from holdfast.server.admission import without_hidden_holder
from holdfast.server.calls import current_principal
from holdfast.server.claim_waiters import check_claim, claim_key, claim_region, owner_of
from holdfast.server.context import ServerContext
from holdfast.server.grants import bound_op_id
from holdfast.server.limits import CLAIM_ITEMS_MAX, COMPLETIONS_PER_TOKEN_MAX, WAIT_SECONDS_MAX
from holdfast.server.sizes import without_excess_data
from holdfast.server.verbs.access import TAKEN, job_response, prepare, requested_id
from holdfast.server.verbs.follow_ups import follow_ups_of
from holdfast.wire import requests
from holdfast.wire.responses import BatchResponse, GrantList, GrantResponse, JobResponse
from holdfast.wire.verbs import Load

TOO_MANY_COMPLETIONS = (
    f"At most {COMPLETIONS_PER_TOKEN_MAX} different completions of one attempt are allowed in one call."
)


class AttemptVerbs:
    """What the owner of an attempt does, from claim to completion."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._registry = context.registry

    async def claim(self, request: requests.Claim) -> GrantList:
        check_claim(request)
        seconds = min(max(request.wait_seconds, 0.0), WAIT_SECONDS_MAX)
        grants = await self._context.claim_waiters.claim(
            claim_key(request), partial(self._claim, request), seconds
        )
        named = request.op_id is not None
        return GrantList(tuple(await self._context.grants.hand_over(grants, named=named)))

    async def _claim(self, request: requests.Claim) -> list[Grant]:
        async with self._context.capacity.slot(Load.LIGHT):
            await self._context.check_key()
            return await self._context.grants.deliver(self._claimed(request), named=request.op_id is not None)

    def _claimed(self, request: requests.Claim) -> Coroutine[Any, Any, list[Grant]]:
        return self._registry.claim(
            request.queues,
            owner=owner_of(check_id(request.owner, "owner")),
            limit=min(1 if request.limit is None else request.limit, CLAIM_ITEMS_MAX),
            op_id=bound_op_id(request.op_id),
            kinds=request.kinds,
            lease=request.lease,
            heartbeat_interval=request.heartbeat_interval,
            region=claim_region(request),
            executor=request.executor,
            timed=not request.keeps_timeout,
        )

    async def acquire(self, request: requests.Acquire) -> GrantResponse:
        return await self.acquire_under(request, bound_op_id(request.op_id))

    async def acquire_under(self, request: requests.Acquire, op_id: str | None) -> GrantResponse:
        """Acquire under this op_id, as it is stored with the grant."""
        principal = current_principal.get()
        admission.require_scope(principal, Scope.WORK)
        check_id(request.owner, "owner")
        create = None if request.create is None else await prepare(self._context, request.create)
        if create is not None and requested_id(create) != request.job_id:
            raise Invalid(JOB_ID_MISMATCH)  # before the job is read: it may be another caller's
        [job] = await self._registry.status_many([request.job_id]) if request.job_id else [None]
        if create is not None and (job is None or not admission.sees(principal, job)):
            admission.check_names(principal, create.job_id, create.spec)
            if job is not None:
                raise Conflict(TAKEN)
            spec = create.spec
            await self._context.queue_limit.admit(check_id(spec.queue, "queue"))
        else:
            spec, create = admission.find(principal, job, request.job_id).spec, None
        admission.check_queue(principal, Scope.WORK, spec.queue, spec.region)
        named = request.op_id is not None
        try:
            granted = await self._context.grants.deliver(self._acquire(request, op_id, create), named=named)
        except Conflict as error:
            error.message = await without_hidden_holder(self._registry, spec.lock, error.message)
            raise
        [sealed] = await self._context.grants.hand_over(granted, named=named)
        return GrantResponse(sealed)

    async def _acquire(
        self, request: requests.Acquire, op_id: str | None, create: JobRequest | None
    ) -> list[Grant]:
        return [
            await self._registry.acquire(
                request.job_id,
                owner=owner_of(request.owner),
                op_id=op_id,
                lease=request.lease,
                heartbeat_interval=request.heartbeat_interval,
                region=request.region,
                executor=request.executor,
                create=create,
                timed=not request.keeps_timeout,
            )
        ]

    async def publish(self, request: requests.Publish) -> JobResponse:
        grant = await self._context.grants.open(request.task_token)
        if len(request.events) > EVENTS_PER_PUBLISH_MAX:
            reason = f"At most {EVENTS_PER_PUBLISH_MAX:,} events may be published at once."
            await self._registry.refuse_publish(grant, reason)
            raise Invalid(reason)
        job = await self._registry.publish(grant, list(map(_worker_event, request.events)))
        # Of a job that has ended, the caller is no longer the owner.
        return JobResponse(job) if job.leased else job_response(job)

    async def complete(self, request: requests.Complete) -> BatchResponse:
        """Complete each on its own: an error of one does not affect the others."""
        if len(request.completions) > BATCH_ITEMS_MAX:
            raise Invalid(f"At most {BATCH_ITEMS_MAX} completions are allowed at once.")
        results: dict[int, Job | HoldfastError] = {}
        good: dict[int, Completion] = {}
        firsts = _firsts(request.completions)
        for n, one in enumerate(request.completions):
            try:
                if firsts[n] == n:
                    good[n] = await self._completion(one)
            except HoldfastError as error:
                results[n] = error
        ended = await self._registry.complete_many(list(good.values()))
        results |= dict(zip(good, ended, strict=True))
        each = (Invalid(TOO_MANY_COMPLETIONS) if first is None else results[first] for first in firsts)
        return BatchResponse(tuple(without_excess_data(each)))

    async def _completion(self, one: requests.AttemptCompletion | HoldfastError) -> Completion:
        if isinstance(one, HoldfastError):
            raise one
        grant = await self._context.grants.open(one.task_token)
        if one.outcome is None:
            raise Invalid("A completion needs exactly one outcome: success, failure or stopped.")
        follow_ups = await follow_ups_of(self._context, grant, one.follow_ups)
        return Completion(grant, one.outcome, one.op_id, one.compensated, follow_ups)


def _firsts(completions: Sequence[requests.AttemptCompletion | HoldfastError]) -> list[int | None]:
    """Return for each completion the index of the first equal one, which is decided once; None for one that
    exceeds the number of different completions of an attempt."""
    known: dict[bytes, int] = {}
    different: Counter[str] = Counter()
    firsts: list[int | None] = []
    for n, one in enumerate(completions):
        if isinstance(one, HoldfastError):
            firsts.append(n)
            continue
        encoded = msgspec.json.encode(one)
        if encoded not in known and different[one.task_token] < COMPLETIONS_PER_TOKEN_MAX:
            different[one.task_token] += 1
            known[encoded] = n
        firsts.append(known.get(encoded))
    return firsts


def _worker_event(event: Event) -> Event:
    """Return the event with the fields that a worker may set. The registry sets the others."""
    return Event(
        event.event_type,
        EventClass.WORKER,
        event.occurred_at,
        attributes=event.attributes,
        sequence=event.sequence,
        end_sequence=event.end_sequence,
        stream=event.stream,
        data=event.data,
    )
