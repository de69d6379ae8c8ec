"""Threads that own a connection and run calls in order."""

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

from holdfast.core.errors import Unavailable

T = TypeVar("T")
V = TypeVar("V")


class ConnectionThread:
    """One thread with a queue of calls: its connection is never used by two callers at once."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._closed = False
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
                value = work()
            except BaseException as error:
                _post(loop, _fail, future, error)
            else:
                _post(loop, _succeed, future, value)

        self._calls.put(task)
        return await future

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
