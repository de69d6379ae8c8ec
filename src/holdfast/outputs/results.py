"""Results: the files of a task, under a path derived from its inputs, so that they are found again.

    …/seed_7/3f0c61d2a9b4e877-trace.csv     the files, under names that say what is in them
    …/seed_7/result.json                    the marker, written last: the task, and its files
    …/seed_7/error.json                     or the error of a task without a result

A file is never overwritten with other bytes, so a reader finds one whole result or another. A late write
of an old owner damages no result: an error has a marker of its own, and a `result.json` is written only
where there is none, or where this same task has left one that is damaged or incomplete. A whole result
stays as it is when it is written again: the same inputs mean the same result.
"""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.errors import Unavailable
from holdfast.core.limits import clip, slices
from holdfast.core.manifest import MARKER, Task, check_task
from holdfast.core.outputs import Output
from holdfast.failpoint import failpoint
from holdfast.outputs.markers import (
    ERROR,
    FORMAT,
    FolderScan,
    Marker,
    ResultAuthor,
    as_bytes,
    check_files,
    digests,
    encode,
    file_path,
    read_marker,
)
from holdfast.outputs.paths import BUNDLE_1, TOKEN_1, PathSchema
from holdfast.ports.outputs import Digest, Outputs

__all__ = ["FORMAT", "Marker", "Result", "ResultAuthor", "Results", "file_path"]

_BATCH_TASKS = 500
_ROUNDS = 4

Place = tuple[Task, str]


class Result(Struct, frozen=True, kw_only=True):
    """A whole result, with every checksum compared."""

    task: Task
    files: dict[str, bytes]
    writer: ResultAuthor
    path: str


