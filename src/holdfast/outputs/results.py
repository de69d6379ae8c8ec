"""Results: what a task leaves, kept where its inputs lead to, so that whoever needs it again finds it.

    …/seed_7/3f0c61d2a9b4e877-trace.csv     the files, under names that say what is in them
    …/seed_7/result.json                    written last: whose result it is, and its files
    …/seed_7/error.json                     or why there is none

A file is never written over with other bytes. A reader therefore finds one whole result or another, and
whoever writes late, thought dead, breaks nobody's: an error has a marker of its own, and a `result.json`
is made only where there is none, or where this very task has left one that is damaged or incomplete. A
whole result stays as it is when it is written again: it is known by what went in.
"""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.errors import Unavailable
from holdfast.core.limits import clip
from holdfast.core.manifest import MARKER, Task, check_task
from holdfast.core.outputs import Output
from holdfast.failpoint import failpoint
from holdfast.outputs.markers import (
    ERROR,
    FORMAT,
    Marker,
    Seen,
    Writer,
    as_bytes,
    check_files,
    digests,
    encode,
    file_path,
    judge,
)
from holdfast.outputs.paths import BUNDLE_1, TOKEN_1, Schema
from holdfast.ports.outputs import Digest, Outputs

__all__ = ["FORMAT", "Marker", "Result", "Results", "Writer", "file_path"]

_TOGETHER = 500
_ROUNDS = 4

Place = tuple[Task, str]


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
            await self._keep(schema, task, marker, bodies)

    async def get(self, task: Task) -> Result | None:
        """The whole result of a task, every checksum compared, or None."""
        folders = [folder for _, folder in _places([task], [self._schema, *self._older], True)]
        bodies = await self._outputs.get_many([folder + MARKER for folder in folders])
        for folder, body in zip(folders, bodies, strict=True):
            seen = await asyncio.to_thread(judge, task, folder, body)
            found = await self._outputs.get_many(seen.paths) if seen.paths else []
            files = {
                name: one for name, one in zip(seen.files, found, strict=True) if one is not None
            }
            known = await asyncio.to_thread(digests, files)
            seen = seen.compared([known.get(name) for name in seen.files])
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
            found += await asyncio.to_thread(_rows, some, seen)
        return found

    async def find_output_any_version(self, task: Task) -> str | None:
        """Where the whole result of a task is: in the layout of today, else in an older one."""
        [(output, _)] = await self.check_many([task])
        return output.path if output.missing is None else None

    async def _check(self, tasks: Sequence[Task]) -> list[Seen]:
        """Look where each belongs, and wherever else it may be for what is not there."""
        seen = await self._look(await asyncio.to_thread(_places, tasks, [self._schema], False))
        await self._further(tasks, seen)
        await self._errors(tasks, seen)
        return seen

    async def _further(self, tasks: Sequence[Task], seen: list[Seen]) -> None:
        lacking = [at for at, one in enumerate(seen) if one.missing is not None]
        some = [tasks[at] for at in lacking]
        schemas = [self._schema, *self._older]
        each = 2 * len(schemas)
        places = await asyncio.to_thread(_places, some, schemas, True)
        del places[::each]  # where we have looked
        further = iter(await self._look(places))
        for at in lacking:
            seen[at] = max([seen[at], *islice(further, each - 1)], key=Seen.tells)

    async def _errors(self, tasks: Sequence[Task], seen: list[Seen]) -> None:
        """For those that have left no result: the error that was written in place of it."""
        lacking = [at for at, one in enumerate(seen) if one.tells() < 2]
        some = [tasks[at] for at in lacking]
        places = await asyncio.to_thread(_places, some, [self._schema], True)
        errors = iter(await self._judged(places, ERROR))
        for at in lacking:
            own = [one for one in islice(errors, 2) if one.marker is not None]
            seen[at] = own[0] if own else seen[at]

    async def _look(self, places: Sequence[Place]) -> list[Seen]:
        """What is in these folders, in two calls for all of them."""
        seen = await self._judged(places, MARKER)
        paths = [path for one in seen for path in one.paths]
        if not paths:
            return seen
        return await asyncio.to_thread(_compare, seen, await self._outputs.digests(paths))

    async def _judged(self, places: Sequence[Place], name: str) -> list[Seen]:
        if not places:
            return []
        bodies = await self._outputs.get_many([folder + name for _, folder in places])
        return await asyncio.to_thread(_judge_all, places, bodies, name)

    async def _keep(
        self, schema: Schema, task: Task, marker: Marker, files: Mapping[str, bytes]
    ) -> None:
        """Write it where it belongs, unless a whole one is there. What others do meanwhile is seen when
        the marker is made: then we look again."""
        name = MARKER if marker.error is None else ERROR
        places = _places([task], [schema], True)
        for _ in range(_ROUNDS):
            seen = await self._look(places)
            if any(one.missing is None for one in seen):
                return
            ours = _ours(seen[0])
            if name == ERROR:
                seen = await self._judged(places, ERROR)
                ours = ours and _ours(seen[0])
            if await self._write(seen[0 if ours else 1], name, marker, files):
                return
        raise Unavailable(f"{places[0][1]}{name} changes while it is written. Try again.")

    async def _write(self, at: Seen, name: str, marker: Marker, files: Mapping[str, bytes]) -> bool:
        for file, body in files.items():
            path = file_path(at.folder, file, marker.files[file].sha256)
            await self._outputs.put(path, body)
        failpoint("outputs.result_files_written")
        if at.free:
            return await self._outputs.create(at.folder + name, encode(marker))
        # It is this task's: whatever of it comes meanwhile, ours is as good.
        await self._outputs.put(at.folder + name, encode(marker))
        return True


def _places(tasks: Sequence[Task], schemas: Sequence[Schema], apart: bool) -> list[Place]:
    """Where the results of these tasks may be, the first place of each first."""
    return [
        (task, path(task))
        for task in tasks
        for schema in schemas
        for path in ((schema.path, schema.path_apart) if apart else (schema.path,))
    ]


def _ours(first: Seen) -> bool:
    """Whether a first folder is free or this task's. Of what cannot be read, nobody knows whose it is."""
    return first.free or first.marker is not None


def _judge_all(places: Sequence[Place], bodies: Sequence[bytes | None], name: str) -> list[Seen]:
    return [judge(*place, body, name) for place, body in zip(places, bodies, strict=True)]


def _compare(seen: Sequence[Seen], found: Sequence[Digest | None]) -> list[Seen]:
    rest = iter(found)
    return [one.compared(list(islice(rest, len(one.files)))) for one in seen]


def _rows(tasks: Sequence[Task], seen: Sequence[Seen]) -> list[tuple[Output, Writer | None]]:
    return [one.row(task) for task, one in zip(tasks, seen, strict=True)]
