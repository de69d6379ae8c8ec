"""Planning a resumption: exactly what an ended job lacks, as the promise of a new job."""

from array import array
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.errors import Corrupt
from holdfast.core.job import Job
from holdfast.core.outputs import File, Promise
from holdfast.outputs import manifests
from holdfast.outputs.examining import NAMES_MAX
from holdfast.outputs.listing import Listing
from holdfast.ports import Outputs, Registry


class Plan(Struct, frozen=True, kw_only=True):
    """What is to be made again: the promise without its manifest, and which lines of that."""

    promise: Promise
    lines: "array[int]"
    names: tuple[str, ...]

    @property
    def count(self) -> int:
        return self.promise.count + len(self.lines)


async def plan(listing: Listing, job: Job, promise: Promise) -> Plan:
    """The missing tasks and files. Managed outputs are one handler's: if one is missing, all of them."""
    first_name = len(promise.files)
    first_line = first_name + len(promise.names)
    files: list[File] = []
    names: list[str] = []
    lines = array("Q")
    handler = False
    async with aclosing(listing.lacks(job)) as lacks:
        async for lack in lacks:
            if lack.place < first_name:
                files.append(promise.files[lack.place])
            elif lack.place < first_line:
                handler = True
            else:
                lines.append(lack.place - first_line)
            if len(names) < NAMES_MAX:
                names.append(lack.output.name)
    wanted = replace(
        promise,
        files=tuple(files),
        names=promise.names if handler else (),
        manifest=None,
        entries=0,
    )
    return Plan(promise=wanted, lines=lines, names=tuple(names))


async def keep_plan(outputs: Outputs, made: Plan, manifest: str) -> Promise:
    """The promise of the new job, its manifest kept: these lines of the old one, word for word."""
    async with aclosing(_picked(outputs, manifest, made.lines)) as lines:
        kept, entries = await manifests.keep(outputs, lines)
    return replace(made.promise, manifest=kept, entries=entries)


async def resume_once(
    registry: Registry, job_id: str, wanted: Promise, *, actor: str, resume_id: str, again: bool
) -> tuple[Job, bool]:
    """The job that resumes another, and whether an earlier resume made it."""
    job = await registry.resume(job_id, wanted, actor=actor, resume_id=resume_id, again=again)
    history = await registry.history(job.job_id)
    return job, bool(history) and history[0].op_id != resume_id


async def _picked(
    outputs: Outputs, manifest: str, wanted: "array[int]"
) -> AsyncGenerator[bytes, None]:
    path = manifests.manifest_path(manifest)
    digest = sha256()

    async def parts() -> AsyncIterator[bytes]:
        async for part in outputs.read(path):
            digest.update(part)
            yield part

    number = picked = 0
    async for line in manifests.lines_of(parts()):
        if picked < len(wanted) and wanted[picked] == number:
            picked += 1
            yield line
        number += 1
    if digest.hexdigest() != manifest or picked < len(wanted):
        raise Corrupt(f"{path} is damaged: its checksum differs.")
