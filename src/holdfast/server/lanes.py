"""Lanes: clients that wait for jobs, in rows. When a job may have come, the first of each row asks; who
finds something sends the next two. A thousand that wait cost as much as one."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager, suppress

from holdfast.core.errors import HoldfastError
from holdfast.ports import Clock, Grant, Registry
from holdfast.server.limits import WAITING_MAX
from holdfast.server.waits import Waits

LOOK_SECONDS = 1.0
"""How often somebody looks though nothing was heard: jobs also become ready because time passes."""

PAUSE_SECONDS = 0.002
AWAY_SECONDS = 1.0

Ask = Callable[[], Awaitable[list[Grant]]]


class Lanes:
    """Who waits for what. A lane is what two clients must share to get the same jobs."""

    def __init__(
        self, registry: Registry, clock: Clock, stopping: asyncio.Event, waits: Waits
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._stopping = stopping
        self._waits = waits
        self._rows: dict[Hashable, deque[asyncio.Future[None]]] = {}
        self._looked: dict[Hashable, tuple[int, int]] = {}
        self._rung = 1
        self._waiting = 0
        self._ringing: asyncio.Task[None] | None = None

    async def claim(self, lane: Hashable, ask: Ask, seconds: float) -> list[Grant]:
        """What `ask` gets, asked again for so long while it gets nothing. Whoever gives up gets none."""
        until = self._clock.monotonic() + seconds
        self._looks(lane)
        grants = await self._ask(lane, ask)
        if not grants and seconds > 0:
            async with self._waits.place():
                grants = await self._ask_until(until, lane, ask)
        if grants:
            self._wake(lane, 2)  # where one was, there may be more
        return grants

    async def _ask_until(self, until: float, lane: Hashable, ask: Ask) -> list[Grant]:
        """What `ask` gets, whenever it is worth asking."""
        while (left := until - self._clock.monotonic()) > 0 and await self._turn(lane, left):
            if grants := await self._ask(lane, ask):
                return grants
        return []

    async def _ask(self, lane: Hashable, ask: Ask) -> list[Grant]:
        """What `ask` gets. A client whose ask fails leaves its turn to the next."""
        try:
            return await ask()
        except BaseException:
            self._wake(lane, 1)
            raise

    async def turn(self, lane: Hashable, seconds: float) -> bool:
        """Whether it is worth asking now; no more after so long, and when the server stops."""
        async with self._waits.place():
            return await self._turn(lane, seconds)

    async def _turn(self, lane: Hashable, seconds: float) -> bool:
        if self._stopping.is_set():
            return False
        if (
            self._looked.get(lane, (0, 0))[0] < self._rung
        ):  # it rang when nobody of this lane was here
            self._looks(lane)
            return True
        async with self._place(lane) as place:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await place
                    return not self._stopping.is_set()
        return False

    def waiting(self) -> int:
        """How many wait now."""
        return self._waiting

    def stop(self) -> None:
        """Send everybody away."""
        for lane in list(self._rows):
            self._wake(lane, WAITING_MAX)

    def _looks(self, lane: Hashable) -> None:
        """Somebody of this lane looks now, for all that has rung and happened by now."""
        if len(self._looked) >= WAITING_MAX:
            self._looked.clear()
        self._looked[lane] = self._rung, self._registry.mark(ready=True)

    @asynccontextmanager
    async def _place(self, lane: Hashable) -> AsyncIterator[asyncio.Future[None]]:
        place = asyncio.get_running_loop().create_future()
        row = self._rows.setdefault(lane, deque())
        row.append(place)
        self._waiting += 1
        if self._ringing is None or self._ringing.done():
            _, mark = self._looked.get(lane, (0, 0))  # what came since then is still unseen
            self._ringing = asyncio.create_task(self._ring(mark))
        try:
            yield place
        finally:
            self._waiting -= 1
            if not place.done():
                row.remove(place)
            if not row and self._rows.get(lane) is row:
                del self._rows[lane]

    def _wake(self, lane: Hashable, count: int) -> None:
        row = self._rows.get(lane)
        while row and count:
            place = row.popleft()
            if not place.done():
                place.set_result(None)
                count -= 1

    async def _ring(self, mark: int) -> None:
        """Wake the first of every row when there may be something for it, while anybody waits."""
        while self._waiting and not self._stopping.is_set():
            try:
                await self._registry.changed(since=mark, timeout=LOOK_SECONDS, ready=True)
            except HoldfastError:  # whoever asks next will be told
                await self._clock.sleep(AWAY_SECONDS)
            mark = self._registry.mark(ready=True)
            self._rung += 1
            for lane in list(self._rows):
                self._looks(lane)
                self._wake(lane, 1)
            await self._clock.sleep(PAUSE_SECONDS)
