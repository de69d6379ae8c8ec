"""The world as it is: real clocks, real chance. Everything else gets these by injection."""

import asyncio
import atexit
import gc
import os
import socket
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import NoReturn, TypeVar

from holdfast.ports import Clock, Ids

T = TypeVar("T")


def machine() -> str:
    """The name of this machine: files that were written here are here."""
    return socket.gethostname()


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class BootClock(SystemClock):
    """The machine's clocks, with a sleep of the machine among the seconds that it counts."""

    def monotonic(self) -> float:
        return time.clock_gettime(_BOOT_SECONDS)


_BOOT_SECONDS = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SteadyClock(SystemClock):
    """The wall clock of its making, carried on by the monotonic clock: a step never touches it."""

    def __init__(self) -> None:
        self._anchor = datetime.now(UTC) - timedelta(seconds=time.monotonic())

    def now(self) -> datetime:
        return self._anchor + timedelta(seconds=time.monotonic())


_VARIANT = [f"{0x80 | low:02x}" for low in range(64)]


class SystemIds:
    """Version 7 UUIDs, strictly rising within a process, and the machine's randomness."""

    def __init__(self) -> None:
        self._last = 0
        self._millisecond = 0
        self._prefix = ""
        self._chances: list[str] = []

    def new(self) -> str:
        # 48 bits of milliseconds, then 12 + 6 bits of the fraction with a counter inside what the
        # standard leaves to chance, then 56 random bits. Drawn 64 at a time, and the part that
        # changes once a millisecond kept: 0.7 us an id, not 2.2.
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
            self._chances = [
                f"{drawn[n : n + 2]}-{drawn[n + 2 : n + 14]}" for n in range(0, 896, 14)
            ]
        return f"{self._prefix}{fraction >> 6:03x}-{_VARIANT[fraction & 0x3F]}{self._chances.pop()}"

    def secret(self) -> bytes:
        return os.urandom(32)

    def chance(self) -> float:
        return int.from_bytes(os.urandom(6), "big") / 2**48


def boot_id() -> str | None:
    """The id of this boot of this machine, where the system has one."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None


def boot_seconds() -> float:
    """Seconds since boot, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def asleep_seconds() -> float:
    """Seconds since boot in which the machine slept, and no process of it could renew a lease."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


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


def settle_memory(*, ours: bool) -> None:
    """Let the garbage collector pass over what a process has loaded by now: it stays anyway.

    With `ours`, where no code but this package's runs, it also looks less often. We leave next to no
    cycles, and by default it looks for some after 700 new objects, which is every twenty jobs.
    """
    gc.freeze()
    if ours:
        gc.set_threshold(50_000, 20, 20)


def rest_at_exit(seconds: float) -> None:
    """Before the interpreter ends, give threads that are not Python's own so long to let go of what is.

    An HTTP client in Rust drops its last Python objects a moment after its last answer; before Python
    3.13 one that does so while the interpreter ends takes the process down with SIGABRT.
    """
    atexit.register(time.sleep, seconds)
