"""The environment of a node: its own clock, which may be wrong, and its own ids."""

import asyncio
from datetime import datetime, timedelta
from random import Random  # noqa: TID251  # seeded: the same chance every time

from holdfast.testing.fakes import EPOCH
from holdfast.testing.simulation.loop import Node, VirtualLoop


class NodeClock:
    """Virtual time as a node sees it: at its own rate, with its wall clock off by its offset."""

    def __init__(self, loop: VirtualLoop, node: Node) -> None:
        self._loop = loop
        self._node = node

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=round(self.monotonic() + self._node.offset, 6))

    def monotonic(self) -> float:
        return self._loop.time() * self._node.rate

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            awake = self._loop.create_future()
            turn = self._loop.call_later(seconds / self._node.rate, _wake, awake)
            try:
                await awake
            finally:
                turn.cancel()


def _wake(awake: "asyncio.Future[None]") -> None:
    if not awake.done():
        awake.set_result(None)


class NodeIds:
    """Ids that begin with the name of their node, and seeded randomness."""

    def __init__(self, name: str, chance: Random) -> None:
        self._name = name
        self._chance = chance
        self._count = 0

    def new(self) -> str:
        self._count += 1
        return f"{self._name}-{self._count}"

    def many(self, count: int) -> list[str]:
        return [self.new() for _ in range(count)]

    def secret(self) -> bytes:
        return self._chance.randbytes(32)

    def chance(self) -> float:
        return self._chance.random()
