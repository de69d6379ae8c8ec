"""The verbs of outputs: what jobs promised, the verdict on it, and jobs for what is missing."""

from collections.abc import AsyncIterator

from msgspec.structs import replace

from holdfast.core.access import Scope
from holdfast.core.errors import Invalid
from holdfast.core.limits import ID_CHARACTERS_MAX, PAGE_ITEMS_MAX
from holdfast.outputs.reports import is_report
from holdfast.outputs.resuming import resume_once
from holdfast.ports import OutputPage, Resumption
from holdfast.server import admission
from holdfast.server.calls import who
from holdfast.server.context import Context
from holdfast.server.verbs.access import actor, find, shown
from holdfast.wire import asks
from holdfast.wire.answers import Kept, OfJob


class Outputs:
    """What concerns outputs. The server sees its own output store, and no other place."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._registry = context.registry

    async def look(self, ask: asks.Look) -> OfJob:
        await self._workable(ask.job_id)
        return shown(
            await self._registry.look(
                ask.job_id,
                actor=checker(ask.actor),
                version=ask.version,
                done=ask.done,
                total=ask.total,
                trouble=ask.trouble,
            )
        )

    async def judge(self, ask: asks.Judge) -> OfJob:
        """By a worker of the queue; to override a verdict is for its administrators."""
        if ask.override is None:
            await self._workable(ask.job_id)
        else:
            admission.demand(who.get(), Scope.ADMIN)
            await find(self._registry, ask.job_id)
        if ask.found.report is not None and not is_report(ask.found.report, ask.job_id):
            raise Invalid("A report is in the output store, under reports/ and the id of its job.")
        return shown(
            await self._registry.judge(
                ask.job_id,
                ask.found,
                actor=checker(ask.actor) if ask.override is None else actor(ask.actor),
                op_id=ask.op_id,
                evidence=ask.evidence,
                version=ask.version,
                override=ask.override,
                reason=ask.reason,
            )
        )

    async def _workable(self, job_id: str) -> None:
        """Raise `Denied` unless they work on the queue of the job: ended or not, a repeat may be of what
        has ended it."""
        principal = who.get()
        admission.demand(principal, Scope.WORK)
        [job] = await self._registry.get_many([job_id]) if job_id else [None]
        if job is None or not principal.may(Scope.WORK, job.spec.queue, job.spec.region):
            admission.find(principal, None, job_id)

    async def list_outputs(self, ask: asks.ListOutputs) -> OutputPage:
        """The evidence, for whoever may read it in the events of the job."""
        limit = PAGE_ITEMS_MAX if ask.limit is None else ask.limit
        if not 1 <= limit <= PAGE_ITEMS_MAX:
            raise Invalid(f"From 1 to {PAGE_ITEMS_MAX} outputs are read at once, not {limit}.")
        job = await find(self._registry, ask.job_id)
        admission.read(who.get(), job)
        checking = self._context.checking
        inspector = await checking.inspector(job.spec.outputs)
        with checking.own_trouble():
            return await inspector.outputs(
                ask.job_id, missing=ask.missing, after=ask.after, limit=limit
            )

    async def validate(self, ask: asks.Validate) -> OfJob:
        """For whoever may judge the job, or end it."""
        job = await find(self._registry, ask.job_id)
        if not who.get().may(Scope.WORK, job.spec.queue, job.spec.region):
            admission.command(who.get(), job, ask.job_id)
        judged = await self._context.checking.validate(job, actor=actor(ask.actor), force=ask.force)
        await self._context.check_key()
        return shown(judged)

    async def resume(self, ask: asks.Resume) -> Resumption:
        """For whoever asked for the job, and the administrators of its queue: as to cancel it."""
        job = await find(self._registry, ask.job_id)
        admission.command(who.get(), job, ask.job_id)
        if not ask.dry_run:
            await self._context.depth.admit(job.spec.queue)
        if ask.promise is not None:
            return await self._resume_as_told(ask)
        checking = self._context.checking
        inspector = await checking.inspector(job.spec.outputs)
        with checking.own_trouble():
            resumption = await inspector.resume(
                ask.job_id,
                actor=actor(ask.actor),
                resume_id=ask.op_id,
                dry_run=ask.dry_run,
                again=ask.again,
                still=self._context.check_key,
            )
        return _resumed(resumption)

    async def _resume_as_told(self, ask: asks.Resume) -> Resumption:
        if ask.promise is None or ask.dry_run:
            raise Invalid("A dry run says what is missing: leave out the promise.")
        job, earlier = await resume_once(
            self._registry,
            ask.job_id,
            ask.promise,
            actor=actor(ask.actor),
            resume_id=ask.op_id or self._context.ids.new(),
            again=ask.again,
        )
        names = (*ask.promise.names, *(file.path for file in ask.promise.files))
        missing = ask.promise.count
        return _resumed(Resumption(missing=missing, names=names, job=job, earlier=earlier))

    async def keep_manifest(self, ask: asks.KeepManifest) -> Kept:
        admission.demand(who.get(), Scope.SUBMIT)
        if not ask.lines:
            raise Invalid("A manifest has at least one line.")
        return await self._context.checking.keep(_each(ask.lines))


def checker(said: str) -> str:
    """Which validator acts: what the caller says, or of a key a name that ends with the key's own. No
    key's name has an @ in it, so that none can pass for another's."""
    principal = who.get()
    if principal.key_id is None:
        return said or f"validator:{principal.name}"
    name = said.partition(":")[2].replace("@", "-")
    room = ID_CHARACTERS_MAX - len(f"validator:@{principal.name}")
    return f"validator:{name[:room]}@{principal.name}" if name else f"validator:{principal.name}"


def _resumed(made: Resumption) -> Resumption:
    return made if made.job is None else replace(made, job=admission.shown(who.get(), made.job))


async def _each(lines: tuple[str, ...]) -> AsyncIterator[bytes]:
    for line in lines:
        yield line.rstrip("\n").encode() + b"\n"
