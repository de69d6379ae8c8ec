"""A store that counts its commits, can be held up, and fails when a test says so."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from holdfast.ports import Clock, Decision, Ids, Store, Work
from holdfast.stores.memory import MemoryStore
from holdfast.testing.world import World


class CountedStore(MemoryStore):
    """A memory store that counts works per commit, can be held up, and fails once when told to."""

    def __init__(self, clock: Clock, ids: Ids) -> None:
        super().__init__(clock, ids)
        self.commits: list[int] = []
        self.failure: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def transact(self, works: Sequence[Work]) -> list[list[Decision]]:
        self.commits.append(len(works))
        await self.gate.wait()
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        return await super().transact(works)


async def counted_store(folder: Path, clock: Clock, ids: Ids) -> Store:
    return CountedStore(clock, ids)


def counted(world: World) -> CountedStore:
    assert isinstance(world.store, CountedStore)
    return world.store


async def breathe() -> None:
    """Let every task run until it waits for something that has not happened yet."""
    for _ in range(20):
        await asyncio.sleep(0)
