"""The wake-up: notices other processes' commits while somebody waits, at no cost while nothing happens.

`PRAGMA data_version` is what tells; when to ask it is a hint of the file system. Where the kernel
reports what is done to the log beside the file (Linux), an idle process asks ten times a second and is
woken by a commit at once; elsewhere it asks every few milliseconds.
"""

import asyncio
import ctypes
import os
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from holdfast.stores.signal import Signal

SOON_SECONDS = 0.001
IDLE_SECONDS = 0.1
BLIND_SECONDS = 0.004
SOON_TURNS = 30
_IN_MODIFY, _IN_ATTRIBUTES = 0x2, 0x4
_CHANGES = _IN_MODIFY | _IN_ATTRIBUTES
_EVENT = struct.Struct("iIII")


class Wakeup:
    """Polls while anybody waits. `look` says whether something was committed since it last did."""

    def __init__(self, path: Path, signal: Signal, look: Callable[[], bool]) -> None:
        self._signal = signal
        self._look = look
        self._watch = Watch(path)
        self._poller: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Somebody is about to wait."""
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        # A write is reported before its commit can be seen, so it is looked for a little longer, in
        # case that whoever wrote does not `ring`.
        quiet = 0
        with self._watch:
            while True:
                soon = quiet < SOON_TURNS
                stirred = await self._watch.wait(SOON_SECONDS if soon else IDLE_SECONDS)
                if not self._signal.awaited:
                    return
                if self._look():
                    self._signal.set()
                quiet = 0 if stirred else quiet + 1

    async def close(self) -> None:
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.gather(self._poller, return_exceptions=True)
        self._watch.close()


def ring(log: bytes) -> None:
    """Tell other processes that a commit can be seen now: a new time on the log is reported to them."""
    with suppress(OSError):
        os.utime(log)


class Watch:
    """The kernel's word that somebody changes the log beside the file, where there is one.

    Opened once and kept: the kernel takes some 15 ms to close one, in which nothing else of this
    thread moves. It is listened to only inside the `with` block.
    """

    def __init__(self, path: Path) -> None:
        self._folder = os.fsencode(path.absolute().parent)
        self._log = os.fsencode(path.name) + b"-wal"
        self._stirred = asyncio.Event()
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
        """Take in what was reported; a report without a name says that some were dropped."""
        data, start = os.read(descriptor, 65536), 0
        while start < len(data):
            length = _EVENT.unpack_from(data, start)[3]
            start += _EVENT.size
            if data[start : start + length].rstrip(b"\0") in (self._log, b""):
                self._stirred.set()
            start += length

    async def wait(self, seconds: float) -> bool:
        """Whether a write was reported within this time; without the kernel's word, a short while."""
        if self._descriptor is None or self._descriptor < 0:
            seconds = min(seconds, BLIND_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stirred.wait()
        stirred = self._stirred.is_set()
        self._stirred.clear()
        return stirred

    def close(self) -> None:
        if self._descriptor is not None and self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = None


def _open(folder: bytes) -> int:
    """A descriptor that reports writes in the folder; -1 where the system has no such thing."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if descriptor >= 0 and libc.inotify_add_watch(descriptor, folder, _CHANGES) < 0:
            os.close(descriptor)
            return -1
    except (OSError, AttributeError):
        return -1
    return descriptor
