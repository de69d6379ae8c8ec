"""Virtual time for tests: a manual clock, and a loop that skips all waiting for it."""

import asyncio
import selectors
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from threading import Lock
from typing import Protocol, TypeVar

from holdfast.core.durations import Duration, parse_duration
from holdfast.system import SystemClock

T = TypeVar("T")

GRACE_SECONDS = 0.005
STILL_SECONDS = 0.5
STEP_SECONDS = 0.1
_real = SystemClock()


class VirtualClock:
    """A clock that stands still until it is moved, for any thread and any loop."""

    def __init__(self, start: datetime | None = None) -> None:
        self._start = start or _real.now().replace(microsecond=0)
        self._seconds = 1.0
        self._lock = Lock()
        self._sleepers: list[tuple[float, asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._seconds - 1.0)

    def monotonic(self) -> float:
        return self._seconds

    def advance(self, span: Duration) -> None:
        """Move the clock by a duration, such as 90 or "5m". What becomes due waits for `drain`."""
        self.move_to(self._seconds + parse_duration(span, "The time to pass").total_seconds())

    def advance_to(self, then: datetime) -> None:
        """Move the clock to this time, unless that is past."""
        self.move_to((then - self._start).total_seconds() + 1.0)

    def move_to(self, seconds: float) -> None:
        with self._lock:
            self._seconds = max(seconds, self._seconds)
            due = [sleeper for sleeper in self._sleepers if sleeper[0] <= self._seconds]
            self._sleepers = [sleeper for sleeper in self._sleepers if sleeper not in due]
        for _, loop, future in due:
            if loop is asyncio._get_running_loop():
                _wake(future)
            else:
                with suppress(RuntimeError):  # that loop is closed, and its sleepers with it
                    loop.call_soon_threadsafe(_wake, future)

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            return
        loop = asyncio.get_running_loop()
        sleeper = (self._seconds + seconds, loop, loop.create_future())
        with self._lock:
            self._sleepers.append(sleeper)
        try:
            await sleeper[2]
        finally:
            with self._lock, suppress(ValueError):
                self._sleepers.remove(sleeper)

    def next_of(self, loop: asyncio.AbstractEventLoop) -> float | None:
        """Return when the first sleeper of this loop is due."""
        with self._lock:
            return min((s[0] for s in self._sleepers if s[1] is loop), default=None)


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class Handlers(Protocol):
    """The handlers that run on the loop, as the loop has to know them."""

    @property
    def running(self) -> int: ...

    @property
    def waiting(self) -> int: ...

    @property
    def waiting_threads(self) -> int: ...

    def names(self) -> str: ...


class Stuck(AssertionError):
    """Handlers wait for something that does not happen."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time is that of a virtual clock.

    When everything waits for a timer, the clock moves on. While something outside is under way (a thread, a
    socket, or anything but a timer), the clock stands still for half a second and then goes at the speed
    of real time.
    """

    def __init__(self, clock: VirtualClock, *, patience: float) -> None:
        self.clock = clock
        self.handlers: Handlers | None = None
        self._patience = patience
        self._threads = 0
        self._calls = 0
        super().__init__(_Skipping(self._idle))

    def time(self) -> float:
        return self.clock.monotonic()

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., T], *args: object
    ) -> "asyncio.Future[T]":
        future = super().run_in_executor(executor, func, *args)
        self._threads += 1
        future.add_done_callback(self._thread_ended)
        return future

    def _thread_ended(self, _: object) -> None:
        self._threads -= 1

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Return a context in which the loop waits for another thread."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1

    def _idle(self, selector: "_Skipping", timer: float | None) -> bool:
        """Handle the case that nothing is ready; return whether anything has come from outside."""
        now = self.clock.monotonic()
        sleeper = self.clock.next_of(self)
        waits = [] if timer is None else [timer]
        waits += [] if sleeper is None else [max(0.0, sleeper - now)]
        wait = min(waits, default=None)
        if wait is None or self._under_way(selector, timer):
            return self._wait(selector, wait)
        if not selector.sure and self.handlers and self.handlers.running:
            selector.sure = True
            return selector.poll(GRACE_SECONDS)
        self.clock.move_to(now + wait)
        selector.sure, selector.still_since = selector.sure and wait != timer, None
        return False

    def _under_way(self, selector: "_Skipping", timer: float | None) -> bool:
        """Return whether anything waits for something else than a timer."""
        handlers = self.handlers
        if handlers is None:
            return False
        invisible = handlers.running > 0 and timer is None and handlers.waiting == 0
        return (
            self._threads > handlers.waiting_threads
            or self._calls > 0
            or len(selector.get_map()) > 1  # the first is the loop's own
            or invisible
        )

    def _wait(self, selector: "_Skipping", wait: float | None) -> bool:
        began = _real.monotonic()
        if selector.still_since is None:
            selector.still_since = began
        waited = began - selector.still_since
        if waited > self._patience:
            selector.still_since = None
            names = self.handlers.names() if self.handlers else "something"
            raise Stuck(f"Nothing has happened for {waited:.0f} s, and it still runs: {names}.")
        if waited < STILL_SECONDS:
            return selector.poll(STILL_SECONDS - waited)
        came = selector.poll(STEP_SECONDS if wait is None else min(wait, STEP_SECONDS))
        self.clock.advance(_real.monotonic() - began)
        return came


class _Skipping(selectors.DefaultSelector):
    """A selector that never waits for a timer."""

    def __init__(self, idle: "Callable[[_Skipping, float | None], bool]") -> None:
        super().__init__()
        self._idle = idle
        self._found: list[tuple[selectors.SelectorKey, int]] = []
        self.sure = False
        """Whether all that handlers wait for is time, as far as can be seen."""
        self.still_since: float | None = None

    def poll(self, seconds: float) -> bool:
        self._found = super().select(seconds)
        return bool(self._found)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        came = self.poll(0)
        if not came and (timeout is None or timeout > 0):
            came = self._idle(self, timeout)
        if came:
            self.sure, self.still_since = False, None
        found, self._found = self._found, []
        return found
