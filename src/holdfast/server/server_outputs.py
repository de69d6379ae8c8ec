"""The output store of a server, and the validation of outputs in it: on request, and by a loop. A server
reads this store and no other place, whatever a job says."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from holdfast.core.errors import Conflict, Denied, Exhausted, HoldfastError, Unavailable
from holdfast.core.job import Job
from holdfast.core.outputs import OutputPromise
from holdfast.outputs.cache_lookup import cached_id, requested_id
from holdfast.outputs.inspector import LocalInspector
from holdfast.outputs.lazy import LazyOutputs, OpenOutputs
from holdfast.outputs.validation import OutputValidation
from holdfast.ports import Clock, Ids, JobRequest, Outputs, Registry
from holdfast.registry.job_requests import enqueue_command
from holdfast.server.limits import VALIDATIONS_MAX, VALIDATIONS_WAITING_MAX, WAIT_SECONDS_MAX
from holdfast.system import machine_name
from holdfast.wire.responses import StoredManifest

REUSE_SECONDS = 20.0
OPEN_SECONDS = 5.0

NO_STORE = "This server has no output store: start it with --outputs."

log = logging.getLogger("holdfast.server")


class ServerOutputs:
    """The output store, opened when it is first needed, and its validation. A validation that takes long
    continues when its caller no longer waits for it."""

    def __init__(self, registry: Registry, clock: Clock, ids: Ids, opening: OpenOutputs) -> None:
        self._registry = registry
        self._ids = ids
        self._name = f"server-{machine_name()}-{os.getpid()}"
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
        self._trouble: str | None = None
        self._validating: dict[str, asyncio.Task[Job]] = {}
        self._waits: dict[asyncio.Timeout, None] = {}
        self._stopping = False

    async def open(self, *, create: bool = False) -> Outputs | None:
        """Return the opened store; `Unavailable` when the server has one and cannot reach it."""
        return await self._outputs.get(create=create)

    @contextmanager
    def denied_as_unavailable(self) -> Iterator[None]:
        """Turn `Denied` into `Unavailable`: the store refuses the server, not the caller."""
        try:
            yield
        except Denied as error:
            self._log_trouble(error.message)
            raise Unavailable(error.message) from error

    def _log_trouble(self, trouble: str | None) -> None:
        """Log why the store cannot be reached, or (None) that it can, when that has changed."""
        if trouble == self._trouble:
            return
        self._trouble = trouble
        if trouble is None:
            log.info("the output store is seen again")
        else:
            log.warning("the output store cannot be seen: %s", trouble)

    async def inspector(self, promise: OutputPromise | None) -> LocalInspector:
        """Return an inspector for outputs of this promise; `Conflict` when they are in another store."""
        with self.denied_as_unavailable():
            outputs = await self.open()
        if promise is not None and promise.store is not None:
            if outputs is None:
                raise Conflict(NO_STORE)
            if outputs.store_id != promise.store:
                raise Conflict(
                    f"The outputs are in the output store {promise.store}, and this server has"
                    f" {outputs.store_id}: ask the server that has it, or start this one with its --outputs."
                )
        return self._inspector(outputs)

    async def store_manifest(self, lines: AsyncIterator[bytes]) -> StoredManifest:
        """Store a manifest; `Conflict` when this server has no output store."""
        with self.denied_as_unavailable():
            outputs = await self.open(create=True)
            if outputs is None:
                raise Conflict(NO_STORE)
            sha256, entries = await self._inspector(outputs).store_manifest(lines)
        return StoredManifest(sha256, entries, outputs.store_id)

    async def with_store(self, request: JobRequest) -> JobRequest:
        """Return the request; a promise that names no store gets ours."""
        promise = request.spec.outputs
        if promise is None or promise.store or not promise.in_store:
            return request
        with self.denied_as_unavailable():
            outputs = await self.open(create=True)
        if outputs is None:
            raise Conflict(NO_STORE)
        return self._inspector(outputs).with_store(request)

    def _inspector(self, outputs: Outputs | None) -> LocalInspector:
        return LocalInspector(self._registry, outputs, machine=None, name=self._name)

    async def submit(self, requests: Sequence[JobRequest], *, actor: str) -> list[Job]:
        """Enqueue each request, unless all outputs that it promises are found in the store in time."""
        outputs = await self._open_soon()
        if outputs is None:
            return await self._registry.enqueue_many(requests, actor=actor)
        for one in requests:
            enqueue_command(one, self._ids, actor=actor)  # all are checked before any is made
        inspector = self._inspector(outputs)
        until = asyncio.get_running_loop().time() + REUSE_SECONDS
        return [await self._submit(inspector, one, actor, until) for one in requests]

    async def _submit(self, inspector: LocalInspector, request: JobRequest, actor: str, until: float) -> Job:
        """Enqueue the request when the scan takes too long: its worker finds the outputs that are there."""
        if (job_id := requested_id(request)) is None:
            job_id = self._ids.new()
            request = replace(request, job_id=job_id)
        try:
            async with asyncio.timeout_at(until):
                return await inspector.submit(request, actor=actor)
        except TimeoutError:
            [cached] = await self._registry.status_many([cached_id(job_id)])
            return cached or await self._registry.enqueue(request, actor=actor)

    async def _open_soon(self) -> Outputs | None:
        """Return the store, if it can be reached now: no enqueue waits longer for it."""
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                return await self.open()
        except HoldfastError as error:
            self._log_trouble(error.message)
        except TimeoutError:
            self._log_trouble(f"It could not be opened within {OPEN_SECONDS:.0f} s.")
        return None

    async def validate(self, job: Job, *, actor: str, force: bool) -> Job:
        """Validate the outputs of the job, and return it; after 25 s as it is then, while that goes on."""
        inspector = await self.inspector(job.spec.outputs)
        validating = self._validating.get(job.job_id)
        if validating is None:
            if len(self._validating) >= VALIDATIONS_WAITING_MAX:
                raise Exhausted("This server is validating many jobs: try again later.")
            validating = asyncio.create_task(self._validate(inspector, job.job_id, actor, force=force))
            self._validating[job.job_id] = validating
            validating.add_done_callback(lambda done: self._validated(job.job_id, done))
        validated = await self._wait_for(validating)
        return await self._registry.status(job.job_id) if validated is None else validated

    async def _wait_for(self, validating: asyncio.Task[Job]) -> Job | None:
        limit = asyncio.timeout(0 if self._stopping else WAIT_SECONDS_MAX)
        try:
            async with limit:
                self._waits[limit] = None
                return await asyncio.shield(validating)
        except TimeoutError:
            if not limit.expired():
                raise
            return None
        finally:
            self._waits.pop(limit, None)

    def stop(self) -> None:
        """End the calls that wait for a validation: another server validates, or this one later."""
        self._stopping = True
        for limit in self._waits:
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())

    async def _validate(self, inspector: LocalInspector, job_id: str, actor: str, *, force: bool) -> Job:
        async with self._validation.slots:
            return await inspector.validate(job_id, actor=actor, force=force)

    def _validated(self, job_id: str, done: asyncio.Task[Job]) -> None:
        del self._validating[job_id]
        if not done.cancelled() and (error := done.exception()) is not None:
            _log_failure("validating %s", error, job_id)

    async def sweep_forever(self) -> None:
        """Validate the jobs that are due, in a loop. Every server with an output store does this, as
        workers may do, so that no single process has to."""
        await self._validation.sweep_forever(self.sweep)

    async def sweep(self) -> int:
        """Validate the jobs that are due, and return how many. Errors are logged, and the next sweep tries
        again. While the store cannot be reached, the reason is recorded on the jobs that wait for it."""
        try:
            validator, trouble = await self._validation.open(same=True)
            self._log_trouble(trouble)
            if trouble is None:
                return await validator.sweep()
            await self._validation.report_unreachable(trouble)
        except Exception as error:
            _log_failure("the sweep for unvalidated outputs", error)
        return 0

    async def close(self) -> None:
        """Cancel the validations: another validator continues them."""
        tasks = list(self._validating.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._outputs.close()


def _log_failure(doing: str, error: BaseException, *details: object) -> None:
    """Log the type of the error, not its message: that may contain names of outputs."""
    if not isinstance(error, HoldfastError):
        log.error(f"{doing} failed: %s", *details, type(error).__name__)
    elif isinstance(error, Unavailable):
        log.warning(f"{doing} failed: %s", *details, type(error).__name__)
