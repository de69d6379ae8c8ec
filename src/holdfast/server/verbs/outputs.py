"""The verbs of outputs: what jobs promised, the verdict on it, and jobs for what is missing."""

from collections.abc import AsyncIterator

from msgspec.structs import replace

from holdfast.core.access import Scope
from holdfast.core.errors import Invalid
from holdfast.core.limits import ID_CHARACTERS_MAX, PAGE_ITEMS_MAX
from holdfast.outputs.reports import is_report
from holdfast.outputs.resume_plan import resume_once
from holdfast.ports import OutputPage, Resumption
from holdfast.server import admission
from holdfast.server.calls import current_principal
from holdfast.server.context import ServerContext
from holdfast.server.verbs.access import actor_of, find, job_response
from holdfast.wire import requests
from holdfast.wire.responses import JobResponse, StoredManifest


class OutputVerbs:
    """What concerns outputs. The server sees its own output store, and no other place."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._registry = context.registry

    async def report_validation(self, request: requests.ReportValidation) -> JobResponse:
        await self._workable(request.job_id)
        return job_response(
            await self._registry.report_validation(
                request.job_id,
                actor=validator_name(request.actor),
                version=request.version,
                done=request.done,
                total=request.total,
                trouble=request.trouble,
            )
        )

    async def complete_validation(self, request: requests.CompleteValidation) -> JobResponse:
        """Allowed to workers of the queue; to override a verdict takes the scope `admin`."""
        if request.override is None:
            await self._workable(request.job_id)
        else:
            admission.require_scope(current_principal.get(), Scope.ADMIN)
            await find(self._registry, request.job_id)
        if request.found.report is not None and not is_report(request.found.report, request.job_id):
            raise Invalid("A report must be in the output store, under reports/ and the id of its job.")
        return job_response(
            await self._registry.complete_validation(
                request.job_id,
                request.found,
                actor=validator_name(request.actor) if request.override is None else actor_of(request.actor),
                op_id=request.op_id,
                evidence=request.evidence,
                version=request.version,
                override=request.override,
                reason=request.reason,
            )
        )

    async def _workable(self, job_id: str) -> None:
        """Raise `Denied` or `NotFound` unless the caller works on the queue of the job, ended or not: a
        repeat may be of the call that has ended it."""
        principal = current_principal.get()
        admission.require_scope(principal, Scope.WORK)
        [job] = await self._registry.status_many([job_id]) if job_id else [None]
        if job is None or not principal.may(Scope.WORK, job.spec.queue, job.spec.region):
            admission.find(principal, None, job_id)

    async def list_outputs(self, request: requests.ListOutputs) -> OutputPage:
        """Allowed to callers that may read the data of the job."""
        limit = PAGE_ITEMS_MAX if request.limit is None else request.limit
        if not 1 <= limit <= PAGE_ITEMS_MAX:
            raise Invalid(f"From 1 to {PAGE_ITEMS_MAX} outputs may be read at once, not {limit}.")
        job = await find(self._registry, request.job_id)
        admission.check_may_read(current_principal.get(), job)
        checking = self._context.outputs
        inspector = await checking.inspector(job.spec.outputs)
        with checking.denied_as_unavailable():
            return await inspector.list_outputs(
                request.job_id, missing=request.missing, after=request.after, limit=limit
            )

    async def validate(self, request: requests.Validate) -> JobResponse:
        """Allowed to workers of the queue, and to callers that may cancel the job."""
        job = await find(self._registry, request.job_id)
        if not current_principal.get().may(Scope.WORK, job.spec.queue, job.spec.region):
            admission.find_cancellable(current_principal.get(), job, request.job_id)
        judged = await self._context.outputs.validate(job, actor=actor_of(request.actor), force=request.force)
        await self._context.check_key()
        return job_response(judged)

    async def resume(self, request: requests.Resume) -> Resumption:
        """Allowed to callers that may cancel the job."""
        job = await find(self._registry, request.job_id)
        admission.find_cancellable(current_principal.get(), job, request.job_id)
        if not request.dry_run:
            await self._context.queue_limit.admit(job.spec.queue)
        if request.promise is not None:
            return await self._resume_promised(request)
        checking = self._context.outputs
        inspector = await checking.inspector(job.spec.outputs)
        with checking.denied_as_unavailable():
            resumption = await inspector.resume(
                request.job_id,
                actor=actor_of(request.actor),
                resume_id=request.op_id,
                dry_run=request.dry_run,
                again=request.again,
                check_caller=self._context.check_key,
            )
        return _resumed(resumption)

    async def _resume_promised(self, request: requests.Resume) -> Resumption:
        if request.promise is None or request.dry_run:
            raise Invalid("A dry run returns what is missing: leave out the promise.")
        job, earlier = await resume_once(
            self._registry,
            request.job_id,
            request.promise,
            actor=actor_of(request.actor),
            resume_id=request.op_id or self._context.ids.new(),
            again=request.again,
        )
        names = (*request.promise.names, *(file.path for file in request.promise.files))
        missing = request.promise.count
        return _resumed(Resumption(missing=missing, names=names, job=job, earlier=earlier))

    async def store_manifest(self, request: requests.StoreManifest) -> StoredManifest:
        admission.require_scope(current_principal.get(), Scope.SUBMIT)
        if not request.lines:
            raise Invalid("A manifest has at least one line.")
        return await self._context.outputs.store_manifest(_each(request.lines))


def validator_name(given: str) -> str:
    """Return the name of the validator: the given one; with keys it ends with an @ and the name of the key,
    which has no @ in it, so that no caller can pass for another."""
    principal = current_principal.get()
    if principal.key_id is None:
        return given or f"validator:{principal.name}"
    name = given.partition(":")[2].replace("@", "-")
    length = ID_CHARACTERS_MAX - len(f"validator:@{principal.name}")
    return f"validator:{name[:length]}@{principal.name}" if name else f"validator:{principal.name}"


def _resumed(made: Resumption) -> Resumption:
    return (
        made
        if made.job is None
        else replace(made, job=admission.visible_job(current_principal.get(), made.job))
    )


async def _each(lines: tuple[str, ...]) -> AsyncIterator[bytes]:
    for line in lines:
        yield line.rstrip("\n").encode() + b"\n"
