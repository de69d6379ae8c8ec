"""Asyncio tasks with an owner that starts and stops them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Tasks:
    """The tasks of one owner. An exception that ends one is passed to `trouble`."""

    def __init__(self, trouble: Callable[[str], None]) -> None:
        self._trouble = trouble
        self._running: dict[asyncio.Task[None], None] = {}

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._running[task] = None
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        if not task.cancelled() and (error := task.exception()):
            self._trouble(f"the worker has a fault: {error!r}")

    async def stop(self) -> None:
        await stop(*self._running)


async def stop(*tasks: "asyncio.Future[Any]") -> None:
    """Cancel these and wait until each has ended, whatever it ends with."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        if not task.done():
            ended = asyncio.Event()
            task.add_done_callback(lambda _, ended=ended: ended.set())  # type: ignore[misc]
            await ended.wait()
        if not task.cancelled():
            task.exception()
