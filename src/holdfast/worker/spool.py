"""The spool: what attempts said and did not get stored yet, in files that outlive the worker.

One folder for each worker, locked while it lives; one file for each attempt that said something. A
record is a length, a checksum and msgpack. Nothing is synced: the spool is for a worker that is
killed, not for a machine that loses power.
"""

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from zlib import crc32

import msgspec
from msgspec import Struct

from holdfast.core.event import Attributes
from holdfast.core.quota import event_bytes
from holdfast.worker.hold import Hold

_HEAD = struct.Struct(">II")
READ_BYTES = 1024 * 1024
UNREADABLE = ".unreadable"


class Piece(Struct, array_like=True, tag=1, gc=False, frozen=True):
    """One event of an attempt, as it waits."""

    sequence: int
    event_type: str
    at: float
    stream: str | None
    data: bytes | None
    attributes: Attributes


class Title(Struct, array_like=True, tag=2, frozen=True):
    """The first record of a file: whose attempt it is."""

    job_id: str
    attempt: int
    fencing_token: int
    task_token: str | None = None


class Seal(Struct, array_like=True, tag=3, frozen=True):
    """The last record of a file: how the attempt ended."""

    note: bytes


Record = Piece | Title | Seal


class Batch(Struct, frozen=True):
    """Pieces to publish together; `end` is where the next begin, `size` what they take."""

    pieces: list[Piece]
    end: int
    size: int


class Log(Protocol):
    """The spool of one attempt."""

    def append(self, piece: Piece) -> int:
        """Keep it, and answer how many bytes it takes."""
        ...

    def read(self, items: int, size: int) -> Batch | None:
        """The next pieces that are not sent; at least one, if there is one. What was kept and cannot be read
        any more is missing, without an error: the sequences tell."""
        ...

    def sent(self, end: int) -> None: ...

    def seal(self, note: bytes) -> None: ...

    def remove(self) -> None: ...


class Spool(Protocol):
    """Where a worker keeps what its attempts say."""

    def log(self, hold: Hold) -> Log: ...

    def close(self) -> None: ...


class MemorySpool:
    """A spool for workers that need none on disk: tests, simulations, one job in a terminal."""

    def log(self, hold: Hold) -> "MemoryLog":
        return MemoryLog()

    def close(self) -> None: ...


class MemoryLog:
    """The spool of one attempt, in memory."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []

    def append(self, piece: Piece) -> int:
        self._pieces.append(piece)
        return _size(piece)

    def read(self, items: int, size: int) -> Batch | None:
        return _batch(((piece, n + 1) for n, piece in enumerate(self._pieces)), items, size)

    def sent(self, end: int) -> None:
        del self._pieces[:end]

    def seal(self, note: bytes) -> None: ...

    def remove(self) -> None: ...


class FileSpool:
    """A folder of this worker's own. `lock` is held as long as this process, or one that inherits the
    descriptor, is there."""

    def __init__(self, root: Path, name: str) -> None:
        self.folder = root / name
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def label(self, store: str) -> None:
        """Say which store it is for: nobody else may tell another what is in it."""
        (self.folder / "store").write_text(store)

    def log(self, hold: Hold) -> "FileLog":
        grant = hold.grant
        path = self.folder / f"{grant.job_id}.{grant.fencing_token}"
        title = Title(grant.job_id, grant.attempt, grant.fencing_token, grant.task_token)
        return FileLog(path, title)

    def close(self) -> None:
        """Give the folder up; one that is empty is removed. What cannot be looked at now, the next worker
        removes."""
        with suppress(OSError):
            if not any(attempts(self.folder)):
                remove_folder(self.folder)
        os.close(self.lock)


def attempts(folder: Path) -> Iterator[Path]:
    """The files of attempts in a spool folder."""
    ours = ("lock", "store")
    return (
        path
        for path in sorted(folder.iterdir())
        if path.name not in ours and path.suffix != UNREADABLE
    )


def remove_folder(folder: Path) -> None:
    """Remove a spool folder whose lock is ours, and all that is in it."""
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


class FileLog:
    """The spool of one attempt, in a file. What a full disk does not take waits in memory.

    Each record is written where the last one ended, whatever became of the file meanwhile: what cannot be
    read any more is passed over, and what comes after it is read.
    """

    def __init__(self, path: Path, title: Title) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._end = 0
        self._rest: list[Piece] = []
        self._write(title)
        self._sent = self._taken = self._end

    def append(self, piece: Piece) -> int:
        if self._rest or not self._write(piece):
            self._rest.append(piece)
        else:
            self._taken = self._end
        return _size(piece)

    def _write(self, record: Record) -> bool:
        """Whether the file has taken it, whole."""
        body = msgspec.msgpack.encode(record)
        data = _HEAD.pack(len(body), crc32(body)) + body
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._file, data[written:], self._end + written)
        except OSError:
            with suppress(OSError):  # what is left of it is overwritten by the next
                os.ftruncate(self._file, self._end)
            return False
        self._end += written
        return True

    def read(self, items: int, size: int) -> Batch | None:
        if self._sent < self._taken:
            if batch := _batch(self._pieces(), items, size):
                return batch
            self._sent = self._taken = self._end
        return _batch(((piece, -1 - n) for n, piece in enumerate(self._rest)), items, size)

    def _pieces(self) -> Iterator[tuple[Piece, int]]:
        """Those in the file that are not sent, as far as they can be read."""
        with suppress(OSError):
            for record, end in _records(self._file, self._sent):
                if isinstance(record, Piece):
                    yield record, end

    def sent(self, end: int) -> None:
        if end > 0:
            self._sent = end
        else:
            del self._rest[:-end]

    def seal(self, note: bytes) -> None:
        if not self._rest:  # else an ending would be told without all that came before it
            self._write(Seal(note))

    def remove(self) -> None:
        os.close(self._file)
        with suppress(OSError):
            self._path.unlink()


def read_file(path: Path) -> list[Record]:
    """What a file holds, as far as it is whole."""
    file = os.open(path, os.O_RDONLY)
    try:
        return [record for record, _ in _records(file, 0)]
    finally:
        os.close(file)


_decoder = msgspec.msgpack.Decoder(Record)


def _records(file: int, start: int) -> Iterator[tuple[Record, int]]:
    """Each whole record from `start` on, and where the next begins. One that is torn, or of another
    version, ends them."""
    data = b""
    while more := os.pread(file, READ_BYTES, start + len(data)):
        data += more
        at = 0
        while len(data) >= at + _HEAD.size:
            length, checksum = _HEAD.unpack_from(data, at)
            end = at + _HEAD.size + length
            if len(data) < end:
                break
            body = data[at + _HEAD.size : end]
            if crc32(body) != checksum:
                return
            try:
                record = _decoder.decode(body)
            except msgspec.MsgspecError:
                return
            at = end
            yield record, start + end
        start, data = start + at, data[at:]


def _batch(pieces: Iterator[tuple[Piece, int]], items: int, size: int) -> Batch | None:
    taken: list[Piece] = []
    total = end = 0
    for piece, after in pieces:
        more = _size(piece)
        if taken and (total + more > size or len(taken) == items):
            break
        taken.append(piece)
        total += more
        end = after
    return Batch(taken, end, total) if taken else None


def batches(pieces: list[Piece], items: int, size: int) -> Iterator[list[Piece]]:
    """All of them, in batches that may be published."""
    while batch := _batch(((piece, n + 1) for n, piece in enumerate(pieces)), items, size):
        yield batch.pieces
        pieces = pieces[batch.end :]


def _size(piece: Piece) -> int:
    return event_bytes(piece.data, piece.attributes)
