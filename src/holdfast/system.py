"""The real clocks, ids and randomness, which all other code gets by injection; and helpers for tasks."""

import asyncio
import atexit
import fcntl
import gc
import os
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import NoReturn, TypeVar

from holdfast.ports import Clock, Ids

T = TypeVar("T")


def machine_name() -> str:
    """Return the name of this machine, by which plain output files are located."""
    return socket.gethostname()


def usable_cores() -> int:
    """Return how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not on every system
        return os.cpu_count() or 1


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class BootClock(SystemClock):
    """The machine's clocks, with a monotonic clock that goes on while the machine sleeps."""

    def monotonic(self) -> float:
        return boot_seconds()


class SteadyClock(SystemClock):
    """The wall clock at its creation, continued by the monotonic clock: a step does not change it."""

    def __init__(self) -> None:
        self._anchor = datetime.now(UTC) - timedelta(seconds=time.monotonic())

    def now(self) -> datetime:
        return self._anchor + timedelta(seconds=time.monotonic())


_VARIANT = [f"{0x80 | low:02x}" for low in range(64)]
_STAMP_CHARACTERS = len("00000000-0000-7000-")
"""How much of an id comes before its variant: all of its stamp but the lowest six bits."""


class SystemIds:
    """Version 7 UUIDs, strictly rising within a process, and the machine's randomness."""

    def __init__(self) -> None:
        self._last = 0
        self._millisecond = 0
        self._prefix = ""
        self._chances: list[str] = []

    def new(self) -> str:
        # 48 bits of milliseconds, then 12 + 6 bits of the fraction with a counter inside what the
        # standard leaves random, then 56 random bits. Random bits are drawn for 64 ids at a time, and the
        # part that changes once a millisecond is cached: 0.7 us an id, not 2.2.
        stamp = time.time_ns() // 1000 << 8
        if stamp <= self._last:
            stamp = self._last + 1
        self._last = stamp
        fraction = stamp - self._millisecond
        if fraction >= 256_000:
            milliseconds, fraction = divmod(stamp, 256_000)
            self._millisecond = stamp - fraction
            self._prefix = f"{milliseconds >> 16:08x}-{milliseconds & 0xFFFF:04x}-7"
        if not self._chances:
            drawn = os.urandom(7 * 64).hex()
            self._chances = [f"{drawn[n : n + 2]}-{drawn[n + 2 : n + 14]}" for n in range(0, 896, 14)]
        return f"{self._prefix}{fraction >> 6:03x}-{_VARIANT[fraction & 0x3F]}{self._chances.pop()}"

    def many(self, count: int) -> list[str]:
        if count == 1:
            return [self.new()]
        # Up to 64 ids differ in one byte of their stamps, and in their random bits: 0.3 us an id.
        made: list[str] = []
        while len(made) < count:
            first = self.new()
            low = (self._last & 0x3F) + 1
            variants = _VARIANT[low : low + count - len(made) - 1]
            self._last += len(variants)
            start, drawn = first[:_STAMP_CHARACTERS], os.urandom(7 * len(variants)).hex()
            made.append(first)
            made += [
                f"{start}{variant}{drawn[n : n + 2]}-{drawn[n + 2 : n + 14]}"
                for variant, n in zip(variants, range(0, len(drawn), 14), strict=True)
            ]
        return made

    def secret(self) -> bytes:
        return os.urandom(32)

    def chance(self) -> float:
        return int.from_bytes(os.urandom(6), "big") / 2**48


def boot_id() -> str | None:
    """Return the id of this boot of this machine, or None where the system has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return _system_text(b"kern.bootsessionuuid")


def _system_text(name: bytes) -> str | None:
    """Return a text that the kernel of macOS keeps under this name; None elsewhere."""
    import ctypes

    try:
        read = ctypes.CDLL(None).sysctlbyname
    except (AttributeError, OSError):
        return None
    text = ctypes.create_string_buffer(256)
    size = ctypes.c_size_t(len(text))
    if read(name, text, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
        return None
    return text.value.decode("ascii", "replace") or None


def _clocks() -> tuple[int, int]:
    """Return the clocks that count since boot: with the time that the machine slept, and without it. A system
    that cannot tell them apart has one clock for both."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC
    if (uptime := getattr(time, "CLOCK_UPTIME_RAW", None)) is not None:  # macOS
        return time.CLOCK_MONOTONIC_RAW, uptime
    return time.CLOCK_MONOTONIC, time.CLOCK_MONOTONIC


_WITH_SLEEP, _WITHOUT_SLEEP = _clocks()


def boot_seconds() -> float:
    """Return the seconds since boot, sleep included where the system counts it."""
    return time.clock_gettime(_WITH_SLEEP)


def asleep_seconds() -> float:
    """Return the seconds since boot in which the machine slept, so that no process could renew a lease."""
    return time.clock_gettime(_WITH_SLEEP) - time.clock_gettime(_WITHOUT_SLEEP)


