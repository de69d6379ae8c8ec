"""The leaving of a worker: an event, and waits that end with it."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Leaving:
    """Whether the worker leaves. One caller at a time waits with `or_until`."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._patience: asyncio.Timeout | None = None

    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        if not self._event.is_set() and self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time())
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()

    async def or_until(self, waiting: Coroutine[Any, Any, object]) -> None:
        """Wait for this, or until the worker leaves. Without tasks: they take five turns of the loop, which
        an idle worker has between its wake-up and its claim."""
        if self._event.is_set():
            waiting.close()
            return
        try:
            async with asyncio.timeout(None) as self._patience:
                await waiting
        except TimeoutError:
            if not self._event.is_set():
                raise
        finally:
            self._patience = None
