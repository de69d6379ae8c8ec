"""What every test may ask for: a world on each store."""

from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from holdfast.objects.memory import MemoryObjects
from holdfast.ports import Clock, Ids, Store
from holdfast.stores.cas.store import CasStore
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.world import Opener, World, play
from postgres_world import postgres_store


async def memory_store(folder: Path, clock: Clock, ids: Ids) -> Store:
    return MemoryStore(clock, ids)


async def cas_store(folder: Path, clock: Clock, ids: Ids) -> Store:
    return CasStore(MemoryObjects(), clock, ids)


async def sqlite_store(folder: Path, clock: Clock, ids: Ids) -> Store:
    return await SqliteStore.open(folder / "jobs.db", ids=ids, clock=clock)


STORES: dict[str, Opener] = {
    "memory": memory_store,
    "cas": cas_store,
    "sqlite": sqlite_store,
    "postgres": postgres_store,
}

Body = Callable[[World], Coroutine[None, None, None]]
Run = Callable[[Body], None]


@pytest.fixture(params=list(STORES))
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Run an async test body in a fresh world, once for each store."""
    return lambda body: play(STORES[request.param], tmp_path, body)
