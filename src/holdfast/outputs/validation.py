"""The validations of one process, a worker or a server: with which store, how many at once, how often.

A sweep finds the jobs whose outputs are due for validation, no matter which worker ran them. Every worker
and every server with an output store sweeps; no single one is needed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import NoReturn

from holdfast.core.errors import NotFound
from holdfast.core.job import Job
from holdfast.outputs.lazily import LazyOutputs
from holdfast.outputs.unverified import Unverified
from holdfast.outputs.validator import OPEN, Validator, due
from holdfast.ports import Clock, Filter, Ids, Outputs, Registry
from holdfast.system import every

SWEEP_SECONDS = 30.0
PAGE = 200


class OutputValidation:
    """Validates with the output store `outputs` and the plain paths of `machine` (None: no plain paths;
    with `queues`: only for jobs of these), at most `concurrency` jobs at once."""

    def __init__(
        self,
        registry: Registry,
        outputs: LazyOutputs,
        *,
        clock: Clock,
        ids: Ids,
        machine: str | None,
        name: str,
        concurrency: int,
        queues: Collection[str] | None = None,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._ids = ids
        self._machine = machine
        self._name = name
        self._queues = queues
        self._unverified = Unverified(registry)
        self._store: Outputs | None = None
        self._validator: Validator | None = None
        self._cursor: str | None = None
        self.outputs = outputs
        self.slots = asyncio.Semaphore(concurrency)

    def validator(self, store: Outputs | None) -> Validator:
        """Return the validator of this store; None: of plain paths only. It is kept from call to call,
        because it knows how far its sweeps have come."""
        if self._validator is None or store is not self._store:
            self._store = store
            self._validator = Validator(
                self._registry,
                store,
                machine=self._machine,
                name=self._name,
                queues=self._queues,
                clock=self._clock,
                unverified=self._unverified,
            )
        return self._validator

    async def sweep_forever(self, sweep: Callable[[], Awaitable[object]]) -> NoReturn:
        """Call `sweep` about every half a minute, until cancelled or until it raises."""
        await every(SWEEP_SECONDS, sweep, clock=self._clock, ids=self._ids)

    async def any_due(self) -> bool:
        """Return whether any job may be due. One query per state: stores have an index for that. From a
        server with keys, a page without jobs may have a next page."""
        for state in OPEN:
            page = await self._registry.list_jobs(Filter(states=(state,)), limit=1)
            if page.jobs or page.next is not None:
                return True
        return await self._unverified.any()

    async def report_unseen(self, reason: str) -> None:
        """Record in the jobs that are due why their outputs cannot be seen, one page of jobs a call.

        Only jobs that promise outputs in an output store; if it is known which one is away, in that one.
        """
        store = None if self._store is None else self._store.store_id
        now = await self._registry.now()
        page = await self._registry.list_jobs(Filter(states=OPEN), after=self._cursor, limit=PAGE)
        for job in page.jobs:
            if _is_in_store(job, store) and due(job, now):
                try:
                    await self.validator(self._store).report_trouble(job, reason)
                except NotFound:
                    continue
        self._cursor = page.next


def _is_in_store(job: Job, store: str | None) -> bool:
    promise = job.spec.outputs
    if promise is None or not (promise.names or promise.manifest):
        return False
    return store in (None, promise.store)
