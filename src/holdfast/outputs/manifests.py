"""Manifests in an output store: one task a line, kept under the checksum of all of them."""

import asyncio
import hashlib
import tempfile
from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeVar

from holdfast.core.errors import Corrupt, Invalid, Unavailable
from holdfast.core.limits import ENTRIES_MAX, TASK_BYTES_MAX
from holdfast.core.manifest import Task, decode_task, encode_task
from holdfast.ports.outputs import Outputs

_TOGETHER = 1000
_PARTS = 16

T = TypeVar("T")


def manifest_path(sha256: str) -> str:
    """Where the manifest with this checksum is."""
    return f"manifests/{sha256}.jsonl"


async def keep(outputs: Outputs, lines: AsyncIterator[bytes]) -> tuple[str, int]:
    """Keep a manifest, one task a line: its checksum and how many tasks it has. `Invalid` names the line
    that is wrong, or the two that are the same."""
    file = await _in_thread(_temporary)
    try:
        draft = _Draft(file)
        async for some in _together(lines):
            await _in_thread(draft.add, some)
        sha256 = await _in_thread(draft.finish)
        path = manifest_path(sha256)
        [found] = await outputs.digests([path])
        if found is None or found.sha256 != sha256:
            await outputs.put_file(path, Path(file.name))
        return sha256, draft.count
    finally:
        with suppress(OSError):  # what could not be written is tried once more, and nobody needs it
            file.close()


async def tasks(outputs: Outputs, sha256: str) -> AsyncGenerator[Task, None]:
    """The tasks of a manifest, in order. `NotFound` when there is none, and `Corrupt`, at the end at the
    latest, when its bytes are not those that were kept: until then, nothing is certain."""
    path = manifest_path(sha256)
    seen = hashlib.sha256()
    number = 0
    try:
        async for line in lines_of(_hashed(outputs.read(path), seen)):
            number += 1
            yield decode_task(line, number)
    except Invalid as error:
        raise Corrupt(f"{path} is damaged: {error.message}") from error
    if seen.hexdigest() != sha256:
        raise Corrupt(f"{path} is damaged: its checksum differs.")


async def lines_of(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines in a stream of bytes that comes in parts, without their ends. `Invalid` for one that is
    too long to be a task."""
    pieces: list[bytes] = []
    size = 0
    async for part in parts:
        *ends, last = part.split(b"\n")
        for end in ends:
            yield b"".join([*pieces, end])
            pieces.clear()
        size = (0 if ends else size) + len(last)
        pieces.append(last)
        if size > TASK_BYTES_MAX:
            raise Invalid(f"A line has more than {TASK_BYTES_MAX:,} bytes.")
    if size:
        yield b"".join(pieces)


async def _hashed(parts: AsyncIterator[bytes], digest: "hashlib._Hash") -> AsyncIterator[bytes]:
    async for part in parts:
        digest.update(part)
        yield part


async def _together(lines: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
    some: list[bytes] = []
    size = 0
    async for line in lines:
        some.append(line)
        size += len(line)
        if len(some) == _TOGETHER or size > TASK_BYTES_MAX:
            yield some
            some, size = [], 0
    if some:
        yield some


async def _in_thread(call: Callable[..., T], *arguments: object) -> T:
    try:
        return await asyncio.to_thread(call, *arguments)
    except OSError as error:
        raise Unavailable(f"The manifest cannot be written down here: {error}") from error


def _temporary() -> IO[bytes]:
    return tempfile.NamedTemporaryFile(prefix="holdfast-manifest-")


class _Draft:
    """A manifest while it is written, in threads, one call at a time.

    To find a task that is there twice it keeps 64 bits of every id, in parts that are gone through one
    by one: a set of all would take 130 bytes for each.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()
        self._ids = [array("Q") for _ in range(_PARTS)]
        self.count = 0

    def add(self, lines: Sequence[bytes]) -> None:
        if self.count + len(lines) > ENTRIES_MAX:
            raise Invalid(f"A manifest has at most {ENTRIES_MAX:,} tasks.")
        for line in lines:
            self.count += 1
            task = decode_task(line, self.count)
            self._note(task)
            canonical = encode_task(task)
            self._sha256.update(canonical)
            self._file.write(canonical)

    def finish(self) -> str:
        """The checksum, when all is written and no task is there twice."""
        if not self.count:
            raise Invalid("A manifest has at least one task.")
        self._file.flush()
        self._check_unique({one for ids in self._ids for one in _repeated(ids)})
        return self._sha256.hexdigest()

    def _note(self, task: Task) -> None:
        known_by = _short(task)
        self._ids[known_by % _PARTS].append(known_by)

    def _check_unique(self, suspects: set[int]) -> None:
        if not suspects:
            return
        self._file.seek(0)
        first: dict[str, int] = {}
        for number, line in enumerate(self._file, 1):
            task = decode_task(line, number)
            if _short(task) in suspects:
                before = first.setdefault(task.task_id, number)
                if before != number:
                    raise Invalid(f"Lines {before} and {number} are the same task; give each once.")


def _short(task: Task) -> int:
    return int(task.task_id[:16], 16)


def _repeated(ids: Iterable[int]) -> set[int]:
    seen: set[int] = set()
    return {one for one in ids if one in seen or seen.add(one)}  # type: ignore[func-returns-value]
