"""The files of an output store in a directory: read, listed and written, never outside of its root."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from io import FileIO
from pathlib import Path
from typing import Literal

from holdfast.core.errors import Invalid, NotFound, Unavailable
from holdfast.outputs.identity import (
    IDENTITY,
    RESERVED_PREFIX,
    decode_identity,
    encode_identity,
    new_identity,
    no_store,
)
from holdfast.ports import Digest
from holdfast.system import SystemIds, flush_to_disk

PART_BYTES = 256 * 1024
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR)

Write = Callable[[int], None]


class Root:
    """The open root of a store, from which all files are opened."""

    def __init__(self, place: Path, handle: int) -> None:
        self.place = place
        self._handle = handle
        self._inside = _real_path(handle, place).rstrip("/") + "/"

    def file(self, path: str) -> int | None:
        """Return the file at `path`, open for reading, or None if there is no file."""
        # Without O_NONBLOCK, a pipe at this path would block forever.
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
        """Return the folder at `path`, open, or None if there is no folder."""
        return self._open(path or ".", os.O_RDONLY | os.O_DIRECTORY)

    def walk(self, folder: str) -> Iterator[tuple[str, int]]:
        """Yield the files below a folder with their sizes, without links."""
        waiting = [folder]
        while waiting:
            above = waiting.pop()
            with translate_os_errors(self.place, above):
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
        try:
            inside = f"{_real_path(file, self.place / path)}/".startswith(self._inside)
            if not inside:
                raise Unavailable(f"{self.place}/{path} leads out of the output store, by a link.")
        except BaseException:
            os.close(file)
            raise
        return file


def _entries(folder: int) -> Iterator["os.DirEntry[str]"]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(RESERVED_PREFIX):
                yield entry


def _real_path(file: int, place: Path) -> str:
    """Return the real path of an open file, from its descriptor: no rename can change it meanwhile. On a
    system without /proc, from the `place` that it was opened by, which has to lead to the same file still."""
    try:
        return os.readlink(f"/proc/self/fd/{file}")
    except OSError:
        real = os.path.realpath(place)
        if not os.path.samestat(os.fstat(file), os.stat(real)):
            raise Unavailable(f"{place} was replaced while it was opened.") from None
        return real


def unlink_file(folder: int, name: str) -> None:
    """Remove a file, if there is one. A folder is left alone."""
    try:
        os.unlink(name, dir_fd=folder)
    except (FileNotFoundError, IsADirectoryError):
        return
    except PermissionError:  # macOS says so of a folder
        if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise
        return
    flush_to_disk(folder)


def read_all(file: int) -> bytes:
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
def temporary_file(folder: int, write: Write) -> Iterator[str]:
    """Yield the name of a complete and durable file in `folder`, to be renamed; remove it on an error."""
    name = f"{RESERVED_PREFIX}{SystemIds().new()}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    file = os.open(name, flags, 0o666, dir_fd=folder)
    try:
        try:
            write(file)
            flush_to_disk(file)
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


def copy_file(file: int, source: Path) -> None:
    with open_source(source) as opened:
        while part := opened.read(PART_BYTES):
            write_all(file, part)


def open_source(source: Path) -> FileIO:
    """Open a file that is to become an output; its errors are not those of the store."""
    try:
        return source.open("rb", buffering=0)
    except FileNotFoundError as error:
        raise NotFound(f"There is no file {source} to store as an output.") from error
    except IsADirectoryError as error:
        raise Invalid(f"{source} is a folder; an output is a file.") from error
    except OSError as error:
        raise Unavailable(f"{source} cannot be read: {error.strerror}") from error


def rename(folder: int, name: str, to: str, place: str) -> None:
    try:
        os.rename(name, to, src_dir_fd=folder, dst_dir_fd=folder)
    except (IsADirectoryError, FileExistsError) as error:
        raise Invalid(f"{place} has objects below it: it cannot be one itself.") from error


def link(folder: int, name: str, to: str, place: str) -> bool:
    """Give a temporary file its name, unless that name is taken; the temporary name is removed."""
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


def create_store(place: Path) -> str:
    """Return the id of the store at `place`; create it if it does not exist, once for all processes."""
    _make_folder(place)
    with translate_os_errors(place), open_folder(place) as folder:
        if (found := read_identity(folder, place)) is not None:
            return found
        body = encode_identity(new_identity())
        with temporary_file(folder, lambda file: write_all(file, body)) as name:
            link(folder, name, IDENTITY, IDENTITY)
        flush_to_disk(folder)
        return require_identity(folder, place)


def _make_folder(place: Path) -> None:
    with translate_os_errors(place):
        if place.exists():
            return
        _make_folder(place.parent)
        with suppress(FileExistsError):
            place.mkdir()
        with open_folder(place.parent) as above:
            flush_to_disk(above)


def require_identity(folder: int, place: Path) -> str:
    """Return the id of the store whose root is open; raise `Unavailable` if it is not a store."""
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
        return decode_identity(read_all(file), str(place)).store_id
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
def translate_os_errors(
    place: Path, path: str = "", applied: Literal["no", "unknown"] = "no"
) -> Iterator[None]:
    """Raise `Unavailable` for an error of the system: it does not mean that an output is missing."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise Unavailable(f"{place / path}: {reason}", applied=applied) from error
