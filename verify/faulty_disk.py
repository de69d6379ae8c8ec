"""A disk that fails on demand: the file calls SQLite makes in this process, answered with an error.

The methods of the `unix` VFS inside apsw are wrapped in place, below Python. An `apsw.VFS` in Python
will not do: its exception reaches the caller even where SQLite passes over the error, as it does when
the checkpoint after a commit fails, and a commit that stands would look like one that failed.
"""

import ctypes
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import apsw

Method = Callable[..., int]
_POINTER, _INT, _LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64

_IO_METHODS = 19
"""How many pointers a `sqlite3_io_methods` takes, and where the wrapped ones stand in it."""
_PLACES = {
    "xClose": 1,
    "xRead": 2,
    "xWrite": 3,
    "xTruncate": 4,
    "xSync": 5,
    "xShmMap": 13,
    "xShmLock": 14,
}
_SHM_LOCK = 2
_VFS_PLACES = {"xOpen": 5, "xDelete": 6}
"""The same for a `sqlite3_vfs`."""
_TYPES = {
    "xOpen": ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER, _POINTER, _INT, _POINTER),
    "xDelete": ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER, _INT),
    "xClose": ctypes.CFUNCTYPE(_INT, _POINTER),
    "xRead": ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER, _INT, _LONG),
    "xWrite": ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER, _INT, _LONG),
    "xTruncate": ctypes.CFUNCTYPE(_INT, _POINTER, _LONG),
    "xSync": ctypes.CFUNCTYPE(_INT, _POINTER, _INT),
    "xShmMap": ctypes.CFUNCTYPE(_INT, _POINTER, _INT, _INT, _INT, _POINTER),
    "xShmLock": ctypes.CFUNCTYPE(_INT, _POINTER, _INT, _INT, _INT),
}


@dataclass(frozen=True)
class Fault:
    """The `number`-th call of this kind answers `code`; with `sticky`, every later one does too.

    `landed` is the share of a failed write that is in the file all the same.
    """

    call: str
    number: int
    code: int
    sticky: bool = False
    landed: float = 0.0


class Shadow(Protocol):
    """Somebody who follows what reaches the disk, by file name."""

    def written(self, name: str, offset: int, data: bytes) -> None: ...

    def truncated(self, name: str, size: int) -> None: ...

    def synced(self, name: str, *, failed: bool) -> None: ...

    def deleted(self, name: str, *, durable: bool) -> None: ...


