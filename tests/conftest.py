"""What every test may ask for: a registry on each store, with a clock that moves when told to."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.ports import Clock, Ids, Store
from holdfast.registry.local import LocalRegistry
from holdfast.testing.fakes import CountingIds, ManualClock


async def memory_store(path: Path, clock: Clock, ids: Ids) -> Store:
    from holdfast.stores.memory import MemoryStore

    return MemoryStore(clock, ids)


async def cas_store(path: Path, clock: Clock, ids: Ids) -> Store:
    from holdfast.objects.memory import MemoryObjects
    from holdfast.stores.cas.store import CasStore

    return CasStore(MemoryObjects(), clock, ids)


async def sqlite_store(path: Path, clock: Clock, ids: Ids) -> Store:
    from holdfast.stores.sqlite.store import SqliteStore

    return await SqliteStore.open(path / "jobs.db", ids=ids, clock=clock)


STORES: dict[str, Callable[[Path, Clock, Ids], Awaitable[Store]]] = {
    "memory": memory_store,
    "cas": cas_store,
    "sqlite": sqlite_store,
}


class World:
    """A registry on one kind of store, its clock and its ids."""

    def __init__(self, kind: str, store: Store, clock: ManualClock, ids: CountingIds) -> None:
        self.kind = kind
        self.store = store
        self.clock = clock
        self.ids = ids
        self.registry = LocalRegistry(store, ids)


@asynccontextmanager
async def open_world(kind: str, path: Path) -> AsyncIterator[World]:
    clock, ids = ManualClock(), CountingIds()
    world = World(kind, await STORES[kind](path, clock, ids), clock, ids)
    try:
        yield world
    finally:
        await world.registry.close()


Run = Callable[[Callable[[World], Coroutine[Any, Any, None]]], None]


@pytest.fixture(params=list(STORES))
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Run an async test body in a fresh world, once for each store."""

    def runner(body: Callable[[World], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            async with open_world(request.param, tmp_path) as world:
                await body(world)

        asyncio.run(main())

    return runner
