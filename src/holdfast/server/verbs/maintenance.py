"""The verbs of maintenance: record facts, expire, prune and verify the store."""

from msgspec.structs import replace

from holdfast.core.access import Scope
from holdfast.core.errors import Invalid
from holdfast.core.limits import BATCH_ITEMS_MAX
from holdfast.ports import PruneResult, Verification
from holdfast.server import admission
from holdfast.server.calls import current_principal
from holdfast.server.context import ServerContext
from holdfast.server.verbs.access import require_scope_everywhere
from holdfast.wire import requests
from holdfast.wire.responses import DoctorReport, ExpireResult, RecordResult, StoreTime


class MaintenanceVerbs:
    """What concerns the store as a whole."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._registry = context.registry

    async def record(self, request: requests.Record) -> RecordResult:
        principal = current_principal.get()
        admission.require_scope(principal, Scope.SUBMIT, Scope.WORK, Scope.ADMIN)
        if len(request.events) > BATCH_ITEMS_MAX:
            raise Invalid(f"At most {BATCH_ITEMS_MAX} events are recorded at once.")
        events = list(request.events)
        named = list(dict.fromkeys(event.job_id for event in events if event.job_id))
        if principal.key_id is not None:
            for job_id, job in zip(named, await self._registry.status_many(named), strict=True):
                admission.find(principal, job, job_id)
            events = [replace(event, actor=principal.actor) for event in events]
        reach = None if principal.key_id is None else principal.reach
        return RecordResult(await self._registry.record(events, reach=reach))

    async def expire(self, request: requests.Expire) -> ExpireResult:
        admission.require_scope(current_principal.get(), Scope.WORK, Scope.ADMIN)
        limit = 100 if request.limit is None else request.limit
        expired = await self._registry.expire(limit=limit)
        # They may be of any queue.
        return ExpireResult(expired if current_principal.get().everywhere else 0)

    async def prune(self, request: requests.Prune) -> PruneResult:
        require_scope_everywhere(Scope.ADMIN)
        return await self._registry.prune(
            older_than=request.older_than,
            output_older_than=request.output_older_than,
            dry_run=request.dry_run,
        )

    async def verify(self, _: requests.Empty) -> Verification:
        require_scope_everywhere(Scope.ADMIN)
        verified = await self._registry.verify()
        await self._context.check_key()
        return verified

    async def doctor(self, _: requests.Empty) -> DoctorReport:
        require_scope_everywhere(Scope.ADMIN)
        examined = DoctorReport(tuple(await self._registry.doctor()))
        await self._context.check_key()
        return examined

    async def now(self, _: requests.Empty) -> StoreTime:
        return StoreTime(await self._registry.now())
