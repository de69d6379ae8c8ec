"""RegistryService of holdfast.v1, first part: making jobs, owning them, ending them."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from connectrpc.request import RequestContext
from msgspec.structs import replace

from holdfast.core.access import Scope
from holdfast.core.catalogue import EventClass
from holdfast.core.errors import Conflict, Denied, Exhausted, HoldfastError, Invalid
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle import HandoffStep, Outcome, Stopped, Success
from holdfast.core.limits import BATCH_ITEMS_MAX, check_id
from holdfast.core.naming import derived_id
from holdfast.ports import Completion, Grant, Registry, Request
from holdfast.server import admission
from holdfast.server.calls import who
from holdfast.server.claims import enter, lane, region
from holdfast.server.context import Context
from holdfast.server.grants import bound
from holdfast.server.limits import CLAIM_ITEMS_MAX, WAIT_SECONDS_MAX
from holdfast.server.locks import discreet
from holdfast.wire.errors import detail
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.mapping import json_given, optional, span
from holdfast.wire.values import EVENT, FAILURE, GRANT, JOB, PROGRESS, REQUEST, AJob, AnError

Call = RequestContext[Any, Any]


async def known(registry: Registry, asked: Sequence[Request]) -> bool:
    """Whether all of these were asked for before, and have made their jobs."""
    ids = [
        derived_id(one.spec.queue, one.request_id) if one.request_id is not None else one.job_id
        for one in asked
    ]
    named = [one for one in ids if one is not None]
    return len(named) == len(ids) and None not in await registry.get_many(named)


def actor(said: str) -> str:
    """Who acts: what the key says, or without keys what the caller says."""
    principal = who.get()
    return principal.actor if principal.key_id is not None or not said else said


def answer(job: Job) -> pb.JobResponse:
    """The job, as whoever acted on it may see it."""
    return pb.JobResponse(job=JOB.encode(admission.shown(who.get(), job)))


def held(job: Job) -> pb.JobResponse:
    """The job, for whoever holds it."""
    return pb.JobResponse(job=JOB.encode(job))


class Owning:
    """What changes jobs."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._registry = context.registry

    async def enqueue(self, request: pb.EnqueueRequest, _: Call) -> pb.EnqueueResponse:
        principal = who.get()
        if not 1 <= len(request.requests) <= BATCH_ITEMS_MAX:
            raise Invalid(f"From 1 to {BATCH_ITEMS_MAX} jobs are taken at once.")
        asked = [self._asked(one) for one in request.requests]
        await self._admit(asked)
        jobs = await self._registry.enqueue_many(asked, actor=actor(request.actor))
        return pb.EnqueueResponse(jobs=[JOB.encode(admission.shown(principal, j)) for j in jobs])

    async def _admit(self, asked: Sequence[Request]) -> None:
        """Refuse what would make a queue too long. A repeat makes no job, so it is let in."""
        for queue, count in Counter(check_id(one.spec.queue, "queue") for one in asked).items():
            try:
                await self._context.depth.admit(queue, count)
            except Exhausted:
                if not await known(
                    self._registry, [one for one in asked if one.spec.queue == queue]
                ):
                    raise

    def _asked(self, request: pb.Request) -> Request:
        principal, asked = who.get(), REQUEST.decode(request)
        admission.enter(principal, Scope.SUBMIT, asked.spec.queue, asked.spec.region)
        if principal.key_id is not None:
            asked = replace(asked, submitted_by=admission.submitter(principal))
            if asked.spec.replayed_from or asked.spec.resumed_from:
                raise Denied("A job says itself what it repeats: use Replay.")
        return asked

    async def handoff(self, request: pb.HandoffRequest, _: Call) -> pb.JobResponse:
        await self._command(request.job_id)
        try:
            step = HandoffStep(request.step)
        except ValueError:
            raise Invalid("step is one of begin, done and refused.") from None
        return answer(
            await self._registry.handoff(
                request.job_id,
                step,
                actor=actor(request.actor),
                op_id=optional(request, "op_id"),
                handle=dict(request.handle) or None,
                error=optional(request, "error"),
            )
        )

    async def replay(self, request: pb.ReplayRequest, _: Call) -> pb.JobResponse:
        principal = who.get()
        admission.demand(principal, Scope.ADMIN)
        job = await self._find(request.job_id)
        admission.enter(principal, Scope.ADMIN, job.spec.queue, job.spec.region)
        await self._context.depth.admit(job.spec.queue)
        return answer(
            await self._registry.replay(
                request.job_id, actor=actor(request.actor), replay_id=optional(request, "op_id")
            )
        )

    async def claim(self, request: pb.ClaimRequest, _: Call) -> pb.ClaimResponse:
        enter(request)
        seconds = min(max(request.wait_seconds, 0.0), WAIT_SECONDS_MAX)
        ask = partial(self._ask, request)
        grants = await self._context.lanes.claim(lane(request), ask, seconds)
        named = request.has_field("op_id")
        sealed = await self._context.grants.hand_over(grants, named=named)
        return pb.ClaimResponse(grants=[GRANT.encode(grant) for grant in sealed])

    async def _ask(self, request: pb.ClaimRequest) -> list[Grant]:
        limit = optional(request, "limit")
        claim = self._registry.claim(
            list(request.queues),
            owner=request.owner,
            limit=min(1 if limit is None else limit, CLAIM_ITEMS_MAX),
            op_id=bound(optional(request, "op_id")),
            kinds=tuple(request.kinds),
            lease=span(request.lease) if request.lease else None,
            heartbeat_interval=(
                span(request.heartbeat_interval) if request.heartbeat_interval else None
            ),
            region=region(request),
            executor=optional(request, "executor"),
        )
        return await self._context.grants.deliver(claim, named=request.has_field("op_id"))

    async def acquire(self, request: pb.AcquireRequest, _: Call) -> pb.AcquireResponse:
        principal = who.get()
        admission.demand(principal, Scope.WORK)
        check_id(request.owner, "owner")
        create = self._asked(request.create) if request.create else None
        [job] = await self._registry.get_many([request.job_id]) if request.job_id else [None]
        if job is None and create is not None:
            spec = create.spec
            await self._context.depth.admit(check_id(spec.queue, "queue"))
        else:
            spec = admission.find(principal, job, request.job_id).spec
        admission.enter(principal, Scope.WORK, spec.queue, spec.region)
        try:
            granted = await self._context.grants.deliver(
                self._acquire(request, create), named=request.has_field("op_id")
            )
        except Conflict as error:
            error.message = await discreet(self._registry, spec.lock, error.message)
            raise
        named = request.has_field("op_id")
        [sealed] = await self._context.grants.hand_over(granted, named=named)
        return pb.AcquireResponse(grant=GRANT.encode(sealed))

    async def _acquire(self, request: pb.AcquireRequest, create: Request | None) -> list[Grant]:
        return [
            await self._registry.acquire(
                request.job_id,
                owner=request.owner,
                op_id=bound(optional(request, "op_id")),
                lease=span(request.lease) if request.lease else None,
                heartbeat_interval=(
                    span(request.heartbeat_interval) if request.heartbeat_interval else None
                ),
                region=optional(request, "region"),
                executor=optional(request, "executor"),
                create=create,
            )
        ]

    async def heartbeat(self, request: pb.HeartbeatRequest, _: Call) -> pb.JobResponse:
        grant = await self._context.grants.open(request.task_token)
        kept = optional(request, "checkpoint")
        return held(
            await self._registry.heartbeat(
                grant,
                lease=span(request.lease) if request.lease else None,
                progress=PROGRESS.decode(request.progress) if request.progress else None,
                checkpoint=None if kept is None else json_given(kept, "checkpoint"),
            )
        )

    async def publish(self, request: pb.PublishRequest, _: Call) -> pb.JobResponse:
        grant = await self._context.grants.open(request.task_token)
        events = [_said_by_a_worker(EVENT.decode(event)) for event in request.events]
        return held(await self._registry.publish(grant, events))

    async def aggregate(self, request: pb.AggregateRequest, _: Call) -> pb.JobResponse:
        grant = await self._context.grants.open(request.task_token)
        return held(await self._registry.aggregate(grant, op_id=optional(request, "op_id")))

    async def complete(self, request: pb.CompleteRequest, _: Call) -> pb.CompleteResponse:
        """Each is answered on its own: what is wrong with one leaves the others as they are."""
        if len(request.completions) > BATCH_ITEMS_MAX:
            raise Invalid(f"At most {BATCH_ITEMS_MAX} completions are taken at once.")
        answers: dict[int, Job | HoldfastError] = {}
        good: dict[int, Completion] = {}
        for n, one in enumerate(request.completions):
            try:
                good[n] = await self._completion(one)
            except HoldfastError as error:
                answers[n] = error
        ended = await self._registry.complete_many(list(good.values()))
        answers |= dict(zip(good, ended, strict=True))
        return pb.CompleteResponse(answers=[_said(answers[n]) for n in sorted(answers)])

    async def _completion(self, one: pb.Completion) -> Completion:
        grant = await self._context.grants.open(one.task_token)
        follow_ups = tuple(REQUEST.decode(request) for request in one.follow_ups)
        for request in follow_ups:
            spec = request.spec
            if not who.get().may(Scope.WORK, spec.queue, spec.region):
                raise Denied(f"This key does not reach queue {spec.queue} for a follow-up.")
        return Completion(
            grant, _outcome(one), optional(one, "op_id"), optional(one, "compensated"), follow_ups
        )

    async def release(self, request: pb.ReleaseRequest, _: Call) -> pb.JobResponse:
        grant = await self._context.grants.open(request.task_token)
        return held(
            await self._registry.release(
                grant,
                op_id=optional(request, "op_id"),
                reason=optional(request, "reason"),
                delay=span(request.delay) if request.delay else None,
                undelivered=request.undelivered,
            )
        )

    async def cancel(self, request: pb.CancelRequest, _: Call) -> pb.JobResponse:
        await self._command(request.job_id)
        return answer(
            await self._registry.cancel(
                request.job_id,
                actor=actor(request.actor),
                op_id=optional(request, "op_id"),
                reason=optional(request, "reason"),
                hard=request.hard,
            )
        )

    async def _find(self, job_id: str) -> Job:
        [job] = await self._registry.get_many([job_id]) if job_id else [None]
        return admission.find(who.get(), job, job_id)

    async def _command(self, job_id: str) -> None:
        job = await self._find(job_id)
        admission.command(who.get(), job, job_id)


def _said_by_a_worker(event: Event) -> Event:
    """What of an event is a worker's to say. The rest is for the registry, which would take its word."""
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


def _outcome(one: pb.Completion) -> Outcome:
    match one.outcome.value if one.outcome else None:
        case pb.Success() as success:
            text = optional(success, "result")
            return Success(result=None if text is None else json_given(text, "result"))
        case pb.Failure() as failure:
            return FAILURE.decode(failure)
        case pb.Stopped() as stopped:
            return Stopped(reason=optional(stopped, "reason"))
    raise Invalid("A completion says how it ended: success, failure or stopped.")


def _said(ended: Job | HoldfastError) -> pb.Answer:
    if isinstance(ended, HoldfastError):
        return pb.Answer(answer=AnError("error", detail(ended)))
    return pb.Answer(answer=AJob("job", JOB.encode(ended)))
