"""Threads that own a connection and run calls in order, and when a call may run in the caller's thread."""

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TypeVar

from holdfast.core.errors import Unavailable

T = TypeVar("T")
V = TypeVar("V")

QUICK_SECONDS = 0.002
QUICK_COMMITS = 16


class CommitPace:
    """Whether the last `QUICK_COMMITS` commits were all quick, so that the next may hold up an event loop."""

    def __init__(self) -> None:
        self._quick = 0

    def note(self, seconds: float) -> None:
        self._quick = self._quick + 1 if seconds < QUICK_SECONDS else 0

    @property
    def is_quick(self) -> bool:
        return self._quick >= QUICK_COMMITS


class ConnectionThread:
    """One thread with a queue of calls: its connection is never used by two callers at once, and calls run in
    the order they came."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._closed = False
        self._turn = Lock()  # held by whoever uses the connection
        self._counting = Lock()
        self._unfinished = 0
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (task := self._calls.get()) is not None:
            task()
            del task  # otherwise what it read stays in memory until the next call

    async def call(self, work: Callable[[], T]) -> T:
        """Run `work` in the thread. It runs to its end even when the caller is cancelled."""
        if self._closed:
            raise Unavailable("The store is closed.")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def task() -> None:
            try:
                value = self._finish(work)
            except BaseException as error:
                _post(loop, _fail, future, error)
            else:
                _post(loop, _succeed, future, value)

        with self._counting:
            self._unfinished += 1
        self._calls.put(task)
        return await future

    def call_here(self, work: Callable[[], T]) -> T | None:
        """Run `work` in the caller's thread, which spares two changes of threads (some 100 us); return None
        when the thread has calls to run first."""
        with self._counting:
            if self._unfinished or self._closed:
                return None
            self._unfinished += 1
        return self._finish(work)

    def _finish(self, work: Callable[[], T]) -> T:
        try:
            with self._turn:
                return work()
        finally:
            with self._counting:
                self._unfinished -= 1

    async def close(self) -> None:
        self._closed = True
        self._calls.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)


def _post(
    loop: asyncio.AbstractEventLoop,
    settle: Callable[[asyncio.Future[T], V], None],
    future: asyncio.Future[T],
    value: V,
) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(settle, future, value)


def _succeed(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[T], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
