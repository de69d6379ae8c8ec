"""A memory store that several loops in several threads share, and that can be unavailable for a while."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from threading import RLock
from typing import Any

from holdfast.core.errors import Unavailable
from holdfast.core.job import Job
from holdfast.ports import Clock, Ids, Store
from holdfast.stores.commit_signal import CommitSignal
from holdfast.stores.memory import MemoryStore
from holdfast.testing.fakes import CountingIds
from holdfast.testing.port_methods import derive


class SharedStore(MemoryStore):
    """The memory store behind a lock. None of its calls ever waits, so none holds it for long."""

    def __init__(self, clock: Clock, ids: Ids) -> None:
        super().__init__(clock, ids)
        self._signal = SharedSignal(clock)
        self._lock = RLock()
        self._back_at = clock.monotonic()

    def make_unavailable(self, seconds: float) -> None:
        """Be unavailable for this many seconds."""
        self._back_at = self._clock.monotonic() + seconds

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._clock.monotonic() < self._back_at:
            raise Unavailable("The store is unavailable: a test says so.")
        with self._lock:
            yield

    def all(self) -> list[Job]:
        """Return every job in the order of creation, also while the store is unavailable."""
        with self._lock:
            return list(self._jobs.values())


def _locked(name: str) -> Callable[..., Coroutine[Any, Any, Any]] | None:
    if name in _UNLOCKED:
        return None
    method = getattr(MemoryStore, name)

    async def call(self: SharedStore, *args: Any, **kwargs: Any) -> Any:
        with self._alone():
            return await method(self, *args, **kwargs)

    return call


_UNLOCKED = frozenset({Store.wait.__name__, Store.now.__name__, Store.close.__name__})
derive(SharedStore, Store, _locked)


class SharedSignal(CommitSignal):
    """A signal that wakes every waiter on its own loop."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._guard = RLock()

    def set(self, *, ready: bool = True) -> None:
        with self._guard:
            self._move(ready)
            waiters = [waiter for waiter, choosy in self._waiters.items() if ready or not choosy]
        here = asyncio._get_running_loop()
        for waiter in waiters:
            loop = waiter.get_loop()
            if loop is here:
                self._wake(waiter)
            else:
                with suppress(RuntimeError):  # that loop is closed
                    loop.call_soon_threadsafe(self._wake, waiter)

    async def wait(self, mark: int, timeout: float, *, ready: bool = False) -> None:  # noqa: ASYNC109
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._guard:
            if mark != self._marks[ready]:
                return
            self._waiters[waiter] = ready
        sleeper = asyncio.ensure_future(self._clock.sleep(timeout))
        sleeper.add_done_callback(lambda _: self._wake(waiter))
        try:
            await waiter
        finally:
            sleeper.cancel()
            with self._guard:
                del self._waiters[waiter]


class SharedIds:
    """Ascending ids, for several threads."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._chance = CountingIds()

    def new(self) -> str:
        return f"{next(self._numbers):08d}"

    def many(self, count: int) -> list[str]:
        return [self.new() for _ in range(count)]

    def secret(self) -> bytes:
        return self._chance.secret()

    def chance(self) -> float:
        return self._chance.chance()
