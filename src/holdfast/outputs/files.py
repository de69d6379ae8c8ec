"""The files of an output store in a directory: read, listed, written, and never outside of its root."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Literal

from holdfast.core.errors import Invalid, NotFound, Unavailable
from holdfast.outputs.identity import (
    IDENTITY,
    OURS,
    decode_identity,
    encode_identity,
    new_identity,
    no_store,
)
from holdfast.ports import Digest
from holdfast.system import SystemIds

PART_BYTES = 256 * 1024
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR)

Write = Callable[[int], None]


class Root:
    """The open root of a store, from which all else is reached."""

    def __init__(self, place: Path, handle: int) -> None:
        self.place = place
        self._handle = handle
        self._inside = _real_path(handle).rstrip("/") + "/"

    def file(self, path: str) -> int | None:
        """The file at `path`, open for reading, or None when there is none."""
        # Without O_NONBLOCK a pipe that somebody has put there would hold us for ever.
        file = self._open(path, os.O_RDONLY | os.O_NONBLOCK)
        if file is None:
            return None
        mode = os.fstat(file).st_mode
        if stat.S_ISREG(mode):
            return file
        os.close(file)
        if stat.S_ISDIR(mode):
            return None
        raise Unavailable(f"{self.place}/{path} is neither a file nor a folder.")

    def folder(self, path: str) -> int | None:
        """The folder at `path`, open, or None when there is none."""
        return self._open(path or ".", os.O_RDONLY | os.O_DIRECTORY)

    def walk(self, folder: str) -> Iterator[tuple[str, int]]:
        """The files below a folder with their sizes. Links are passed over."""
        waiting = [folder]
        while waiting:
            above = waiting.pop()
            with reported(self.place, above):
                file = self.folder(above)
                if file is None:
                    continue
                try:
                    for entry in _entries(file):
                        path = f"{above}/{entry.name}" if above else entry.name
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(path)
                        elif entry.is_file(follow_symlinks=False) and path != IDENTITY:
                            with suppress(FileNotFoundError):
                                yield path, entry.stat(follow_symlinks=False).st_size
                finally:
                    os.close(file)

    def _open(self, path: str, flags: int) -> int | None:
        try:
            file = os.open(path, flags | os.O_CLOEXEC, dir_fd=self._handle)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return None
            raise
        if not f"{_real_path(file)}/".startswith(self._inside):
            os.close(file)
            raise Unavailable(f"{self.place}/{path} leads out of the output store, by a link.")
        return file


def _entries(folder: int) -> Iterator["os.DirEntry[str]"]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(OURS):
                yield entry


def _real_path(file: int) -> str:
    """Where an open file lies: asked of the file itself, so that nobody can change it under us."""
    try:
        return os.readlink(f"/proc/self/fd/{file}")
    except OSError as error:
        raise Unavailable(f"An output store in a directory needs /proc: {error}") from error


def whole(file: int) -> bytes:
    parts = []
    while part := os.read(file, PART_BYTES):
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def digest(file: int) -> Digest:
    checksum, size = sha256(), 0
    while part := os.read(file, PART_BYTES):
        checksum.update(part)
        size += len(part)
    return Digest(size, checksum.hexdigest())


@contextmanager
def draft(folder: int, write: Write) -> Iterator[str]:
    """The name of a file in `folder` that is whole and durable, to be renamed: else it is removed."""
    name = f"{OURS}{SystemIds().new()}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    file = os.open(name, flags, 0o666, dir_fd=folder)
    try:
        try:
            write(file)
            os.fsync(file)
        finally:
            os.close(file)
        yield name
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise


def write_all(file: int, body: bytes) -> None:
    rest = memoryview(body)
    while rest:
        rest = rest[os.write(file, rest) :]


def copy(file: int, source: Path) -> None:
    """Write all that is in `source`; what is wrong with it is told as such."""
    try:
        opened = source.open("rb", buffering=0)
    except FileNotFoundError as error:
        raise NotFound(f"There is no file {source} to be kept as an output.") from error
    except IsADirectoryError as error:
        raise Invalid(f"{source} is a folder; an output is a file.") from error
    except OSError as error:
        raise Unavailable(f"{source} cannot be read: {error.strerror}") from error
    with opened:
        while part := opened.read(PART_BYTES):
            write_all(file, part)


def rename(folder: int, name: str, to: str, place: str) -> None:
    try:
        os.rename(name, to, src_dir_fd=folder, dst_dir_fd=folder)
    except (IsADirectoryError, FileExistsError) as error:
        raise Invalid(f"{place} has objects below it: it cannot be one itself.") from error


def link(folder: int, name: str, to: str, place: str) -> bool:
    """Give a draft its name, unless something has that name; the draft is gone afterwards."""
    try:
        os.link(name, to, src_dir_fd=folder, dst_dir_fd=folder)
        return True
    except FileExistsError as error:
        if stat.S_ISDIR(os.stat(to, dir_fd=folder, follow_symlinks=False).st_mode):
            raise Invalid(f"{place} has objects below it: it cannot be one itself.") from error
        return False
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)


def make_store(place: Path) -> str:
    """The id of the store at `place`, which is made if there is none; of many who try, one makes it."""
    _make_folder(place)
    with reported(place), open_folder(place) as folder:
        if (found := read_identity(folder, place)) is not None:
            return found
        body = encode_identity(new_identity())
        with draft(folder, lambda file: write_all(file, body)) as name:
            link(folder, name, IDENTITY, IDENTITY)
        os.fsync(folder)
        return known_identity(folder, place)


def _make_folder(place: Path) -> None:
    with reported(place):
        if place.exists():
            return
        _make_folder(place.parent)
        with suppress(FileExistsError):
            place.mkdir()
        with open_folder(place.parent) as above:
            os.fsync(above)


def known_identity(folder: int, place: Path) -> str:
    """The id of the store whose root is open; `Unavailable` when it is none."""
    found = read_identity(folder, place)
    if found is None:
        raise no_store(str(place))
    return found


def read_identity(folder: int, place: Path) -> str | None:
    try:
        file = os.open(IDENTITY, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    try:
        return decode_identity(whole(file), str(place)).store_id
    finally:
        os.close(file)


@contextmanager
def open_folder(place: Path) -> Iterator[int]:
    try:
        folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise no_store(str(place)) from error
    try:
        yield folder
    finally:
        os.close(folder)


@contextmanager
def reported(
    place: Path, path: str = "", applied: Literal["no", "unknown"] = "no"
) -> Iterator[None]:
    """What the system says is no answer about outputs: it means that they were not seen."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise Unavailable(f"{place / path}: {reason}", applied=applied) from error
