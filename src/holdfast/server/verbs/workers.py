"""The verbs of workers: they announce themselves, and are listed with the queues that they serve."""

from msgspec import structs

from holdfast.core.access import Scope
from holdfast.core.limits import check_id
from holdfast.core.workers import QueueInfo, visible_worker
from holdfast.ports import Announced
from holdfast.server import admission
from holdfast.server.calls import current_principal
from holdfast.server.claim_waiters import owner_of
from holdfast.server.context import ServerContext
from holdfast.wire import requests
from holdfast.wire.responses import QueueList, WorkerList


class WorkerVerbs:
    """Who is there to do the work."""

    def __init__(self, context: ServerContext) -> None:
        self._registry = context.registry

    async def announce(self, request: requests.Announce) -> Announced:
        """The name of the worker is that of its claims: with a key, the key's name is part of it."""
        principal = current_principal.get()
        region = admission.default_region(principal, request.region)
        for queue in request.queues:
            admission.check_queue(principal, Scope.WORK, queue, region)
        admission.require_scope(principal, Scope.WORK)
        fields = structs.asdict(request) | {
            "name": owner_of(check_id(request.name, "name")),
            "region": region,
        }
        announced = await self._registry.announce(**fields)
        seen = (visible_worker(principal, one) for one in announced.namesakes)
        return structs.replace(announced, namesakes=tuple(filter(None, seen)))

    async def workers(self, request: requests.Workers) -> WorkerList:
        principal = current_principal.get()
        admission.require_scope(principal, Scope.OBSERVE, Scope.WORK, Scope.ADMIN)
        found = await self._registry.workers(request.queue)
        seen = (visible_worker(principal, one) for one in found)
        return WorkerList(
            tuple(one for one in seen if one and (request.queue is None or request.queue in one.queues))
        )

    async def queues(self, _: requests.Empty) -> QueueList:
        principal = current_principal.get()
        admission.require_scope(principal, Scope.OBSERVE)
        admission.check_regions(principal)
        found: list[QueueInfo] = await self._registry.queues()
        return QueueList(tuple(one for one in found if admission.may_count(principal, one.queue)))
