"""The signal: a mark that moves with every commit of this process, and waiting for it to move."""

import asyncio

from holdfast.ports import Clock


class Signal:
    """Wakes everybody who waits. Used from one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._mark = 0
        self._waiters: dict[asyncio.Future[None], None] = {}

    def mark(self) -> int:
        return self._mark

    @property
    def awaited(self) -> bool:
        return bool(self._waiters)

    def set(self) -> None:
        self._mark += 1
        for waiter in self._waiters:
            self._wake(waiter)

    def _wake(self, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            waiter.set_result(None)

    async def wait(self, mark: int, timeout: float) -> None:  # noqa: ASYNC109
        if mark != self._mark:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        sleeper = asyncio.ensure_future(self._clock.sleep(timeout))
        sleeper.add_done_callback(lambda _: self._wake(waiter))
        try:
            await waiter
        finally:
            sleeper.cancel()
            del self._waiters[waiter]