class Results:
    """The results in an output store. Layouts in `older` are read too; layouts in `also` are written too,
    while there are readers that know no other."""

    def __init__(
        self,
        outputs: Outputs,
        schema: PathSchema = TOKEN_1,
        *,
        older: Sequence[PathSchema] = (BUNDLE_1,),
        also: Sequence[PathSchema] = (),
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
        writer: ResultAuthor,
        error: str | None = None,
    ) -> None:
        """Store the result of a task, or the error it ended with; durable when this returns. A whole
        result that is there already stays."""
        check_files(check_task(task), files, error)
        bodies = await asyncio.to_thread(as_bytes, files)
        marker = Marker(
            format=FORMAT,
            task=replace(task, outputs=()),
            files=await asyncio.to_thread(digests, bodies),
            writer=writer,
            error=None if error is None else clip(error),
        )
        for schema in (self._schema, *self._also):
            await self._store(schema, task, marker, bodies)

    async def get(self, task: Task) -> Result | None:
        """Return the whole result of a task, with every checksum compared, or None."""
        folders = [folder for _, folder in _folders([task], [self._schema, *self._older], True)]
        bodies = await self._outputs.get_many([folder + MARKER for folder in folders])
        for folder, body in zip(folders, bodies, strict=True):
            seen = await asyncio.to_thread(read_marker, task, folder, body)
            found = await self._outputs.get_many(seen.paths) if seen.paths else []
            files = {name: one for name, one in zip(seen.files, found, strict=True) if one is not None}
            known = await asyncio.to_thread(digests, files)
            seen = seen.with_files([known.get(name) for name in seen.files])
            if seen.missing is None and seen.marker is not None:
                return Result(task=task, files=files, writer=seen.marker.writer, path=folder)
        return None

    async def validate_many(self, tasks: Sequence[Task]) -> list[tuple[Output, ResultAuthor | None]]:
        """Return for each task its output, with every checksum compared, and who wrote it, or why it is
        missing."""
        found: list[tuple[Output, ResultAuthor | None]] = []
        for some in slices(tasks, _BATCH_TASKS):
            seen = await self._scan(some)
            found += await asyncio.to_thread(_rows, some, seen)
        return found

    async def _scan(self, tasks: Sequence[Task]) -> list[FolderScan]:
        """Scan the first folder of each task, and for those without a result all other folders."""
        seen = await self._scan_folders(await asyncio.to_thread(_folders, tasks, [self._schema], False))
        await self._scan_other_folders(tasks, seen)
        await self._put_errors(tasks, seen)
        return seen

    async def _scan_other_folders(self, tasks: Sequence[Task], seen: list[FolderScan]) -> None:
        lacking = [at for at, one in enumerate(seen) if one.missing is not None]
        some = [tasks[at] for at in lacking]
        schemas = [self._schema, *self._older]
        each = 2 * len(schemas)
        places = await asyncio.to_thread(_folders, some, schemas, True)
        del places[::each]  # the folders that were scanned already
        further = iter(await self._scan_folders(places))
        for at in lacking:
            seen[at] = max([seen[at], *islice(further, each - 1)], key=FolderScan.rank)

    async def _put_errors(self, tasks: Sequence[Task], seen: list[FolderScan]) -> None:
        """Put in the error markers of tasks without a result."""
        lacking = [at for at, one in enumerate(seen) if one.rank() < 2]
        some = [tasks[at] for at in lacking]
        places = await asyncio.to_thread(_folders, some, [self._schema], True)
        errors = iter(await self._read_markers(places, ERROR))
        for at in lacking:
            own = [one for one in islice(errors, 2) if one.marker is not None]
            seen[at] = own[0] if own else seen[at]

    async def _scan_folders(self, places: Sequence[Place]) -> list[FolderScan]:
        """Return what is in these folders, in two calls for all of them."""
        seen = await self._read_markers(places, MARKER)
        paths = [path for one in seen for path in one.paths]
        if not paths:
            return seen
        return await asyncio.to_thread(_compare_files, seen, await self._outputs.digests(paths))

    async def _read_markers(self, places: Sequence[Place], name: str) -> list[FolderScan]:
        if not places:
            return []
        bodies = await self._outputs.get_many([folder + name for _, folder in places])
        return await asyncio.to_thread(_decode_markers, places, bodies, name)

    async def _store(
        self, schema: PathSchema, task: Task, marker: Marker, files: Mapping[str, bytes]
    ) -> None:
        """Write the result, unless a whole one is there. A concurrent write is noticed when the marker is
        created; then the folders are scanned again."""
        name = MARKER if marker.error is None else ERROR
        places = _folders([task], [schema], True)
        for _ in range(_ROUNDS):
            seen = await self._scan_folders(places)
            if any(one.missing is None for one in seen):
                return
            ours = _is_free_or_ours(seen[0])
            if name == ERROR:
                seen = await self._read_markers(places, ERROR)
                ours = ours and _is_free_or_ours(seen[0])
            if await self._write(seen[0 if ours else 1], name, marker, files):
                return
        raise Unavailable(f"{places[0][1]}{name} changes while it is written. Try again.")

    async def _write(self, at: FolderScan, name: str, marker: Marker, files: Mapping[str, bytes]) -> bool:
        for file, body in files.items():
            path = file_path(at.folder, file, marker.files[file].sha256)
            await self._outputs.put(path, body)
        failpoint("outputs.result_files_written")
        if at.free:
            return await self._outputs.create(at.folder + name, encode(marker))
        # The marker is this task's, so any concurrent write has an equally good result.
        await self._outputs.put(at.folder + name, encode(marker))
        return True


def _folders(tasks: Sequence[Task], schemas: Sequence[PathSchema], apart: bool) -> list[Place]:
    """Return the folders in which results of these tasks may be, for each task its first folder first."""
    return [
        (task, path(task))
        for task in tasks
        for schema in schemas
        for path in ((schema.path, schema.path_beside) if apart else (schema.path,))
    ]


def _is_free_or_ours(first: FolderScan) -> bool:
    """Return whether a first folder is free or this task's. A marker that cannot be read may be anyone's."""
    return first.free or first.marker is not None


def _decode_markers(places: Sequence[Place], bodies: Sequence[bytes | None], name: str) -> list[FolderScan]:
    return [read_marker(*place, body, name) for place, body in zip(places, bodies, strict=True)]


def _compare_files(seen: Sequence[FolderScan], found: Sequence[Digest | None]) -> list[FolderScan]:
    rest = iter(found)
    return [one.with_files(list(islice(rest, len(one.files)))) for one in seen]


def _rows(tasks: Sequence[Task], seen: Sequence[FolderScan]) -> list[tuple[Output, ResultAuthor | None]]:
    return [one.row(task) for task, one in zip(tasks, seen, strict=True)]
