"""The bridge from wherever a handler runs, a thread or a loop of its own, to the loop of the runner."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Work: TypeAlias = Callable[[], Coroutine[Any, Any, T]]


class Bridge:
    """Has work done on `loop`, whoever asks for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def wait(self, work: Work[T], instead: str) -> T:
        """Do it there, and wait for it. For plain functions; a coroutine is told what to write
        `instead`: it would wait for itself."""
        self.check_plain(instead)
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result()

    async def go(self, work: Work[T]) -> T:
        """Do it there. For coroutines, on whichever loop they run."""
        if asyncio.get_running_loop() is self._loop:
            return await work()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._loop))

    def later(self, work: Work[None]) -> None:
        """Do it there, and wait for nothing."""
        asyncio.run_coroutine_threadsafe(work(), self._loop)

    def check_plain(self, instead: str) -> None:
        if asyncio._get_running_loop() is self._loop:
            raise RuntimeError(f"In a coroutine, write: {instead}")
