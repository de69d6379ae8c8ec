"""The commit signal: marks that change with commits, and waiting for one to change."""

import asyncio

from holdfast.ports import Clock


class CommitSignal:
    """Two marks, one that changes with every commit and one with those that may have made a job ready, and
    the callers that wait for them. Used from one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._marks = [0, 0]
        self._waiters: dict[asyncio.Future[None], bool] = {}

    def change_mark(self, *, ready: bool = False) -> int:
        """Return the mark of all commits, or (`ready`) of those that may have made a job ready."""
        return self._marks[ready]

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiters)

    def set(self, *, ready: bool = True) -> None:
        """Wake the waiters after a commit; those that wait for ready jobs only if it may have made one."""
        self._move(ready)
        for waiter, ready_only in self._waiters.items():
            if ready or not ready_only:
                self._wake(waiter)

    def _move(self, ready: bool) -> None:
        self._marks[False] += 1
        self._marks[True] += ready

    def _wake(self, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            waiter.set_result(None)

    async def wait(self, mark: int, timeout: float, *, ready: bool = False) -> None:  # noqa: ASYNC109
        if mark != self._marks[ready]:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = ready
        sleeper = asyncio.ensure_future(self._clock.sleep(timeout))
        sleeper.add_done_callback(lambda _: self._wake(waiter))
        try:
            await waiter
        finally:
            sleeper.cancel()
            del self._waiters[waiter]