def flush_to_disk(file: int) -> None:
    """Return when what was written to this open file or folder survives a power cut. On macOS `fsync` alone
    leaves it in the cache of the disk."""
    if (full := getattr(fcntl, "F_FULLFSYNC", None)) is not None:
        with suppress(OSError):  # a file system or a folder for which there is only `fsync`
            fcntl.fcntl(file, full)
            return
    os.fsync(file)


def resident_bytes(pid: int) -> int:
    """Return the memory that a process uses now; 0 where neither /proc nor `ps` tells."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return _resident_by_ps(pid)


def _resident_by_ps(pid: int) -> int:
    import subprocess

    with suppress(OSError, ValueError, subprocess.SubprocessError):
        said = subprocess.run(  # noqa: S603  # a number is all it is given
            ["ps", "-o", "rss=", "-p", str(pid)],  # noqa: S607  # wherever it is
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=5,
            check=True,
        )
        return int(said.stdout) * 1024
    return 0


ASLEEP_SECONDS = 1.0
"""What comes so much later than it was due was not held up by other work."""
YIELD_SECONDS = 1.0
"""How long after it woke a worker expires no leases, and claims nothing: other workers slept as well."""


class SleepWatch:
    """Each loop of a worker says when it was to run again: if that is long ago, the machine was asleep.

    `suspended` returns the seconds that the machine has slept without its monotonic clock.
    """

    def __init__(self, clock: Clock, suspended: Callable[[], float] = lambda: 0.0) -> None:
        self._clock = clock
        self._suspended = suspended
        self._before = suspended()
        self._woke_at = float("-inf")
        self.wakes = 0
        self.slept = 0.0
        """How often the machine has woken, and how many seconds it had slept the last time."""

    def late(self, due_at: float) -> bool:
        """Return whether the machine has just woken from a sleep, for what was due at this time."""
        now = self._clock.monotonic()
        suspended = self._suspended()
        late = max(0.0, now - due_at) + suspended - self._before
        if late < ASLEEP_SECONDS:
            return False
        self._before = suspended
        if now - self._woke_at >= ASLEEP_SECONDS:  # another loop has not noticed the same
            self.wakes += 1
            self._woke_at, self.slept = now, late
        return True

    @property
    def yielding(self) -> float:
        """For how many seconds from now leases that are over are left to their owners, which may have slept
        as well. Never so short that no time would pass in it."""
        left = self._woke_at + YIELD_SECONDS - self._clock.monotonic()
        return left if left > 0.001 else 0.0


async def first_of(*awaitables: Awaitable[T]) -> T:
    """Return the result of the first awaitable that is done, or raise its exception.

    The earlier argument wins when several are done. The others are cancelled, and have ended when this
    returns. `asyncio.wait` returns a set without an order; here the caller's order decides.
    """
    futures = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    any_done = asyncio.Event()
    try:
        for future in futures:
            future.add_done_callback(lambda _: any_done.set())
        await any_done.wait()
        return next(future for future in futures if future.done()).result()
    finally:
        for future in futures:
            future.cancel()
        # Not `gather`: for futures that are done it takes a turn of the loop on Python 3.11 and none on
        # 3.12, and a seed of the simulation is the same run on both.
        for future in futures:
            if not future.done():
                ended = asyncio.Event()
                future.add_done_callback(lambda _, ended=ended: ended.set())  # type: ignore[misc]
                await ended.wait()
            if not future.cancelled():
                future.exception()


def jittered(seconds: float, ids: Ids) -> float:
    """Return between 75 % and 125 % of `seconds`, so that many processes do not act in step."""
    return seconds * (0.75 + ids.chance() / 2)


async def every(
    seconds: float, action: Callable[[], Awaitable[object]], *, clock: Clock, ids: Ids
) -> NoReturn:
    """Sleep for about `seconds`, then act, until cancelled or until `action` raises."""
    while True:
        await clock.sleep(jittered(seconds, ids))
        await action()


def tune_garbage_collector(*, own_code_only: bool) -> None:
    """Exclude what a process has loaded by now from garbage collection: it stays anyway.

    With `own_code_only`, where no code but this package's runs, collections are also rarer. This package
    leaves next to no cycles, and by default a collection runs after 700 new objects, which is every twenty
    jobs.
    """
    gc.freeze()
    if own_code_only:
        gc.set_threshold(50_000, 20, 20)


def prepare_rust_client() -> Event:
    """Prepare this process for an HTTP client in Rust; return an event that is set in a child which this
    process forks later: the threads of the client are not copied into it.

    The client drops its last Python objects a moment after its last response; before Python 3.13, doing so
    while the interpreter ends aborts the process with SIGABRT. Therefore the exit waits for a moment.
    """
    forked = Event()
    atexit.register(time.sleep, _EXIT_SECONDS)
    os.register_at_fork(after_in_child=forked.set)
    return forked


_EXIT_SECONDS = 0.05
