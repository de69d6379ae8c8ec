"""The verbs, first part: making jobs, owning them, ending them."""

from collections import Counter
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.core.access import Scope
from holdfast.core.catalogue import EventClass
from holdfast.core.errors import Conflict, Exhausted, HoldfastError, Invalid
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.limits import BATCH_ITEMS_MAX, EVENTS_PER_PUBLISH_MAX, check_id
from holdfast.core.naming import derived_id
from holdfast.ports import Completion, Grant, Registry, Request
from holdfast.registry.requests import OTHER_JOB
from holdfast.server import admission
from holdfast.server.calls import who
from holdfast.server.claims import enter, lane, owner_of, region
from holdfast.server.context import Context
from holdfast.server.follow_ups import follow_ups_of
from holdfast.server.grants import bound
from holdfast.server.limits import CLAIM_ITEMS_MAX, ENDINGS_PER_TOKEN_MAX, WAIT_SECONDS_MAX
from holdfast.server.locks import discreet
from holdfast.server.sizes import fitting
from holdfast.server.tracing import tied
from holdfast.wire import asks
from holdfast.wire.answers import Acquired, Granted, OfEach, OfJob, OfJobs
from holdfast.wire.verbs import Load

TAKEN = "A request_id or job_id is taken already, by somebody else."
OFTEN = f"Of one attempt at most {ENDINGS_PER_TOKEN_MAX} different endings are taken in one call."
BESIDE = " Others that were asked for with it may have been made."


def _id_of(asked: Request) -> str | None:
    """The id that the job will have, if the request says so."""
    if asked.request_id is None:
        return asked.job_id
    return derived_id(asked.spec.queue, asked.request_id)


async def known(registry: Registry, asked: Sequence[Request]) -> bool:
    """Whether all of these were asked for before, and have made their jobs."""
    ids = list(map(_id_of, asked))
    named = [one for one in ids if one is not None]
    return len(named) == len(ids) and None not in await registry.get_many(named)


async def in_reach(registry: Registry, error: Conflict, *, many: bool = False) -> Conflict:
    """The refusal as the caller may hear it: of a job that it may not read, only that its id is taken."""
    [job] = await registry.get_many([error.job_id]) if error.job_id else [None]
    known = error.job_id is None or (job is not None and admission.reads(who.get(), job))
    return error if known else _taken(many=many)


def made(job: Job, *, many: bool = False) -> Job:
    """The job that an enqueue returns. A repeat may be of one that another key has asked for: to be given
    it would say that it was asked for in the same words, which only those may know who may read it."""
    if not admission.reads(who.get(), job):
        raise _taken(many=many)
    return job


def _taken(*, many: bool) -> Conflict:
    return Conflict(TAKEN + BESIDE if many else TAKEN)


async def find(registry: Registry, job_id: str) -> Job:
    """The job of this id, if the caller may know of it."""
    [job] = await registry.get_many([job_id]) if job_id else [None]
    return admission.find(who.get(), job, job_id)


def actor(said: str) -> str:
    """Who acts: what the key says, or without keys what the caller says."""
    principal = who.get()
    return principal.actor if principal.key_id is not None or not said else said


def shown(job: Job) -> OfJob:
    """The job, as whoever acted on it may see it."""
    return OfJob(admission.shown(who.get(), job))


