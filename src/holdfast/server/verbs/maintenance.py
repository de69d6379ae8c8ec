"""The verbs of maintenance: record facts, expire, prune and verify the store."""

from msgspec.structs import replace

from holdfast.core.access import Scope
from holdfast.core.errors import Invalid
from holdfast.core.limits import BATCH_ITEMS_MAX
from holdfast.ports import Pruned, Verification
from holdfast.server import admission
from holdfast.server.calls import who
from holdfast.server.context import Context
from holdfast.server.verbs.access import demand_everywhere
from holdfast.wire import asks
from holdfast.wire.answers import Examined, Expired, Recorded, Time


class Maintenance:
    """What concerns the store as a whole."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._registry = context.registry

    async def record(self, ask: asks.Record) -> Recorded:
        principal = who.get()
        admission.demand(principal, Scope.SUBMIT, Scope.WORK, Scope.ADMIN)
        if len(ask.events) > BATCH_ITEMS_MAX:
            raise Invalid(f"At most {BATCH_ITEMS_MAX} events are recorded at once.")
        events = list(ask.events)
        named = list(dict.fromkeys(event.job_id for event in events if event.job_id))
        if principal.key_id is not None:
            for job_id, job in zip(named, await self._registry.get_many(named), strict=True):
                admission.find(principal, job, job_id)
            events = [replace(event, actor=principal.actor) for event in events]
        reach = None if principal.key_id is None else principal.reach
        return Recorded(await self._registry.record(events, reach=reach))

    async def expire(self, ask: asks.Expire) -> Expired:
        admission.demand(who.get(), Scope.WORK, Scope.ADMIN)
        limit = 100 if ask.limit is None else ask.limit
        expired = await self._registry.expire(limit=limit)
        return Expired(expired if who.get().everywhere else 0)  # they may be of any queue

    async def prune(self, ask: asks.Prune) -> Pruned:
        demand_everywhere(Scope.ADMIN)
        return await self._registry.prune(
            older_than=ask.older_than, output_older_than=ask.output_older_than
        )

    async def verify(self, _: asks.Nothing) -> Verification:
        demand_everywhere(Scope.ADMIN)
        verified = await self._registry.verify()
        await self._context.check_key()
        return verified

    async def examine(self, _: asks.Nothing) -> Examined:
        demand_everywhere(Scope.ADMIN)
        examined = Examined(tuple(await self._registry.examine()))
        await self._context.check_key()
        return examined

    async def now(self, _: asks.Nothing) -> Time:
        return Time(await self._registry.now())
