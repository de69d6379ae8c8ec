"""The submission of jobs: their requests with promised outputs, as a part of the caller's trace."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType

from msgspec.structs import replace

from holdfast import tracing
from holdfast.core.errors import Invalid
from holdfast.core.job import Job
from holdfast.ports import EnqueuedJobs, Inspector, JobRequest, Registry
from holdfast.registry.job_requests import with_trace
from holdfast.runner.call import Call
from holdfast.runner.context import current_context
from holdfast.runner.output_promises import NO_OUTPUT_STORE, OutputLocation, location_of
from holdfast.sdk.defaults import actor
from holdfast.sdk.output_store import lazy_outputs, open_inspector
from holdfast.sdk.store_url import StoreUrl


class JobSubmission:
    """Creates the jobs of a client. Outputs go to the store that was given to it, or the chosen one."""

    def __init__(self, registry: Registry, url: str, outputs: str | None) -> None:
        self._registry = registry
        self._url = url
        self._outputs = lazy_outputs(url, outputs)

    async def create(self, calls: Sequence[Call[object]], connection: object) -> EnqueuedJobs:
        """Create these jobs. Nothing runs for a job whose results exist already, unless it has to be part
        of a transaction."""
        requests = [await self._with_outputs(call) for call in calls]
        with TracedSubmission(requests) as traced:
            if connection is None and any(map(_needs_inspector, traced)):
                return await self._submit(traced)
            return await self._registry.enqueue_many(traced, actor=actor(), connection=connection)

    async def _with_outputs(self, call: Call[object]) -> JobRequest:
        """Return the request with the outputs that its job promises, and their location."""
        if call.promised is None:
            return call.request
        location = await self._location() if call.promised.stored else None
        return replace(call.request, spec=await call.promised.in_spec(call.spec, location))

    async def _location(self) -> OutputLocation:
        outputs = await self._outputs.get(create=True)
        if outputs is not None:
            return location_of(outputs)
        if not self._at_server:
            raise Invalid(NO_OUTPUT_STORE)
        return OutputLocation((await self._inspector()).store_manifest)

    async def _inspector(self) -> Inspector:
        """Return the inspector that finds out whether anything is left to do: at a server, the server's."""
        outputs, server = await self._outputs.get(create=True), self._at_server
        return await open_inspector(self._registry, self._url, outputs=outputs, server=server)

    @property
    def _at_server(self) -> bool:
        return StoreUrl(self._url).is_server

    async def _submit(self, requests: Sequence[JobRequest]) -> EnqueuedJobs:
        inspector = await self._inspector()
        others = [one for one in requests if not _needs_inspector(one)]
        made = await self._registry.enqueue_many(others, actor=actor()) if others else EnqueuedJobs()
        created, existed, jobs = iter(made), set(made.existed), list[Job]()
        for one in requests:
            if not _needs_inspector(one):
                jobs.append(next(created))
                continue
            jobs.append(job := await inspector.submit(one, actor=actor()))
            cached = job.found is not None and job.claim_op_id is None
            if job.version > 1 and not cached:
                existed.add(job.job_id)
        return EnqueuedJobs.of(jobs, existed)

    async def close(self) -> None:
        await self._outputs.close()


def _needs_inspector(request: JobRequest) -> bool:
    """Whether there may be nothing left to do, or a server has to choose the location of its outputs."""
    promise = request.spec.outputs
    return promise is not None and (
        promise.manifest is not None or (bool(promise.names) and promise.store is None)
    )


class TracedSubmission:
    """A context with the requests as they are to be sent. Those that name no trace become part of the
    caller's: the current one, else that of the job whose handler this is, else `parent`."""

    __slots__ = ("_parent", "_requests", "_span")

    def __init__(self, requests: Sequence[JobRequest], parent: str | None = None) -> None:
        self._requests = requests
        self._parent = parent
        self._span: AbstractContextManager[tracing.Span] | None = None

    def __enter__(self) -> Sequence[JobRequest]:
        parent = tracing.current_traceparent()
        if parent is None:
            context = current_context.get(None)
            parent = self._parent if context is None else context.traceparent
        if tracing.should_start(parent):
            self._span = tracing.use_span(_start_span(self._requests, parent))
            parent = self._span.__enter__().traceparent
        return self._requests if parent is None else [with_trace(one, parent) for one in self._requests]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._span is not None:
            self._span.__exit__(kind, error, trace)


def _start_span(requests: Sequence[JobRequest], parent: str | None) -> tracing.Span:
    kinds = {request.spec.kind for request in requests}
    name = f"submit {kinds.pop()}" if len(kinds) == 1 else "submit"
    return tracing.start_span(name, "producer", parent, {"holdfast.jobs": len(requests)})
