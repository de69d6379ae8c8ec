"""Manifests in an output store: one task a line, stored under the checksum of the whole."""

import asyncio
import hashlib
import tempfile
from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import IO, TypeVar

from holdfast.core.errors import Corrupt, Invalid, Unavailable
from holdfast.core.limits import ENTRIES_MAX, TASK_BYTES_MAX
from holdfast.core.manifest import Task, decode_task, encode_task
from holdfast.ports.outputs import Outputs

_BATCH_LINES = 1000
_PARTS = 16

T = TypeVar("T")


def manifest_path(sha256: str) -> str:
    return f"manifests/{sha256}.jsonl"


async def store_manifest(outputs: Outputs, lines: AsyncIterator[bytes]) -> tuple[str, int]:
    """Store a manifest, one task a line; return its checksum and its number of tasks. `Invalid` names the
    line that is wrong, or the two that are the same."""
    file = await _in_thread(_temporary)
    try:
        draft = _ManifestFile(file)
        async for some in _batches(lines):
            await _in_thread(draft.add, some)
        sha256 = await _in_thread(draft.finish)
        path = manifest_path(sha256)
        [found] = await outputs.digests([path])
        if found is None or found.sha256 != sha256:
            await outputs.put_file(path, Path(file.name))
        return sha256, draft.count
    finally:
        # Closing flushes again what could not be written; the file is not needed any more.
        with suppress(OSError):
            file.close()


async def read_tasks(outputs: Outputs, sha256: str) -> AsyncGenerator[Task, None]:
    """Yield the tasks of a manifest, in order. Raise `NotFound` if there is no such manifest, and `Corrupt`
    if its bytes differ from what was stored, which may be known only at the end."""
    path = manifest_path(sha256)
    seen = hashlib.sha256()
    number = 0
    try:
        async for line in split_lines(hashed(outputs.read(path), seen)):
            number += 1
            yield decode_task(line, number)
    except Invalid as error:
        raise Corrupt(f"{path} is damaged: {error.message}") from error
    if seen.hexdigest() != sha256:
        raise Corrupt(f"{path} is damaged: its checksum differs.")


async def read_task_batches(outputs: Outputs, sha256: str, size: int) -> AsyncGenerator[list[Task], None]:
    """As `read_tasks`, `size` tasks at a time."""
    batch: list[Task] = []
    async with aclosing(read_tasks(outputs, sha256)) as tasks:
        async for task in tasks:
            batch.append(task)
            if len(batch) == size:
                yield batch
                batch = []
    if batch:
        yield batch


async def split_lines(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a stream of bytes, without line ends; raise `Invalid` for a line that is too long
    for a task."""
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


async def hashed(parts: AsyncIterator[bytes], digest: "hashlib._Hash") -> AsyncIterator[bytes]:
    async for part in parts:
        digest.update(part)
        yield part


async def _batches(lines: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
    some: list[bytes] = []
    size = 0
    async for line in lines:
        some.append(line)
        size += len(line)
        if len(some) == _BATCH_LINES or size > TASK_BYTES_MAX:
            yield some
            some, size = [], 0
    if some:
        yield some


async def _in_thread(call: Callable[..., T], *arguments: object) -> T:
    try:
        return await asyncio.to_thread(call, *arguments)
    except OSError as error:
        raise Unavailable(f"The manifest cannot be written to a temporary file here: {error}") from error


def _temporary() -> IO[bytes]:
    return tempfile.NamedTemporaryFile(prefix="holdfast-manifest-")


class _ManifestFile:
    """A manifest while it is written, in threads, one call at a time.

    To find duplicate tasks it keeps 64 bits of every id, in parts that are checked one by one: a set of
    all ids would take 130 bytes for each.
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
            self._remember(task)
            canonical = encode_task(task)
            self._sha256.update(canonical)
            self._file.write(canonical)

    def finish(self) -> str:
        """Return the checksum when all is written and no task occurs twice."""
        if not self.count:
            raise Invalid("A manifest has at least one task.")
        self._file.flush()
        self._check_unique({one for ids in self._ids for one in _repeated(ids)})
        return self._sha256.hexdigest()

    def _remember(self, task: Task) -> None:
        short_id = _short_id(task)
        self._ids[short_id % _PARTS].append(short_id)

    def _check_unique(self, suspects: set[int]) -> None:
        if not suspects:
            return
        self._file.seek(0)
        first: dict[str, int] = {}
        for number, line in enumerate(self._file, 1):
            task = decode_task(line, number)
            if _short_id(task) in suspects:
                before = first.setdefault(task.task_id, number)
                if before != number:
                    raise Invalid(f"Lines {before} and {number} are the same task; give each once.")


def _short_id(task: Task) -> int:
    return int(task.task_id[:16], 16)


def _repeated(ids: Iterable[int]) -> set[int]:
    seen: set[int] = set()
    return {one for one in ids if one in seen or seen.add(one)}  # type: ignore[func-returns-value]
