"""An output store in a directory, on a disk of this machine or on one that many machines share.

Every operation opens the root, reads there which store it is, and reaches all else from that very root:
what it says is true of this store, even while somebody unmounts it or puts another in its place. (Mount
a store as a whole, not parts of it.) An object is a file. It is written as a draft `.holdfast-….part`
beside its place, made durable, and renamed: a crash leaves at most a draft, which nobody reads and
anybody may delete. Links that lead out of the store are not followed.
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
    copy,
    digest,
    draft,
    known_identity,
    link,
    make_store,
    open_folder,
    rename,
    reported,
    whole,
    write_all,
)
from holdfast.outputs.identity import another_store, check_path, check_prefix
from holdfast.ports import Digest

THREADS = 8
_LISTED_TOGETHER = 1000
_SETTLED_MAX = 10_000

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
        self._settled: set[str] = set()

    @classmethod
    async def open(cls, root: Path, *, create: bool) -> "DirectoryOutputs":
        """The store at `root`; with `create`, it is made if there is none."""
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
        await self._run(self._put, check_path(path), partial(copy, source=source))

    async def get(self, path: str) -> bytes | None:
        return (await self.get_many([path]))[0]

    async def get_many(self, paths: Sequence[str]) -> Many[bytes]:
        return await self._run(self._each, [check_path(path) for path in paths], whole)

    async def digests(self, paths: Sequence[str]) -> Many[Digest]:
        return await self._run(self._each, [check_path(path) for path in paths], digest)

    def read(self, path: str) -> AsyncIterator[bytes]:
        return self._stepwise(self._parts(check_path(path)))

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        async for found in self._stepwise(self._walk(check_prefix(prefix))):
            for one in found:
                yield one

    async def delete(self, path: str) -> None:
        await self._run(self._delete, check_path(path))

    async def verify(self) -> None:
        await self._run(self._look)

    async def close(self) -> None:
        self._threads.shutdown(wait=False)

    async def _run(self, call: Callable[..., T], *arguments: object) -> T:
        if self._process != os.getpid():  # a fork copies no threads
            self._threads, self._process = _new_threads(), os.getpid()
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)

    async def _stepwise(self, steps: Generator[T]) -> AsyncIterator[T]:
        """Each step in a thread. When nobody holds `steps` any longer, its files are closed."""
        while (found := await self._run(next, steps, None)) is not None:
            yield found

    @contextmanager
    def _opened(self) -> Iterator[Root]:
        """The root, seen to be that of this store."""
        with reported(self._root), open_folder(self._root) as folder:
            found = known_identity(folder, self._root)
            if found != self._store_id:
                raise another_store(str(self._root), found, self._store_id)
            yield Root(self._root, folder)

    def _look(self) -> None:
        with self._opened():
            pass

    def _each(self, paths: Sequence[str], read: Callable[[int], T]) -> Many[T]:
        with self._opened() as root:
            return [self._one(root, path, read) for path in paths]

    def _one(self, root: Root, path: str, read: Callable[[int], T]) -> T | None:
        with reported(self._root, path):
            file = root.file(path)
            if file is None:
                return None
            try:
                return read(file)
            finally:
                os.close(file)

    def _parts(self, path: str) -> Generator[bytes]:
        with self._opened() as root, reported(self._root, path):
            file = root.file(path)
            if file is None:
                raise NotFound(f"There is no {path} in the output store {self.place}.")
            try:
                while part := os.read(file, PART_BYTES):
                    yield part
            finally:
                os.close(file)

    def _walk(self, folder: str) -> Generator[Listed]:
        with self._opened() as root:
            found = root.walk(folder)
            while some := [*islice(found, _LISTED_TOGETHER)]:
                yield some

    def _delete(self, path: str) -> None:
        with self._opened() as root, reported(self._root, path, "unknown"):
            folder = root.folder(os.path.dirname(path))
            if folder is None:
                return
            try:
                with suppress(FileNotFoundError, IsADirectoryError):
                    os.unlink(os.path.basename(path), dir_fd=folder)
                    os.fsync(folder)
            finally:
                os.close(folder)

    def _put(self, path: str, write: Write) -> None:
        with self._opened() as root, reported(self._root, path):
            folder = self._settle(root, os.path.dirname(path))
            try:
                with draft(folder, write) as name:
                    rename(folder, name, os.path.basename(path), path)
                with reported(self._root, path, "unknown"):
                    os.fsync(folder)
            finally:
                os.close(folder)

    def _create(self, path: str, body: bytes) -> bool:
        with self._opened() as root, reported(self._root, path):
            folder = self._settle(root, os.path.dirname(path))
            try:
                with draft(folder, partial(write_all, body=body)) as name:
                    made = link(folder, name, os.path.basename(path), path)
                with reported(self._root, path, "unknown"):
                    os.fsync(folder)
            finally:
                os.close(folder)
            return made or self._one(root, path, whole) == body

    def _settle(self, root: Root, path: str) -> int:
        """The folder, open, and durable: it and those above it, whoever has made them."""
        known = root.folder(path) if not path or path in self._settled else None
        if known is not None:
            return known
        above = self._settle(root, os.path.dirname(path))
        try:
            with suppress(FileExistsError):
                os.mkdir(os.path.basename(path), dir_fd=above)
            os.fsync(above)
        finally:
            os.close(above)
        folder = root.folder(path)
        if folder is None:
            raise Invalid(f"{path} is an object: nothing can be written below it.")
        if len(self._settled) >= _SETTLED_MAX:
            self._settled.clear()
        self._settled.add(path)
        return folder


def _new_threads() -> ThreadPoolExecutor:
    """Threads of its own: a disk that hangs must not take those of everybody else."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="outputs")


def _identify(root: Path, create: bool) -> tuple[Path, str]:
    root = Path(os.path.abspath(root))
    if create:
        return root, make_store(root)
    with reported(root), open_folder(root) as folder:
        return root, known_identity(folder, root)