class Owning:
    """What changes jobs."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._registry = context.registry

    async def enqueue(self, ask: asks.Enqueue) -> OfJobs:
        principal = who.get()
        if not 1 <= len(ask.requests) <= BATCH_ITEMS_MAX:
            raise Invalid(f"From 1 to {BATCH_ITEMS_MAX} jobs are taken at once.")
        for one in ask.requests:
            admission.check_names(principal, one.job_id, one.spec)
        asked = [await self._asked(one) for one in ask.requests]
        await self._admit(asked)
        many = len(asked) > 1
        try:
            jobs = await self._make(asked, actor(ask.actor), reuse=ask.reuse)
        except Conflict as error:
            raise await in_reach(self._registry, error, many=many) from error
        return OfJobs(tuple(fitting(made(job, many=many) for job in jobs)))

    async def _make(self, asked: Sequence[Request], actor: str, *, reuse: bool) -> Sequence[Job]:
        if not reuse:
            return await self._registry.enqueue_many(asked, actor=actor)
        return await self._context.checking.submit(asked, actor=actor)

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

    async def _asked(self, asked: Request) -> Request:
        principal = who.get()
        admission.enter(principal, Scope.SUBMIT, asked.spec.queue, asked.spec.region)
        if principal.key_id is not None:
            asked = replace(asked, submitted_by=admission.submitter(principal))
            admission.check_new(principal, asked.spec)
        return tied(await self._context.checking.placed(asked))

    async def handoff(self, ask: asks.Handoff) -> OfJob:
        await self._command(ask.job_id)
        return shown(
            await self._registry.handoff(
                ask.job_id,
                ask.step,
                actor=actor(ask.actor),
                op_id=ask.op_id,
                handle=ask.handle or None,
                error=ask.error,
            )
        )

    async def replay(self, ask: asks.Replay) -> OfJob:
        principal = who.get()
        admission.demand(principal, Scope.ADMIN)
        job = await find(self._registry, ask.job_id)
        admission.enter(principal, Scope.ADMIN, job.spec.queue, job.spec.region)
        await self._context.depth.admit(job.spec.queue)
        return shown(
            await self._registry.replay(ask.job_id, actor=actor(ask.actor), replay_id=ask.op_id)
        )

    async def claim(self, ask: asks.Claim) -> Granted:
        enter(ask)
        seconds = min(max(ask.wait_seconds, 0.0), WAIT_SECONDS_MAX)
        grants = await self._context.lanes.claim(lane(ask), partial(self._claim, ask), seconds)
        named = ask.op_id is not None
        return Granted(tuple(await self._context.grants.hand_over(grants, named=named)))

    async def _claim(self, ask: asks.Claim) -> list[Grant]:
        async with self._context.capacity.place(Load.LIGHT):
            await self._context.check_key()
            return await self._context.grants.deliver(
                self._claimed(ask), named=ask.op_id is not None
            )

    def _claimed(self, ask: asks.Claim) -> Coroutine[Any, Any, list[Grant]]:
        return self._registry.claim(
            ask.queues,
            owner=owner_of(check_id(ask.owner, "owner")),
            limit=min(1 if ask.limit is None else ask.limit, CLAIM_ITEMS_MAX),
            op_id=bound(ask.op_id),
            kinds=ask.kinds,
            lease=ask.lease,
            heartbeat_interval=ask.heartbeat_interval,
            region=region(ask),
            executor=ask.executor,
            timed=not ask.keeps_timeout,
        )

    async def acquire(self, ask: asks.Acquire) -> Acquired:
        return await self.acquired(ask, bound(ask.op_id))

    async def acquired(self, ask: asks.Acquire, op_id: str | None) -> Acquired:
        """Acquire under the name that is kept with the grant."""
        principal = who.get()
        admission.demand(principal, Scope.WORK)
        check_id(ask.owner, "owner")
        create = None if ask.create is None else await self._asked(ask.create)
        if create is not None and _id_of(create) != ask.job_id:
            raise Invalid(OTHER_JOB)  # before it is looked for: it may be of others
        [job] = await self._registry.get_many([ask.job_id]) if ask.job_id else [None]
        if create is not None and (job is None or not admission.sees(principal, job)):
            admission.check_names(principal, create.job_id, create.spec)
            if job is not None:
                raise Conflict(TAKEN)
            spec = create.spec
            await self._context.depth.admit(check_id(spec.queue, "queue"))
        else:
            spec, create = admission.find(principal, job, ask.job_id).spec, None
        admission.enter(principal, Scope.WORK, spec.queue, spec.region)
        named = ask.op_id is not None
        try:
            granted = await self._context.grants.deliver(
                self._acquire(ask, op_id, create), named=named
            )
        except Conflict as error:
            error.message = await discreet(self._registry, spec.lock, error.message)
            raise
        [sealed] = await self._context.grants.hand_over(granted, named=named)
        return Acquired(sealed)

    async def _acquire(
        self, ask: asks.Acquire, op_id: str | None, create: Request | None
    ) -> list[Grant]:
        return [
            await self._registry.acquire(
                ask.job_id,
                owner=owner_of(ask.owner),
                op_id=op_id,
                lease=ask.lease,
                heartbeat_interval=ask.heartbeat_interval,
                region=ask.region,
                executor=ask.executor,
                create=create,
                timed=not ask.keeps_timeout,
            )
        ]

    async def heartbeat(self, ask: asks.Heartbeat) -> OfJob:
        grant = await self._context.grants.open(ask.task_token)
        return OfJob(
            await self._registry.heartbeat(
                grant, lease=ask.lease, progress=ask.progress, checkpoint=ask.checkpoint
            )
        )

    async def publish(self, ask: asks.Publish) -> OfJob:
        grant = await self._context.grants.open(ask.task_token)
        if len(ask.events) > EVENTS_PER_PUBLISH_MAX:
            words = f"At most {EVENTS_PER_PUBLISH_MAX:,} events are taken at once."
            await self._registry.refuse(grant, words)
            raise Invalid(words)
        job = await self._registry.publish(grant, list(map(_said_by_a_worker, ask.events)))
        return OfJob(job) if job.leased else shown(job)  # after the end, nobody owns it

    async def aggregate(self, ask: asks.Aggregate) -> OfJob:
        grant = await self._context.grants.open(ask.task_token)
        return OfJob(await self._registry.aggregate(grant, op_id=ask.op_id))

    async def complete(self, ask: asks.Complete) -> OfEach:
        """Each is answered on its own: what is wrong with one leaves the others as they are."""
        if len(ask.completions) > BATCH_ITEMS_MAX:
            raise Invalid(f"At most {BATCH_ITEMS_MAX} completions are taken at once.")
        answers: dict[int, Job | HoldfastError] = {}
        good: dict[int, Completion] = {}
        firsts = _firsts(ask.completions)
        for n, one in enumerate(ask.completions):
            try:
                if firsts[n] == n:
                    good[n] = await self._completion(one)
            except HoldfastError as error:
                answers[n] = error
        ended = await self._registry.complete_many(list(good.values()))
        answers |= dict(zip(good, ended, strict=True))
        each = (Invalid(OFTEN) if first is None else answers[first] for first in firsts)
        return OfEach(tuple(fitting(each)))

    async def _completion(self, one: asks.Ended | HoldfastError) -> Completion:
        if isinstance(one, HoldfastError):
            raise one
        grant = await self._context.grants.open(one.task_token)
        if one.outcome is None:
            raise Invalid("A completion says how it ended: success, failure or stopped.")
        follow_ups = await follow_ups_of(self._context, grant, one.follow_ups)
        return Completion(grant, one.outcome, one.op_id, one.compensated, follow_ups)

    async def release(self, ask: asks.Release) -> OfJob:
        grant = await self._context.grants.open(ask.task_token)
        return OfJob(
            await self._registry.release(
                grant,
                op_id=ask.op_id,
                reason=ask.reason,
                delay=ask.delay,
                undelivered=ask.undelivered,
            )
        )

    async def cancel(self, ask: asks.Cancel) -> OfJob:
        await self._command(ask.job_id)
        return shown(
            await self._registry.cancel(
                ask.job_id,
                actor=actor(ask.actor),
                op_id=ask.op_id,
                reason=ask.reason,
                hard=ask.hard,
            )
        )

    async def _command(self, job_id: str) -> None:
        job = await find(self._registry, job_id)
        admission.command(who.get(), job, job_id)


def _firsts(completions: Sequence[asks.Ended | HoldfastError]) -> list[int | None]:
    """For each completion, where the same is said first: it is decided once. None for one too many that
    says something else of an attempt than those before it."""
    known: dict[bytes, int] = {}
    endings: Counter[str] = Counter()
    firsts: list[int | None] = []
    for n, one in enumerate(completions):
        if isinstance(one, HoldfastError):
            firsts.append(n)
            continue
        words = msgspec.json.encode(one)
        if words not in known and endings[one.task_token] < ENDINGS_PER_TOKEN_MAX:
            endings[one.task_token] += 1
            known[words] = n
        firsts.append(known.get(words))
    return firsts


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
