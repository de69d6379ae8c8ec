"""The spool: events of attempts that are not stored yet, in files that outlive the worker.

One folder for each worker, locked while it lives; one file for each attempt that has an event. A record is
a length, a checksum and msgpack. Nothing is synced: the spool is for a worker that is killed, not for a
machine that loses power.
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
from holdfast.worker.held_job import HeldJob

_HEAD = struct.Struct(">II")
READ_BYTES = 1024 * 1024
UNREADABLE = ".unreadable"


class SpooledEvent(Struct, array_like=True, tag=1, gc=False, frozen=True):
    """One event of an attempt that waits to be published."""

    sequence: int
    event_type: str
    at: float
    stream: str | None
    data: bytes | None
    attributes: Attributes


class AttemptHeader(Struct, array_like=True, tag=2, frozen=True):
    """The first record of a file: whose attempt it is."""

    job_id: str
    attempt: int
    fencing_token: int
    task_token: str | None = None


class Seal(Struct, array_like=True, tag=3, frozen=True):
    """The last record of a file: how the attempt ended."""

    completion: bytes


Record = SpooledEvent | AttemptHeader | Seal


class SpoolBatch(Struct, frozen=True):
    """Events to publish together; `end` is where the next begin, `size` their bytes."""

    events: list[SpooledEvent]
    end: int
    size: int


class AttemptLog(Protocol):
    """The spool of one attempt."""

    def append(self, event: SpooledEvent) -> int:
        """Store the event; return its size in bytes."""
        ...

    def read(self, items: int, size: int) -> SpoolBatch | None:
        """Return the next events that are not sent; at least one, if there is one. Events that cannot be
        read any more are missing, without an error: the gap in the sequence shows it."""
        ...

    def mark_sent(self, end: int) -> None: ...

    def seal(self, completion: bytes) -> None: ...

    def remove(self) -> None: ...


class Spool(Protocol):
    """Where a worker keeps the events of its attempts until they are published."""

    def log(self, held: HeldJob) -> AttemptLog: ...

    def close(self) -> None: ...


class MemorySpool:
    """A spool for workers that need none on disk: tests, simulations, `holdfast run`."""

    def log(self, held: HeldJob) -> "MemoryAttemptLog":
        return MemoryAttemptLog()

    def close(self) -> None: ...


class MemoryAttemptLog:
    """The spool of one attempt, in memory."""

    def __init__(self) -> None:
        self._events: list[SpooledEvent] = []

    def append(self, event: SpooledEvent) -> int:
        self._events.append(event)
        return _size(event)

    def read(self, items: int, size: int) -> SpoolBatch | None:
        return _batch(((event, n + 1) for n, event in enumerate(self._events)), items, size)

    def mark_sent(self, end: int) -> None:
        del self._events[:end]

    def seal(self, completion: bytes) -> None: ...

    def remove(self) -> None: ...


class FileSpool:
    """A folder of this worker alone. `lock` is held as long as this process, or one that inherits the
    descriptor, lives."""

    def __init__(self, root: Path, name: str) -> None:
        self.folder = root / name
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def set_store(self, store: str) -> None:
        """Record which store it is for: its events must not be published to another."""
        (self.folder / "store").write_text(store)

    def log(self, held: HeldJob) -> "FileAttemptLog":
        grant = held.grant
        path = self.folder / f"{grant.job_id}.{grant.fencing_token}"
        title = AttemptHeader(grant.job_id, grant.attempt, grant.fencing_token, grant.task_token)
        return FileAttemptLog(path, title)

    def close(self) -> None:
        """Release the folder; one without attempts is removed. If it cannot be read now, the next worker
        removes it."""
        with suppress(OSError):
            if not any(attempt_files(self.folder)):
                remove_folder(self.folder)
        os.close(self.lock)


def attempt_files(folder: Path) -> Iterator[Path]:
    """Return the files of attempts in a spool folder."""
    ours = ("lock", "store")
    return (path for path in sorted(folder.iterdir()) if path.name not in ours and path.suffix != UNREADABLE)


def remove_folder(folder: Path) -> None:
    """Remove a spool folder and all that is in it. The caller holds its lock."""
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


class FileAttemptLog:
    """The spool of one attempt, in a file. Events that do not fit on the disk wait in memory.

    Each record is written where the last one ended, even if the file was damaged meanwhile: records that
    cannot be read are skipped, and those after them are read.
    """

    def __init__(self, path: Path, title: AttemptHeader) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._end = 0
        self._rest: list[SpooledEvent] = []
        self._write(title)
        self._sent = self._taken = self._end

    def append(self, event: SpooledEvent) -> int:
        if self._rest or not self._write(event):
            self._rest.append(event)
        else:
            self._taken = self._end
        return _size(event)

    def _write(self, record: Record) -> bool:
        """Write it; return whether all of it was written."""
        body = msgspec.msgpack.encode(record)
        data = _HEAD.pack(len(body), crc32(body)) + body
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._file, data[written:], self._end + written)
        except OSError:
            with suppress(OSError):  # a rest of it is overwritten by the next record
                os.ftruncate(self._file, self._end)
            return False
        self._end += written
        return True

    def read(self, items: int, size: int) -> SpoolBatch | None:
        if self._sent < self._taken:
            if batch := _batch(self._events(), items, size):
                return batch
            self._sent = self._taken = self._end
        return _batch(((event, -1 - n) for n, event in enumerate(self._rest)), items, size)

    def _events(self) -> Iterator[tuple[SpooledEvent, int]]:
        """Return the events in the file that are not sent, as far as they can be read."""
        with suppress(OSError):
            for record, end in _records(self._file, self._sent):
                if isinstance(record, SpooledEvent):
                    yield record, end

    def mark_sent(self, end: int) -> None:
        if end > 0:
            self._sent = end
        else:
            del self._rest[:-end]

    def seal(self, completion: bytes) -> None:
        if not self._rest:  # else an ending would be reported without the events before it
            self._write(Seal(completion))

    def remove(self) -> None:
        os.close(self._file)
        with suppress(OSError):
            self._path.unlink()


def read_file(path: Path) -> list[Record]:
    """Return the records of a file, as far as they are whole."""
    file = os.open(path, os.O_RDONLY)
    try:
        return [record for record, _ in _records(file, 0)]
    finally:
        os.close(file)


_decoder = msgspec.msgpack.Decoder(Record)


def _records(file: int, start: int) -> Iterator[tuple[Record, int]]:
    """Return each whole record from `start` on, and where the next begins. A record that is incomplete, or
    of another version, is the end."""
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


def _batch(events: Iterator[tuple[SpooledEvent, int]], items: int, size: int) -> SpoolBatch | None:
    taken: list[SpooledEvent] = []
    total = end = 0
    for event, after in events:
        more = _size(event)
        if taken and (total + more > size or len(taken) == items):
            break
        taken.append(event)
        total += more
        end = after
    return SpoolBatch(taken, end, total) if taken else None


def batches(events: list[SpooledEvent], items: int, size: int) -> Iterator[list[SpooledEvent]]:
    """Return all of them, in batches that may be published."""
    while batch := _batch(((event, n + 1) for n, event in enumerate(events)), items, size):
        yield batch.events
        events = events[batch.end :]


def _size(event: SpooledEvent) -> int:
    return event_bytes(event.data, event.attributes)
