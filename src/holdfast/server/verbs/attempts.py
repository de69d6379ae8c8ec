"""The verbs of attempts: claim jobs, own them, end them."""

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
from holdfast.ports import Completion, Grant, Request
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
from holdfast.server.verbs.access import TAKEN, id_of, prepared, shown
from holdfast.wire import asks
from holdfast.wire.answers import Acquired, Granted, OfEach, OfJob
from holdfast.wire.verbs import Load

OFTEN = f"Of one attempt at most {ENDINGS_PER_TOKEN_MAX} different endings are taken in one call."


class Attempts:
    """What the owner of an attempt does, from claim to completion."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._registry = context.registry

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
        create = None if ask.create is None else await prepared(self._context, ask.create)
        if create is not None and id_of(create) != ask.job_id:
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
