"""A manual clock and counted ids, for tests without waiting and without randomness."""

import asyncio
from datetime import UTC, datetime, timedelta
from random import Random  # noqa: TID251  # seeded: the same chance every time

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """A clock that stands still until `advance`, which wakes the sleepers that are due."""

    def __init__(self, start: datetime = EPOCH) -> None:
        self._start = self._now = start
        self._sleepers: list[tuple[datetime, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return (self._now - self._start).total_seconds()

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._now + timedelta(seconds=seconds), future))
        await future

    def advance(self, seconds: float = 0, **span: float) -> None:
        self._now += timedelta(seconds=seconds, **span)
        for until, future in self._sleepers:
            if until <= self._now and not future.done():
                future.set_result(None)
        self._sleepers = [(u, f) for u, f in self._sleepers if not f.done()]


class CountingIds:
    """Ids 00000001, 00000002, … and seeded randomness."""

    def __init__(self, seed: int = 0) -> None:
        self._count = 0
        self._random = Random(seed)

    def new(self) -> str:
        self._count += 1
        return f"{self._count:08d}"

    def many(self, count: int) -> list[str]:
        return [self.new() for _ in range(count)]

    def secret(self) -> bytes:
        return self._random.randbytes(32)

    def chance(self) -> float:
        return self._random.random()
