"""The plan of a resumption: the missing outputs of an ended job as the promise of a new job."""

from array import array
from collections.abc import AsyncGenerator
from contextlib import aclosing
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.errors import Corrupt
from holdfast.core.job import Job
from holdfast.core.outputs import File, OutputPromise
from holdfast.outputs import manifests
from holdfast.outputs.output_pages import OutputPages
from holdfast.outputs.scan import NAMES_MAX
from holdfast.ports import Outputs, Registry


class ResumePlan(Struct, frozen=True, kw_only=True):
    """What the new job has to make: the promise without its manifest, and the lines of the manifest."""

    promise: OutputPromise
    lines: "array[int]"
    names: tuple[str, ...]

    @property
    def count(self) -> int:
        return self.promise.count + len(self.lines)


async def plan_resume(pages: OutputPages, job: Job, promise: OutputPromise) -> ResumePlan:
    """Return the missing tasks and files. One handler makes all managed outputs: if one of them is
    missing, all are planned."""
    first_name = len(promise.files)
    first_line = first_name + len(promise.names)
    files: list[File] = []
    names: list[str] = []
    lines = array("Q")
    managed_missing = False
    async with aclosing(pages.missing_rows(job)) as rows:
        async for row in rows:
            if row.place < first_name:
                files.append(promise.files[row.place])
            elif row.place < first_line:
                managed_missing = True
            else:
                lines.append(row.place - first_line)
            if len(names) < NAMES_MAX:
                names.append(row.output.name)
    wanted = replace(
        promise,
        files=tuple(files),
        names=promise.names if managed_missing else (),
        manifest=None,
        entries=0,
    )
    return ResumePlan(promise=wanted, lines=lines, names=tuple(names))


async def store_plan(outputs: Outputs, resume: ResumePlan, manifest: str) -> OutputPromise:
    """Store the manifest of the new job, made of unchanged lines of the old one; return its promise."""
    async with aclosing(_pick_lines(outputs, manifest, resume.lines)) as lines:
        kept, entries = await manifests.store_manifest(outputs, lines)
    return replace(resume.promise, manifest=kept, entries=entries)


async def resume_once(
    registry: Registry,
    job_id: str,
    wanted: OutputPromise,
    *,
    actor: str,
    resume_id: str,
    again: bool,
) -> tuple[Job, bool]:
    """Return the job that resumes another, and whether an earlier resume made it."""
    job = await registry.resume(job_id, wanted, actor=actor, resume_id=resume_id, again=again)
    history = await registry.history(job.job_id)
    return job, bool(history) and history[0].op_id != resume_id


async def _pick_lines(outputs: Outputs, manifest: str, wanted: "array[int]") -> AsyncGenerator[bytes, None]:
    path = manifests.manifest_path(manifest)
    digest = sha256()
    number = picked = 0
    async for line in manifests.split_lines(manifests.hashed(outputs.read(path), digest)):
        if picked < len(wanted) and wanted[picked] == number:
            picked += 1
            yield line
        number += 1
    if digest.hexdigest() != manifest or picked < len(wanted):
        raise Corrupt(f"{path} is damaged: its checksum differs.")
