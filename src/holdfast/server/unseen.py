"""Unseen: while a server cannot see its output store, the jobs that wait for it say why."""

from holdfast.core.errors import Conflict, NotFound
from holdfast.core.job import Job
from holdfast.core.state import State
from holdfast.outputs.validator import acting, due
from holdfast.ports import Filter, Registry

PAGE = 200

_OPEN = Filter(states=(State.VALIDATING, State.PARTIAL_SUCCESS))


class Unseen:
    """Goes through the jobs page by page, one page a time, so that many cost no more than few."""

    def __init__(self, registry: Registry, name: str) -> None:
        self._registry = registry
        self._actor = acting(name)
        self._cursor: str | None = None

    async def tell(self, why: str, *, store: str | None) -> int:
        """Tell the jobs that are due and promise something in an output store: how many it were. If it
        is known which `store` is away, only those of that one."""
        now = await self._registry.now()
        page = await self._registry.list_jobs(_OPEN, after=self._cursor, limit=PAGE)
        told = 0
        for job in page.jobs:
            if _kept(job, store) and due(job, now):
                told += await self._tell(job, why)
        self._cursor = page.next
        return told

    async def _tell(self, job: Job, why: str) -> bool:
        try:
            await self._registry.look(
                job.job_id, actor=self._actor, version=job.version, trouble=why
            )
        except (Conflict, NotFound):
            return False
        return True


def _kept(job: Job, store: str | None) -> bool:
    promise = job.spec.outputs
    if promise is None or not (promise.names or promise.manifest):
        return False
    return store in (None, promise.store)
