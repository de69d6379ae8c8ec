"""The wake-up: notices other processes' commits while a caller waits, at little cost while nothing happens.

`PRAGMA data_version` shows whether there was a commit. Where the kernel reports writes to the log beside
the file (Linux), an idle process reads it ten times a second and is woken by a commit at once; elsewhere it
reads it every few milliseconds.
"""

import asyncio
import os
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from holdfast.stores.commit_signal import CommitSignal

SOON_SECONDS = 0.001
IDLE_SECONDS = 0.1
BLIND_SECONDS = 0.004
_IN_MODIFY, _IN_ATTRIBUTES = 0x2, 0x4
_CHANGES = _IN_MODIFY | _IN_ATTRIBUTES
_EVENT = struct.Struct("iIII")


class Wakeup:
    """Polls while a caller waits. `has_commit` says whether there was a commit since its last call."""

    def __init__(self, path: Path, signal: CommitSignal, has_commit: Callable[[], bool]) -> None:
        self._signal = signal
        self._has_commit = has_commit
        self._watch = LogWatch(path)
        self._poller: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Poll from now on, until no caller waits."""
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        # A write is reported before its commit is visible, so the next polls come soon, in case the writer
        # does not call `notify_other_processes`: after 1, 2, 4 … ms, at most twice as late as the commit.
        seconds = SOON_SECONDS
        with self._watch:
            while True:
                woken = await self._watch.wait(seconds)
                if not self._signal.has_waiters:
                    return
                if self._has_commit():
                    self._signal.set()
                seconds = SOON_SECONDS if woken else min(2 * seconds, IDLE_SECONDS)

    async def close(self) -> None:
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.gather(self._poller, return_exceptions=True)
        self._watch.close()


def notify_other_processes(log: bytes) -> None:
    """Notify other processes that a commit is visible, by a new modification time of the log."""
    with suppress(OSError):
        os.utime(log)


class LogWatch:
    """The kernel's notifications (inotify) of writes to the log beside the file, where there are any.

    Opened once and kept: closing one takes the kernel some 15 ms, in which this thread is blocked. It is
    read only inside the `with` block.
    """

    def __init__(self, path: Path) -> None:
        self._folder = os.fsencode(path.absolute().parent)
        self._log = os.fsencode(path.name) + b"-wal"
        self._written = asyncio.Event()
        self._descriptor: int | None = None

    def __enter__(self) -> None:
        if self._descriptor is None:
            self._descriptor = _open(self._folder)
        if self._descriptor >= 0:
            asyncio.get_running_loop().add_reader(self._descriptor, self._read, self._descriptor)

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None and self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)

    def _read(self, descriptor: int) -> None:
        """Read the notifications; one without a name says that some were dropped."""
        data, start = os.read(descriptor, 65536), 0
        while start < len(data):
            length = _EVENT.unpack_from(data, start)[3]
            start += _EVENT.size
            if data[start : start + length].rstrip(b"\0") in (self._log, b""):
                self._written.set()
            start += length

    async def wait(self, seconds: float) -> bool:
        """Return whether a write was reported within this time; without notifications, wait a short
        time."""
        if self._descriptor is None or self._descriptor < 0:
            seconds = min(seconds, BLIND_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._written.wait()
        woken = self._written.is_set()
        self._written.clear()
        return woken

    def close(self) -> None:
        if self._descriptor is not None and self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = None


def _open(folder: bytes) -> int:
    """Return a descriptor that reports writes in the folder; -1 where the system has none."""
    import ctypes

    try:
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if descriptor >= 0 and libc.inotify_add_watch(descriptor, folder, _CHANGES) < 0:
            os.close(descriptor)
            return -1
    except (OSError, AttributeError):
        return -1
    return descriptor
