"""An output store in a directory, on a disk of this machine or on one that many machines share.

Every operation opens the root, reads the identity of the store there, and reaches all else from that same
open root. So its result is true of this store, even if the store is unmounted or replaced in the meantime.
(Mount a store as a whole, not parts of it.) An object is a file. It is written to a temporary file
`.holdfast-….part` beside its place, made durable, and renamed: a crash leaves at most a temporary file,
which is never read and may be deleted. Links that lead out of the store are not followed.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeAlias, TypeVar

from holdfast.core.errors import Invalid, NotFound
from holdfast.outputs.files import (
    PART_BYTES,
    Root,
    Write,
    copy_file,
    create_store,
    digest,
    link,
    open_folder,
    read_all,
    rename,
    require_identity,
    temporary_file,
    translate_os_errors,
    unlink_file,
    write_all,
)
from holdfast.outputs.identity import another_store, check_path, check_prefix
from holdfast.ports import Digest
from holdfast.system import flush_to_disk

THREADS = 8
_LISTED_BATCH = 1000
_DURABLE_FOLDERS_MAX = 10_000

T = TypeVar("T")
Many: TypeAlias = list[T | None]
Listed: TypeAlias = list[tuple[str, int]]


class DirectoryOutputs:
    """See `holdfast.ports.Outputs`."""

    def __init__(self, root: Path, store_id: str) -> None:
        self._root = root
        self._store_id = store_id
        self._threads = _new_threads()
        self._process = os.getpid()
        self._durable_folders: set[str] = set()

    @classmethod
    async def open(cls, root: Path, *, create: bool) -> "DirectoryOutputs":
        """Open the store at `root`; with `create`, create it if it does not exist."""
        return cls(*await asyncio.to_thread(_identify, root, create))

    @property
    def store_id(self) -> str:
        return self._store_id

    @property
    def place(self) -> str:
        return self._root.as_uri()

    async def put(self, path: str, body: bytes) -> None:
        await self._run(self._put, check_path(path), partial(write_all, body=body))

    async def create(self, path: str, body: bytes) -> bool:
        return await self._run(self._create, check_path(path), body)

    async def put_file(self, path: str, source: Path) -> None:
        await self._run(self._put, check_path(path), partial(copy_file, source=source))

    async def get(self, path: str) -> bytes | None:
        return (await self.get_many([path]))[0]

    async def get_many(self, paths: Sequence[str]) -> Many[bytes]:
        return await self._run(self._read_each, [check_path(path) for path in paths], read_all)

    async def digests(self, paths: Sequence[str]) -> Many[Digest]:
        return await self._run(self._read_each, [check_path(path) for path in paths], digest)

    def read(self, path: str) -> AsyncIterator[bytes]:
        return self._stepwise(self._parts(check_path(path)))

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        async for found in self._stepwise(self._walk(check_prefix(prefix))):
            for one in found:
                yield one

    async def delete(self, path: str) -> None:
        await self._run(self._delete, check_path(path))

    async def check_available(self) -> None:
        await self._run(self._check_identity)

    async def close(self) -> None:
        self._threads.shutdown(wait=False)

    async def _run(self, call: Callable[..., T], *arguments: object) -> T:
        if self._process != os.getpid():  # a fork copies no threads
            self._threads, self._process = _new_threads(), os.getpid()
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)

    async def _stepwise(self, steps: Generator[T]) -> AsyncIterator[T]:
        """Run each step in a thread. The files are closed when `steps` is garbage collected."""
        while (found := await self._run(next, steps, None)) is not None:
            yield found

    @contextmanager
    def _open_root(self) -> Iterator[Root]:
        """Open the root, and check that it is the root of this store."""
        with translate_os_errors(self._root), open_folder(self._root) as folder:
            found = require_identity(folder, self._root)
            if found != self._store_id:
                raise another_store(str(self._root), found, self._store_id)
            yield Root(self._root, folder)

    def _check_identity(self) -> None:
        with self._open_root():
            pass

    def _read_each(self, paths: Sequence[str], read: Callable[[int], T]) -> Many[T]:
        with self._open_root() as root:
            return [self._read_one(root, path, read) for path in paths]

    def _read_one(self, root: Root, path: str, read: Callable[[int], T]) -> T | None:
        with translate_os_errors(self._root, path):
            file = root.file(path)
            if file is None:
                return None
            try:
                return read(file)
            finally:
                os.close(file)

    def _parts(self, path: str) -> Generator[bytes]:
        with self._open_root() as root, translate_os_errors(self._root, path):
            file = root.file(path)
            if file is None:
                raise NotFound(f"There is no {path} in the output store {self.place}.")
            try:
                while part := os.read(file, PART_BYTES):
                    yield part
            finally:
                os.close(file)

    def _walk(self, folder: str) -> Generator[Listed]:
        with self._open_root() as root:
            found = root.walk(folder)
            while some := [*islice(found, _LISTED_BATCH)]:
                yield some

    def _delete(self, path: str) -> None:
        with self._open_root() as root, translate_os_errors(self._root, path, "unknown"):
            folder = root.folder(os.path.dirname(path))
            if folder is None:
                return
            try:
                unlink_file(folder, os.path.basename(path))
            finally:
                os.close(folder)

    def _put(self, path: str, write: Write) -> None:
        with self._open_root() as root, translate_os_errors(self._root, path):
            folder = self._make_durable_folder(root, os.path.dirname(path))
            try:
                with temporary_file(folder, write) as name:
                    rename(folder, name, os.path.basename(path), path)
                with translate_os_errors(self._root, path, "unknown"):
                    flush_to_disk(folder)
            finally:
                os.close(folder)

    def _create(self, path: str, body: bytes) -> bool:
        with self._open_root() as root, translate_os_errors(self._root, path):
            folder = self._make_durable_folder(root, os.path.dirname(path))
            try:
                with temporary_file(folder, partial(write_all, body=body)) as name:
                    made = link(folder, name, os.path.basename(path), path)
                with translate_os_errors(self._root, path, "unknown"):
                    flush_to_disk(folder)
            finally:
                os.close(folder)
            return made or self._read_one(root, path, read_all) == body

    def _make_durable_folder(self, root: Root, path: str) -> int:
        """Return the folder, open, after it and those above it were created and made durable."""
        known = root.folder(path) if not path or path in self._durable_folders else None
        if known is not None:
            return known
        above = self._make_durable_folder(root, os.path.dirname(path))
        try:
            with suppress(FileExistsError):
                os.mkdir(os.path.basename(path), dir_fd=above)
            flush_to_disk(above)
        finally:
            os.close(above)
        folder = root.folder(path)
        if folder is None:
            raise Invalid(f"{path} is an object: nothing can be written below it.")
        if len(self._durable_folders) >= _DURABLE_FOLDERS_MAX:
            self._durable_folders.clear()
        self._durable_folders.add(path)
        return folder


def _new_threads() -> ThreadPoolExecutor:
    """Return threads of its own: a disk that hangs must not block those of other code."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="outputs")


def _identify(root: Path, create: bool) -> tuple[Path, str]:
    root = Path(os.path.abspath(root))
    if create:
        return root, create_store(root)
    with translate_os_errors(root), open_folder(root) as folder:
        return root, require_identity(folder, root)
