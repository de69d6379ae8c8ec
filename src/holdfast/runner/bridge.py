"""The bridge from a handler, in a thread or on a loop of its own, to the loop of the runner."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Work: TypeAlias = Callable[[], Coroutine[Any, Any, T]]


class Bridge:
    """Runs coroutines on `loop`, for callers in threads and on other loops."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def wait(self, work: Work[T], instead: str) -> T:
        """Run the work there, and wait for it. For plain functions; a coroutine of that loop would wait for
        itself, and gets an error that says what to write `instead`."""
        self.check_plain(instead)
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result()

    async def go(self, work: Work[T]) -> T:
        """Run the work there. For coroutines, on any loop."""
        if asyncio.get_running_loop() is self._loop:
            return await work()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._loop))

    def later(self, work: Work[None]) -> None:
        """Run the work there, without waiting for it."""
        asyncio.run_coroutine_threadsafe(work(), self._loop)

    def check_plain(self, instead: str) -> None:
        if asyncio._get_running_loop() is self._loop:
            raise RuntimeError(f"In a coroutine, write: {instead}")
