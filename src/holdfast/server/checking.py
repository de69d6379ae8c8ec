"""Checking: the output store of a server, who looks into it, and the loop that looks by itself. A server
sees this store and no other place, whatever a job says."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from holdfast.core.errors import Conflict, Denied, Exhausted, HoldfastError, Unavailable
from holdfast.core.job import Job
from holdfast.core.outputs import Promise
from holdfast.outputs.inspector import LocalInspector
from holdfast.outputs.lazily import LazyOutputs, Opening
from holdfast.outputs.reusing import asked_id, cached_id
from holdfast.outputs.validation import OutputValidation
from holdfast.ports import Clock, Ids, Outputs, Registry, Request
from holdfast.registry.requests import command_of
from holdfast.server.limits import VALIDATIONS_MAX, VALIDATIONS_WAITING_MAX, WAIT_SECONDS_MAX
from holdfast.system import machine
from holdfast.wire.answers import Kept

REUSE_SECONDS = 20.0
SEEN_SECONDS = 5.0

NO_STORE = "This server has no output store: start it with --outputs."

log = logging.getLogger("holdfast.server")


class Checking:
    """Opens the store when it is first needed. What looks for long goes on when nobody waits for it."""

    def __init__(self, registry: Registry, clock: Clock, ids: Ids, opening: Opening) -> None:
        self._registry = registry
        self._ids = ids
        self._name = f"server-{machine()}-{os.getpid()}"
        self._outputs = LazyOutputs(opening)
        self._validation = OutputValidation(
            registry,
            self._outputs,
            clock=clock,
            ids=ids,
            machine=None,
            name=self._name,
            concurrency=VALIDATIONS_MAX,
        )
        self._why: str | None = None
        self._looking: dict[str, asyncio.Task[Job]] = {}
        self._waits: dict[asyncio.Timeout, None] = {}
        self._stopping = False

    async def outputs(self, *, create: bool = False) -> Outputs | None:
        """The store, opened; `Unavailable` when it is there and cannot be seen."""
        return await self._outputs.get(create=create)

    @contextmanager
    def own_trouble(self) -> Iterator[None]:
        """Whoever calls is not to blame when it is the server that is not let in at the store."""
        try:
            yield
        except Denied as error:
            self._away(error.message)
            raise Unavailable(error.message) from error

    def _away(self, why: str | None) -> None:
        """Log why the store cannot be seen, or None that it can, when that has changed."""
        if why == self._why:
            return
        self._why = why
        if why is None:
            log.info("the output store is seen again")
        else:
            log.warning("the output store cannot be seen: %s", why)

    async def inspector(self, promise: Promise | None) -> LocalInspector:
        """Who answers for outputs of this promise; `Conflict` when they are where we do not look."""
        with self.own_trouble():
            outputs = await self.outputs()
        if promise is not None and promise.store is not None:
            if outputs is None:
                raise Conflict(NO_STORE)
            if outputs.store_id != promise.store:
                raise Conflict(
                    f"The outputs are in the output store {promise.store}, and this server has"
                    f" {outputs.store_id}: ask where that is, or start the server with its --outputs."
                )
        return self._inspector(outputs)

    async def keep(self, lines: AsyncIterator[bytes]) -> Kept:
        """Keep a manifest; `Conflict` when there is no store to keep it in."""
        with self.own_trouble():
            outputs = await self.outputs(create=True)
            if outputs is None:
                raise Conflict(NO_STORE)
            sha256, entries = await self._inspector(outputs).keep(lines)
        return Kept(sha256, entries, outputs.store_id)

    async def placed(self, request: Request) -> Request:
        """The request, its promise naming our store where it names none."""
        promise = request.spec.outputs
        if promise is None or promise.store or not (promise.names or promise.manifest):
            return request
        with self.own_trouble():
            outputs = await self.outputs(create=True)
        if outputs is None:
            raise Conflict(NO_STORE)
        here = replace(promise, store=outputs.store_id, place=outputs.place)
        return replace(request, spec=replace(request.spec, outputs=here))

    def _inspector(self, outputs: Outputs | None) -> LocalInspector:
        return LocalInspector(self._registry, outputs, machine=None, name=self._name)

    async def submit(self, requests: Sequence[Request], *, actor: str) -> list[Job]:
        """Enqueue, unless all that one promises is in the store: as far as that is seen soon."""
        outputs = await self._seen()
        if outputs is None:
            return await self._registry.enqueue_many(requests, actor=actor)
        for one in requests:
            command_of(one, self._ids, actor=actor)  # all are checked before any is made
        inspector = self._inspector(outputs)
        until = asyncio.get_running_loop().time() + REUSE_SECONDS
        return [await self._submit(inspector, one, actor, until) for one in requests]

    async def _submit(
        self, inspector: LocalInspector, request: Request, actor: str, until: float
    ) -> Job:
        """What takes too long to look for is made, and whoever runs it finds what is there."""
        if (job_id := asked_id(request)) is None:
            job_id = self._ids.new()
            request = replace(request, job_id=job_id)
        try:
            async with asyncio.timeout_at(until):
                return await inspector.submit(request, actor=actor)
        except TimeoutError:
            [cached] = await self._registry.get_many([cached_id(job_id)])
            return cached or await self._registry.enqueue(request, actor=actor)

    async def _seen(self) -> Outputs | None:
        """The store, if it can be seen now: nobody's job waits for it."""
        try:
            async with asyncio.timeout(SEEN_SECONDS):
                return await self.outputs()
        except HoldfastError as error:
            self._away(error.message)
        except TimeoutError:
            self._away(f"It could not be opened within {SEEN_SECONDS:.0f} s.")
        return None

    async def validate(self, job: Job, *, actor: str, force: bool) -> Job:
        """Look for the outputs of the job: as it is then, or after 25 s, while it is looked on."""
        inspector = await self.inspector(job.spec.outputs)
        looking = self._looking.get(job.job_id)
        if looking is None:
            if len(self._looking) >= VALIDATIONS_WAITING_MAX:
                raise Exhausted("This server looks for the outputs of many jobs: ask again later.")
            looking = asyncio.create_task(self._look(inspector, job.job_id, actor, force=force))
            self._looking[job.job_id] = looking
            looking.add_done_callback(lambda done: self._looked(job.job_id, done))
        judged = await self._wait_for(looking)
        return await self._registry.get(job.job_id) if judged is None else judged

    async def _wait_for(self, looking: asyncio.Task[Job]) -> Job | None:
        limit = asyncio.timeout(0 if self._stopping else WAIT_SECONDS_MAX)
        try:
            async with limit:
                self._waits[limit] = None
                return await asyncio.shield(looking)
        except TimeoutError:
            if not limit.expired():
                raise
            return None
        finally:
            self._waits.pop(limit, None)

    def stop(self) -> None:
        """Nobody is to wait any longer: it is looked for elsewhere, or later."""
        self._stopping = True
        for limit in self._waits:
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())

    async def _look(
        self, inspector: LocalInspector, job_id: str, actor: str, *, force: bool
    ) -> Job:
        async with self._validation.slots:
            return await inspector.validate(job_id, actor=actor, force=force)

    def _looked(self, job_id: str, done: asyncio.Task[Job]) -> None:
        del self._looking[job_id]
        if not done.cancelled() and (error := done.exception()) is not None:
            _tell("validating %s", error, job_id)

    async def sweep_for_ever(self) -> None:
        """Look for what is due, whoever ran it. Every server with an output store does; none has to."""
        await self._validation.sweep_forever(self.sweep)

    async def sweep(self) -> int:
        """How many jobs were looked at; what goes wrong is in the log, and is tried again. While the store
        cannot be seen, the jobs that wait for it are told why."""
        try:
            outputs = await self._outputs.verified()
        except HoldfastError as error:
            self._away(error.message)
            return await self._tell_jobs(error.message)
        except Exception as error:
            _tell("opening the output store", error)
            return 0
        self._away(None)
        return await self._sweep(outputs)

    async def _sweep(self, outputs: Outputs | None) -> int:
        try:
            return await self._validation.validator(outputs).sweep()
        except Exception as error:
            _tell("looking for outputs", error)
            return 0

    async def _tell_jobs(self, why: str) -> int:
        try:
            await self._validation.report_unseen(why)
        except Exception as error:
            _tell("telling jobs that the output store cannot be seen", error)
        return 0

    async def close(self) -> None:
        """Leave off: another validator takes up what is left."""
        tasks = list(self._looking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._outputs.close()


def _tell(doing: str, error: BaseException, *details: object) -> None:
    """By type: what a job calls its outputs is not for the log."""
    if not isinstance(error, HoldfastError):
        log.error(f"{doing} failed: %s", *details, type(error).__name__)
    elif isinstance(error, Unavailable):
        log.warning(f"{doing} failed: %s", *details, type(error).__name__)
