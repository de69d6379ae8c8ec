"""The inspector in this process: what is asked about outputs, answered by whoever sees them here."""

from collections.abc import AsyncIterator, Awaitable, Callable

from msgspec.structs import replace

from holdfast.core.errors import Conflict, Unavailable
from holdfast.core.job import Job
from holdfast.core.limits import check_actor
from holdfast.core.outputs import Check, Found
from holdfast.core.spec import check_spec
from holdfast.outputs import manifests
from holdfast.outputs.listing import Listing
from holdfast.outputs.resuming import keep_plan, plan, resume_once
from holdfast.outputs.reusing import asked_id, cached_id, reusable
from holdfast.outputs.validator import Progress, Validator, acting, due, is_judged
from holdfast.ports import Ids, Inspector, OutputPage, Outputs, Registry, Request, Resumption
from holdfast.system import SystemIds

LOOKED_AT_MAX = 10_000
"""So many outputs are looked at again before a job is resumed; more take minutes."""


class LocalInspector:
    """See `holdfast.ports.Inspector`. It sees the output store it was given, and the files of `machine`
    (None for one that looks at no plain paths). A server takes nobody's word for what is there already:
    with a registry at one, the inspector at that server is the `submitter`."""

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
        self._listing = Listing(registry, outputs)

    async def outputs(
        self,
        job_id: str,
        *,
        missing: bool = False,
        after: str | None = None,
        limit: int = 1000,
    ) -> OutputPage:
        job = await self._registry.get(job_id)
        return await self._listing.page(job, missing=missing, after=after, limit=limit)

    async def validate(
        self, job_id: str, *, actor: str, force: bool = False, progress: Progress | None = None
    ) -> Job:
        """As the port says; `progress` hears how many of how many outputs were looked at."""
        check_actor(actor)
        job = await self._registry.get(job_id)
        if not is_judged(job):
            return job
        if not force and not due(job, await self._registry.now()):
            return job
        validator = Validator(
            self._registry,
            self._outputs,
            machine=self._machine,
            name=self._name,
            on_behalf_of=actor,
        )
        if (why := validator.blind(job)) is not None:
            told = await validator.tell_blind(job, why)
            return replace(told, check=replace(told.check or Check(), reason=why))
        return await validator.validate(job, progress=progress)

    async def resume(
        self,
        job_id: str,
        *,
        actor: str,
        resume_id: str | None = None,
        dry_run: bool = False,
        again: bool = False,
        still: Callable[[], Awaitable[None]] | None = None,
    ) -> Resumption:
        """As the port says; `still` raises if the caller, who has waited while outputs were looked for, may
        have no answer any more, and no job."""
        job = await self._registry.get(job_id)
        promise = job.spec.outputs
        if promise is None or not job.ended or not is_judged(job):
            what = f"is {job.state}" if promise else "does not say which outputs it promises"
            raise Conflict(
                f"Job {job_id} {what}: not resumable.", job_id=job_id, version=job.version
            )
        job = await self._looked_at(job, actor)
        if not job.resumable:
            return Resumption(missing=0)
        made = await plan(self._listing, job, promise)
        if still is not None:
            await still()
        if dry_run or not made.count:
            return Resumption(missing=made.count, names=made.names)
        wanted = made.promise
        if made.lines and promise.manifest is not None:
            wanted = await keep_plan(self._listing.store(promise), made, promise.manifest)
        resumed, earlier = await resume_once(
            self._registry,
            job_id,
            wanted,
            actor=actor,
            resume_id=resume_id or self._ids.new(),
            again=again,
        )
        return Resumption(missing=made.count, names=made.names, job=resumed, earlier=earlier)

    async def _looked_at(self, job: Job, actor: str) -> Job:
        """The job when it was looked at just now; one that promises very much, as it was seen last."""
        if job.found is not None and job.spec.promised_outputs > LOOKED_AT_MAX:
            return job
        job = await self.validate(job.job_id, actor=actor, force=True)
        if job.unverified:
            why = job.check.reason if job.check else None
            raise Unavailable(
                f"Job {job.job_id} is {job.state}, and it is not known which of its outputs are there:"
                f" {why or 'they are being looked for; ask again later.'}",
                job_id=job.job_id,
                version=job.version,
            )
        return job

    async def submit(self, request: Request, *, actor: str, reuse: bool = False) -> Job:
        request = self._placed(request)
        if self._submitter is not None:
            return await self._submitter.submit(request, actor=actor, reuse=reuse)
        if request.register or request.found is not None or request.spec.outputs is None:
            return await self._registry.enqueue(request, actor=actor)
        job_id = asked_id(request)
        if job_id is not None:
            [made, cached] = await self._registry.get_many([job_id, cached_id(job_id)])
            if made is not None:
                return await self._registry.enqueue(request, actor=actor)
            if cached is not None and cached.found is not None:
                return await self._reuse(request, cached.job_id, cached.found, actor)
        new_id = cached_id(job_id or self._ids.new())
        spec = check_spec(request.spec)
        found = await reusable(
            spec, self._outputs, machine=self._machine, job_id=new_id, asked=reuse
        )
        if found is None:
            return await self._registry.enqueue(request, actor=actor)
        return await self._reuse(request, new_id, found, actor)

    async def _reuse(self, request: Request, job_id: str, found: Found, actor: str) -> Job:
        """The job that says that all is there. Whoever looked makes it, for the one who asked."""
        submitter = request.submitted_by or actor
        made = replace(request, request_id=None, job_id=job_id, found=found, submitted_by=submitter)
        return await self._registry.enqueue(made, actor=acting(self._name, actor))

    async def keep(self, lines: AsyncIterator[bytes]) -> tuple[str, int]:
        if self._outputs is None:
            raise Unavailable("There is no output store here in which a manifest could be kept.")
        return await manifests.keep(self._outputs, lines)

    def _placed(self, request: Request) -> Request:
        """The request with the store that its promise means when it names none: this one."""
        promise = request.spec.outputs
        if promise is None or promise.store is not None or self._outputs is None:
            return request
        if not (promise.names or promise.manifest):
            return request
        here = replace(promise, store=self._outputs.store_id, place=self._outputs.place)
        return replace(request, spec=replace(request.spec, outputs=here))