class FaultyDisk:
    """Inside its `with` block every file call that SQLite makes in this process passes here."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.struck = 0
        self.shadow: Shadow | None = None
        self._fault: Fault | None = None
        self._counting = False
        self._names: dict[int, str] = {}
        self._tables: dict[int, ctypes.Array[Any]] = {}
        self._kept: list[object] = []
        self._replaced: list[tuple[int, int]] = []

    def arm(self, fault: Fault | None) -> None:
        """Count the calls anew, and let this one fail; None for a disk that works."""
        self.calls.clear()
        self.struck = 0
        self._fault = fault
        self._counting = True

    def free(self) -> None:
        """The disk works again; the counts stay as they are."""
        self._fault = None
        self._counting = False

    def __enter__(self) -> "FaultyDisk":
        vfs = _unix_vfs()
        wrappers: dict[str, Method] = {"xOpen": self._open, "xDelete": self._delete}
        for name, place in _VFS_PLACES.items():
            pointer = _POINTER.from_address(vfs + 8 * place)
            assert pointer.value is not None
            self._replaced.append((vfs + 8 * place, pointer.value))
            pointer.value = self._wrapped(name, pointer.value, wrappers[name])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self._replaced:
            address, original = self._replaced.pop()
            _POINTER.from_address(address).value = original

    def _wrapped(self, name: str, original: int, wrapper: Method) -> int:
        """The address of a function that calls ours with the original before its own values."""
        made = _TYPES[name](_guarded(partial(wrapper, _TYPES[name](original))))
        self._kept.append(made)
        address = ctypes.cast(made, _POINTER).value
        assert address is not None
        return address

    def _table(self, methods: int) -> "ctypes.Array[Any]":
        """A file's methods with ours in the place of some; made once for each kind of file."""
        if methods not in self._tables:
            table = (_POINTER * _IO_METHODS).from_buffer_copy(ctypes.string_at(methods, 8 * _IO_METHODS))
            wrappers: dict[str, Method] = {
                "xClose": self._close,
                "xRead": self._read,
                "xWrite": self._write,
                "xTruncate": self._truncate,
                "xSync": self._sync,
                "xShmMap": self._map_memory,
                "xShmLock": self._lock_memory,
            }
            for name, place in _PLACES.items():
                original = table[place]
                if original:  # a file without locks has no memory to map
                    table[place] = self._wrapped(name, original, wrappers[name])
            self._tables[methods] = table
        return self._tables[methods]

    def _strike(self, call: str) -> Fault | None:
        """Count the call; the fault when it is this one's turn to fail."""
        self.calls[call] += self._counting
        fault, number = self._fault, self.calls[call]
        if fault is None or fault.call != call:
            return None
        if number == fault.number or (fault.sticky and number > fault.number):
            self.struck += 1
            return fault
        return None

    def _open(self, original: Method, vfs: int, name: int | None, file: int, flags: int, out: int) -> int:
        methods = _POINTER.from_address(file)
        if fault := self._strike("xOpen"):
            methods.value = None
            return fault.code
        code = original(vfs, name, file, flags, out)
        if code == apsw.SQLITE_OK and methods.value is not None:
            methods.value = ctypes.addressof(self._table(methods.value))
            self._names[file] = _file_name(name)
        return code

    def _delete(self, original: Method, vfs: int, name: int, durable: int) -> int:
        code = original(vfs, name, durable)
        if code == apsw.SQLITE_OK and self.shadow:
            self.shadow.deleted(_file_name(name), durable=bool(durable))
        return code

    def _close(self, original: Method, file: int) -> int:
        self._names.pop(file, None)
        return original(file)

    def _read(self, original: Method, file: int, data: int, size: int, offset: int) -> int:
        fault = self._strike("xRead")
        return fault.code if fault else original(file, data, size, offset)

    def _write(self, original: Method, file: int, data: int, size: int, offset: int) -> int:
        fault = self._strike("xWrite")
        if fault:
            size = int(size * fault.landed)
        code = original(file, data, size, offset) if size else apsw.SQLITE_OK
        if self.shadow and size:
            self.shadow.written(self._names[file], offset, ctypes.string_at(data, size))
        return fault.code if fault else code

    def _truncate(self, original: Method, file: int, size: int) -> int:
        if fault := self._strike("xTruncate"):
            return fault.code
        if self.shadow:
            self.shadow.truncated(self._names[file], size)
        return original(file, size)

    def _sync(self, original: Method, file: int, flags: int) -> int:
        fault = self._strike("xSync")
        if self.shadow:
            self.shadow.synced(self._names[file], failed=fault is not None)
        return fault.code if fault else original(file, flags)

    def _map_memory(self, original: Method, file: int, page: int, size: int, extend: int, out: int) -> int:
        if fault := self._strike("xShmMap"):
            _POINTER.from_address(out).value = None
            return fault.code
        return original(file, page, size, extend, out)

    def _lock_memory(self, original: Method, file: int, place: int, count: int, flags: int) -> int:
        fault = self._strike("xShmLock") if flags & _SHM_LOCK else None
        return fault.code if fault else original(file, place, count, flags)


def _file_name(pointer: int | None) -> str:
    """The last part of a path; nothing for a temporary file, which has none."""
    return Path(ctypes.string_at(pointer).decode()).name if pointer else ""


def _guarded(method: Method) -> Method:
    """An error of our own must fail the call: ctypes would answer that all is well."""

    def guarded(*values: Any) -> int:
        try:
            return method(*values)
        except BaseException as error:
            print(f"the faulty disk itself broke: {error!r}", file=sys.stderr, flush=True)
            return apsw.SQLITE_INTERNAL

    return guarded


def _unix_vfs() -> int:
    """The address of the `sqlite3_vfs` that opens files here."""
    pointer = _POINTER()
    with tempfile.TemporaryDirectory() as folder:
        connection = apsw.Connection(f"{folder}/any.db")
        connection.file_control("main", apsw.SQLITE_FCNTL_VFS_POINTER, ctypes.addressof(pointer))
        connection.close()
    assert pointer.value is not None
    [details] = [found for found in apsw.vfs_details() if found["zName"] == "unix"]
    found = _POINTER.from_address(pointer.value + 8 * _VFS_PLACES["xOpen"]).value
    assert found == details["xOpen"], "the files here are not opened by the unix VFS"
    return pointer.value
