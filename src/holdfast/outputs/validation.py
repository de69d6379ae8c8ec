"""The validations of one process, a worker or a server: with which store, how many at once, how often.

A sweep finds the jobs whose outputs are due for validation, no matter which worker ran them. Every worker
and every server with an output store sweeps; no single one is needed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import NoReturn

from holdfast.core.errors import HoldfastError, NotFound
from holdfast.core.job import Job
from holdfast.outputs.lazy import LazyOutputs
from holdfast.outputs.unvalidated_jobs import UnvalidatedJobs
from holdfast.outputs.validator import SWEPT_STATES, Validator, is_due, swept_states
from holdfast.ports import Clock, Ids, JobFilter, Outputs, Registry
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
        self._unvalidated = UnvalidatedJobs(registry)
        self._new_validator = partial(
            Validator,
            registry,
            machine=machine,
            name=name,
            queues=queues,
            clock=clock,
            unvalidated=self._unvalidated,
        )
        self._store: Outputs | None = None
        self._validator = self._new_validator(None)
        self._cursor: str | None = None
        self.outputs = outputs
        self.slots = asyncio.Semaphore(concurrency)

    async def open(self, *, same: bool = False) -> tuple[Validator, str | None]:
        """Return the validator of the output store, and None; or, if the store cannot be opened (with
        `same`: or another one is in its place), the validator before, at first of plain paths only, and the
        reason. A validator is kept from call to call: it knows how far its sweeps have come."""
        try:
            store = await (self.outputs.get_same() if same else self.outputs.get())
        except HoldfastError as error:
            return self._validator, error.message
        if store is not self._store:
            self._store, self._validator = store, self._new_validator(store)
        return self._validator, None

    async def sweep_forever(self, sweep: Callable[[], Awaitable[object]]) -> NoReturn:
        """Call `sweep` about every half a minute, until cancelled or until it raises."""
        await every(SWEEP_SECONDS, sweep, clock=self._clock, ids=self._ids)

    async def any_due(self) -> bool:
        """Return whether any job may be due. From a server with keys, a page without jobs may have a next
        page."""
        for state in await swept_states(self._registry):
            page = await self._registry.list_jobs(JobFilter(states=(state,)), limit=1)
            if page.jobs or page.next is not None:
                return True
        return await self._unvalidated.any()

    async def report_unreachable(self, reason: str) -> None:
        """Record in the jobs that are due why their outputs cannot be seen, one page of jobs a call.

        Only jobs that promise outputs in an output store; if it is known which one is away, in that one.
        """
        store = None if self._store is None else self._store.store_id
        now = await self._registry.now()
        page = await self._registry.list_jobs(JobFilter(states=SWEPT_STATES), after=self._cursor, limit=PAGE)
        for job in page.jobs:
            if _is_in_store(job, store) and is_due(job, now):
                try:
                    await self._validator.report_trouble(job, reason)
                except NotFound:
                    continue
        self._cursor = page.next


def _is_in_store(job: Job, store: str | None) -> bool:
    promise = job.spec.outputs
    return promise is not None and promise.in_store and store in (None, promise.store)
