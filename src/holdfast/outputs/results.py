"""Results: what a task leaves, kept where its inputs lead to, so that whoever needs it again finds it.

    …/seed_7/3f0c61d2a9b4e877-trace.csv     the files, under names that say what is in them
    …/seed_7/result.json                    written last: whose result it is, and its files

A file is never written over with other bytes. A reader therefore finds one whole result or another, and
whoever writes late, thought dead, breaks nobody's. A whole result stays as it is when it is written
again: it is known by what went in. One that is an error, incomplete or damaged is replaced.
"""

import asyncio
import hashlib
import re
from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.errors import Invalid, Unavailable
from holdfast.core.limits import clip
from holdfast.core.manifest import MARKER, Task, check_task, check_task_output, difference
from holdfast.core.outputs import Output
from holdfast.failpoint import failpoint
from holdfast.outputs.paths import BUNDLE_1, TOKEN_1, Schema
from holdfast.ports.outputs import Digest, Outputs

FORMAT = 1
NO_MARKER = f"no {MARKER}"
_TOGETHER = 500
_ERROR_CHARACTERS = 300
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class Writer(Struct, frozen=True):
    """Who wrote a result: a job, and the token it held."""

    job_id: str
    token: int


class Marker(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `result.json` says: the task, all of it but the names it asked for, and every file."""

    format: int
    task: Task
    files: dict[str, Digest]
    writer: Writer
    error: str | None = None


class Result(Struct, frozen=True, kw_only=True):
    """A whole result, every byte of which is as it was written."""

    task: Task
    files: dict[str, bytes]
    writer: Writer
    path: str


class Results:
    """The results in an output store. `older` layouts are read too, and `also` are written too, while
    there are readers that know no other."""

    def __init__(
        self,
        outputs: Outputs,
        schema: Schema = TOKEN_1,
        *,
        older: Sequence[Schema] = (BUNDLE_1,),
        also: Sequence[Schema] = (),
    ) -> None:
        self._outputs = outputs
        self._schema = schema
        self._older = tuple(older)
        self._also = tuple(also)

    async def put(
        self,
        task: Task,
        files: Mapping[str, bytes],
        *,
        writer: Writer,
        error: str | None = None,
    ) -> None:
        """Keep the result of a task, or the error it ended with; durable when this returns. A whole
        result that is there already stays."""
        _check_files(check_task(task), files, error)
        marker = Marker(
            format=FORMAT,
            task=replace(task, outputs=()),
            files=await asyncio.to_thread(_digests, files),
            writer=writer,
            error=None if error is None else clip(error),
        )
        for schema in (self._schema, *self._also):
            folder = await self._vacant(schema, task)
            if folder is not None:
                await self._write(folder, marker, files)

    async def get(self, task: Task) -> Result | None:
        """The whole result of a task, every checksum compared, or None."""
        folders = self._folders(task)
        bodies = await self._outputs.get_many([folder + MARKER for folder in folders])
        for folder, body in zip(folders, bodies, strict=True):
            seen = _judge(task, folder, body)
            found = await self._outputs.get_many(seen.paths) if seen.paths else []
            files = {
                name: one for name, one in zip(seen.files, found, strict=True) if one is not None
            }
            digests = await asyncio.to_thread(_digests, files)
            seen = seen.compared([digests.get(name) for name in seen.files])
            if seen.missing is None and seen.marker is not None:
                return Result(task=task, files=files, writer=seen.marker.writer, path=folder)
        return None

    async def check_many(self, tasks: Sequence[Task]) -> list[tuple[Output, Writer | None]]:
        """For each task its result as it is there, every checksum compared: who wrote it, or why it does
        not count."""
        found: list[tuple[Output, Writer | None]] = []
        for start in range(0, len(tasks), _TOGETHER):
            some = tasks[start : start + _TOGETHER]
            seen = await self._check(some)
            found += [one.row(task) for task, one in zip(some, seen, strict=True)]
        return found

    async def find_output_any_version(self, task: Task) -> str | None:
        """Where the whole result of a task is: in the layout of today, else in an older one."""
        [(output, _)] = await self.check_many([task])
        return output.path if output.missing is None else None

    async def _check(self, tasks: Sequence[Task]) -> "list[_Seen]":
        """Look where each belongs, and wherever else it may be for what is not there."""
        seen = await self._look([(task, self._schema.path(task)) for task in tasks])
        lacking = [at for at, one in enumerate(seen) if one.missing is not None]
        elsewhere = [self._folders(tasks[at])[1:] for at in lacking]
        further = iter(
            await self._look(
                [
                    (tasks[at], one)
                    for at, some in zip(lacking, elsewhere, strict=True)
                    for one in some
                ]
            )
        )
        for at, some in zip(lacking, elsewhere, strict=True):
            seen[at] = max([seen[at], *islice(further, len(some))], key=_Seen.tells)
        return seen

    async def _look(self, places: Sequence[tuple[Task, str]]) -> "list[_Seen]":
        """What is in these folders, in two calls for all of them."""
        if not places:
            return []
        bodies = await self._outputs.get_many([folder + MARKER for _, folder in places])
        seen = [_judge(*place, body) for place, body in zip(places, bodies, strict=True)]
        paths = [path for one in seen for path in one.paths]
        digests = iter(await self._outputs.digests(paths) if paths else [])
        return [one.compared(list(islice(digests, len(one.files)))) for one in seen]

    async def _vacant(self, schema: Schema, task: Task) -> str | None:
        """The folder into which a result of the task belongs, or None when there is a whole one."""
        first, apart = await self._look(
            [(task, schema.path(task)), (task, schema.path_apart(task))]
        )
        if first.missing is None or apart.missing is None:
            return None
        return apart.folder if first.of_another else first.folder

    async def _write(self, folder: str, marker: Marker, files: Mapping[str, bytes]) -> None:
        for name, body in files.items():
            await self._outputs.put(file_path(folder, name, marker.files[name].sha256), body)
        failpoint("outputs.result_files_written")
        await self._outputs.put(folder + MARKER, _ENCODER.encode(marker) + b"\n")

    def _folders(self, task: Task) -> list[str]:
        """Where the result of a task may be, the first place first."""
        schemas = (self._schema, *self._older)
        return [path(task) for schema in schemas for path in (schema.path, schema.path_apart)]


def file_path(folder: str, name: str, sha256: str) -> str:
    """Where a file of a result is."""
    return f"{folder}{sha256[:16]}-{name}"


class _Seen(Struct, frozen=True, kw_only=True):
    """What was found in a folder; `missing` says why it does not count. `of_another`: another task's."""

    folder: str
    missing: str | None = None
    of_another: bool = False
    marker: Marker | None = None
    sha256: str | None = None

    @property
    def files(self) -> dict[str, Digest]:
        """What is to be compared: nothing, where it does not count anyway."""
        return self.marker.files if self.marker is not None and self.missing is None else {}

    @property
    def paths(self) -> list[str]:
        return [file_path(self.folder, name, said.sha256) for name, said in self.files.items()]

    def compared(self, found: "Sequence[Digest | None]") -> "_Seen":
        """The same, its files being as they were found."""
        for (name, said), digest in zip(self.files.items(), found, strict=True):
            if digest != said:
                return replace(self, missing=_fault(name, said, digest))
        return self

    def tells(self) -> int:
        """How much it says about the task: nothing, what another left, what is wrong, all is well."""
        if self.missing is None or self.missing == NO_MARKER:
            return 3 if self.missing is None else 0
        return 1 if self.of_another else 2

    def row(self, task: Task) -> tuple[Output, Writer | None]:
        if self.missing is not None or self.marker is None:
            return Output(name=task.name, path=self.folder, missing=self.missing), None
        size = sum(said.size for said in self.marker.files.values())
        output = Output(name=task.name, path=self.folder, size=size, sha256=self.sha256)
        return output, self.marker.writer


def _judge(task: Task, folder: str, body: bytes | None) -> _Seen:
    """What the marker in a folder says, before its files are compared."""
    if body is None:
        return _Seen(folder=folder, missing=NO_MARKER)
    marker = _decode(folder, body)
    if marker is None:
        return _Seen(folder=folder, missing=f"its {MARKER} cannot be read")
    of = difference(task, marker.task)
    if of is not None:
        return _Seen(folder=folder, missing=f"it is the result of {of}", of_another=True)
    missing = None
    if marker.error is not None:
        missing = f"it is an error result: {clip(marker.error, _ERROR_CHARACTERS)}"
    elif lacking := sorted(set(task.outputs) - set(marker.files)):
        missing = f"it lacks {', '.join(lacking)}"
    digest = hashlib.sha256(body).hexdigest()
    return _Seen(folder=folder, missing=missing, marker=marker, sha256=digest)


def _fault(name: str, said: Digest, found: Digest | None) -> str:
    if found is None:
        return f"{name} is gone"
    if found.size != said.size:
        return f"{name} has {found.size:,} bytes, not {said.size:,}"
    return f"the checksum of {name} differs"


def _decode(folder: str, body: bytes) -> Marker | None:
    """What a marker says, or None for one of which nobody can make sense."""
    written_as = _format(body)
    if written_as > FORMAT:
        raise Unavailable(
            f"{folder}{MARKER} is of a newer holdfast (format {written_as}; this one knows {FORMAT})."
            " Update this one."
        )
    try:
        marker = _MARKERS.decode(body)
        _check_files(check_task(marker.task), marker.files, marker.error)
    except (msgspec.DecodeError, UnicodeDecodeError, Invalid):
        return None
    known = all(_SHA256.match(said.sha256) for said in marker.files.values())
    return marker if known else None


def _format(body: bytes) -> int:
    try:
        return _HEADS.decode(body).format
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 0


def _check_files(task: Task, files: Mapping[str, object], error: str | None) -> None:
    for name in files:
        check_task_output(name)
    if error is not None:
        return
    if not files:
        raise Invalid("A result has at least one file, unless it is an error.")
    if lacking := sorted(set(task.outputs) - set(files)):
        raise Invalid(f"The result lacks {', '.join(lacking)}, which the task asks for.")


def _digests(files: Mapping[str, bytes]) -> dict[str, Digest]:
    return {
        name: Digest(len(body), hashlib.sha256(body).hexdigest()) for name, body in files.items()
    }


class _Head(Struct, frozen=True):
    format: int


_ENCODER = msgspec.json.Encoder(order="deterministic")
_MARKERS = msgspec.json.Decoder(Marker)
_HEADS = msgspec.json.Decoder(_Head)
