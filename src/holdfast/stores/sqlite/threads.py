"""Threads that own a connection and run what they are given, first come, first served."""

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

from holdfast.core.errors import Unavailable

T = TypeVar("T")
V = TypeVar("V")


class ConnectionThread:
    """One thread, one connection, one line: no two callers ever meet inside it."""

    def __init__(self, name: str) -> None:
        self._line: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._closed = False
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (task := self._line.get()) is not None:
            task()
            del task  # else what it read stays in memory until the next one comes

    async def call(self, work: Callable[[], T]) -> T:
        """Run `work` in the thread. It runs to its end even when the caller stops waiting."""
        if self._closed:
            raise Unavailable("The store is closed.")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def task() -> None:
            try:
                value = work()
            except BaseException as error:
                _post(loop, _fail, answer, error)
            else:
                _post(loop, _succeed, answer, value)

        self._line.put(task)
        return await answer

    async def close(self) -> None:
        self._closed = True
        self._line.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)


def _post(
    loop: asyncio.AbstractEventLoop,
    settle: Callable[[asyncio.Future[T], V], None],
    answer: asyncio.Future[T],
    value: V,
) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(settle, answer, value)


def _succeed(answer: asyncio.Future[T], value: T) -> None:
    if not answer.done():
        answer.set_result(value)


def _fail(answer: asyncio.Future[T], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)
