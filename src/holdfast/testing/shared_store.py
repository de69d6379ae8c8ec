"""A memory store that several loops in several threads share, and that can be away for a while."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from threading import RLock

from holdfast.core.access import Key
from holdfast.core.errors import Unavailable
from holdfast.core.event import Event
from holdfast.core.job import Job, Resource
from holdfast.core.state import State
from holdfast.ports import Census, Clock, Decision, Filter, HistoryPage, Ids, Page, Slice, Work
from holdfast.stores.memory import MemoryStore
from holdfast.stores.signal import Signal
from holdfast.testing.fakes import CountingIds


class SharedStore(MemoryStore):
    """The memory store behind a lock. None of its calls ever waits, so none holds it for long."""

    def __init__(self, clock: Clock, ids: Ids) -> None:
        super().__init__(clock, ids)
        self._signal = SharedSignal(clock)
        self._lock = RLock()
        self._back_at = clock.monotonic()

    def leave(self, seconds: float) -> None:
        """Answer nobody for so long."""
        self._back_at = self._clock.monotonic() + seconds

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._clock.monotonic() < self._back_at:
            raise Unavailable("The store is away: a test says so.")
        with self._lock:
            yield

    def all(self) -> list[Job]:
        """Every job, in the order they were made, also while the store is away."""
        with self._lock:
            return list(self._jobs.values())

    async def transact(self, works: Sequence[Work]) -> list[list[Decision]]:
        with self._alone():
            return await super().transact(works)

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        with self._alone():
            return await super().get(job_ids)

    async def list_jobs(
        self, which: Filter, *, after: str | None, limit: int, newest: bool = False
    ) -> Page:
        with self._alone():
            return await super().list_jobs(which, after=after, limit=limit, newest=newest)

    async def counts(self, queue: str | None = None) -> dict[State, int]:
        with self._alone():
            return await super().counts(queue)

    async def census(self, limit: int) -> Census:
        with self._alone():
            return await super().census(limit)

    async def histories(self, job_ids: Sequence[str]) -> list[list[Event]]:
        with self._alone():
            return await super().histories(job_ids)

    async def history(self, job_id: str, *, after: str | None, limit: int) -> HistoryPage:
        with self._alone():
            return await super().history(job_id, after=after, limit=limit)

    async def published(self, job_id: str, token: int, *, first: int) -> list[int]:
        with self._alone():
            return await super().published(job_id, token, first=first)

    async def log(
        self, job_id: str, *, after: str | None, limit: int, output: bool = True
    ) -> Slice:
        with self._alone():
            return await super().log(job_id, after=after, limit=limit, output=output)

    async def feed(self, *, after: str | None, limit: int) -> Slice:
        with self._alone():
            return await super().feed(after=after, limit=limit)

    async def tail(self) -> str:
        with self._alone():
            return await super().tail()

    async def record(self, events: Sequence[Event]) -> int:
        with self._alone():
            return await super().record(events)

    async def resource(self, key: str) -> Resource:
        with self._alone():
            return await super().resource(key)

    async def keys(self) -> list[Key]:
        with self._alone():
            return await super().keys()

    async def put_key(self, key: Key) -> None:
        with self._alone():
            await super().put_key(key)


class SharedSignal(Signal):
    """Wakes everybody who waits, each on their own loop."""

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
    """Ids that count, for several threads."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._chance = CountingIds()

    def new(self) -> str:
        return f"{next(self._numbers):08d}"

    def secret(self) -> bytes:
        return self._chance.secret()

    def chance(self) -> float:
        return self._chance.chance()
