"""The inspector of this process: queries and commands about the outputs that can be seen here."""

from collections.abc import AsyncIterator, Awaitable, Callable

from msgspec.structs import replace

from holdfast.core.errors import Conflict, Unavailable
from holdfast.core.job import Job
from holdfast.core.limits import check_actor
from holdfast.core.outputs import ValidationProgress, ValidationResult
from holdfast.core.spec import check_spec
from holdfast.outputs import manifests
from holdfast.outputs.cache_lookup import cached_id, find_cached, requested_id
from holdfast.outputs.output_pages import OutputPages
from holdfast.outputs.resume_plan import plan_resume, resume_once, store_plan
from holdfast.outputs.validator import Progress, Validator, can_validate, is_due, validator_actor
from holdfast.ports import Ids, Inspector, JobRequest, OutputPage, Outputs, Registry, Resumption
from holdfast.system import SystemIds

REVALIDATED_MAX = 10_000
"""Up to this many outputs are validated again before a job is resumed; more would take minutes."""


class LocalInspector:
    """See `holdfast.ports.Inspector`. It sees the output store `outputs` and the files of `machine` (None:
    no plain paths). A server does not accept a client's claim that outputs are there already: with the
    registry of a server, `submitter` is the inspector of that server."""

    def __init__(
        self,
        registry: Registry,
        outputs: Outputs | None,
        *,
        machine: str | None,
        name: str,
        submitter: Inspector | None = None,
        ids: Ids | None = None,
    ) -> None:
        self._registry = registry
        self._outputs = outputs
        self._machine = machine
        self._name = name
        self._submitter = submitter
        self._ids = ids or SystemIds()
        self._pages = OutputPages(registry, outputs)

    async def list_outputs(
        self,
        job_id: str,
        *,
        missing: bool = False,
        after: str | None = None,
        limit: int = 1000,
    ) -> OutputPage:
        job = await self._registry.status(job_id)
        return await self._pages.page(job, missing=missing, after=after, limit=limit)

    async def validate(
        self, job_id: str, *, actor: str, force: bool = False, progress: Progress | None = None
    ) -> Job:
        """As the port says; `progress` is called with the number of outputs scanned, and of all."""
        check_actor(actor)
        job = await self._registry.status(job_id)
        if not can_validate(job):
            return job
        if not force and not is_due(job, await self._registry.now()):
            return job
        validator = Validator(
            self._registry,
            self._outputs,
            machine=self._machine,
            name=self._name,
            on_behalf_of=actor,
        )
        if (why := validator.unreachable_reason(job)) is not None:
            job = await validator.report_unreachable(job, why)
            return replace(job, check=replace(job.check or ValidationProgress(), reason=why))
        return await validator.validate(job, progress=progress)

    async def resume(
        self,
        job_id: str,
        *,
        actor: str,
        resume_id: str | None = None,
        dry_run: bool = False,
        again: bool = False,
        check_caller: Callable[[], Awaitable[None]] | None = None,
    ) -> Resumption:
        """As the port says; `check_caller` is called after the scan, which may take long, and raises if the
        caller may no longer do this."""
        job = await self._registry.status(job_id)
        promise = job.spec.outputs
        if promise is None or not job.ended or not can_validate(job):
            what = f"is {job.state}" if promise else "does not say which outputs it promises"
            raise Conflict(f"Job {job_id} {what}: not resumable.", job_id=job_id, version=job.version)
        job = await self._revalidated(job, actor)
        if not job.resumable:
            return Resumption(missing=0)
        resume_plan = await plan_resume(self._pages, job, promise)
        if check_caller is not None:
            await check_caller()
        if dry_run or not resume_plan.count:
            return Resumption(missing=resume_plan.count, names=resume_plan.names)
        wanted = resume_plan.promise
        if resume_plan.lines and promise.manifest is not None:
            wanted = await store_plan(self._pages.require_store(promise), resume_plan, promise.manifest)
        resumed, earlier = await resume_once(
            self._registry,
            job_id,
            wanted,
            actor=actor,
            resume_id=resume_id or self._ids.new(),
            again=again,
        )
        return Resumption(missing=resume_plan.count, names=resume_plan.names, job=resumed, earlier=earlier)

    async def _revalidated(self, job: Job, actor: str) -> Job:
        """Return the job, validated now; one that promises very many outputs, as it was validated last."""
        if job.found is not None and job.spec.promised_outputs > REVALIDATED_MAX:
            return job
        job = await self.validate(job.job_id, actor=actor, force=True)
        if job.unvalidated:
            why = job.check.reason if job.check else None
            raise Unavailable(
                f"Job {job.job_id} is {job.state}, and it is not known which of its outputs are there:"
                f" {why or 'they are being validated; try again later.'}",
                job_id=job.job_id,
                version=job.version,
            )
        return job

    async def submit(self, request: JobRequest, *, actor: str, reuse: bool = False) -> Job:
        request = self.with_store(request)
        if self._submitter is not None:
            return await self._submitter.submit(request, actor=actor, reuse=reuse)
        if request.register or request.found is not None or request.spec.outputs is None:
            return await self._registry.enqueue(request, actor=actor)
        job_id = requested_id(request)
        if job_id is not None:
            [existing, cached] = await self._registry.status_many([job_id, cached_id(job_id)])
            if existing is not None:
                return await self._registry.enqueue(request, actor=actor)
            if cached is not None and cached.found is not None:
                return await self._reuse(request, cached.job_id, cached.found, actor)
        new_id = cached_id(job_id or self._ids.new())
        spec = check_spec(request.spec)
        found = await find_cached(spec, self._outputs, machine=self._machine, job_id=new_id, reuse=reuse)
        if found is None:
            return await self._registry.enqueue(request, actor=actor)
        return await self._reuse(request, new_id, found, actor)

    async def _reuse(self, request: JobRequest, job_id: str, found: ValidationResult, actor: str) -> Job:
        """Make the job that records that all outputs are there; the validator is its actor."""
        submitter = request.submitted_by or actor
        made = replace(request, request_id=None, job_id=job_id, found=found, submitted_by=submitter)
        return await self._registry.enqueue(made, actor=validator_actor(self._name, actor))

    async def store_manifest(self, lines: AsyncIterator[bytes]) -> tuple[str, int]:
        if self._outputs is None:
            raise Unavailable("There is no output store here in which to store a manifest.")
        return await manifests.store_manifest(self._outputs, lines)

    def with_store(self, request: JobRequest) -> JobRequest:
        """Return the request with this output store in its promise, if the promise names no store."""
        promise = request.spec.outputs
        if self._outputs is None or promise is None or promise.store or not promise.in_store:
            return request
        here = replace(promise, store=self._outputs.store_id, place=self._outputs.place)
        return replace(request, spec=replace(request.spec, outputs=here))
