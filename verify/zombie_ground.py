"""Where the zombie test is held: a store, and the ledgers in a database of their own."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from holdfast.sdk.open import open_registry
from verify.ground import scratch
from verify.postgres_server import PostgresServer
from verify.zombie_judge import Judgement, gather, judge
from verify.zombie_pool import OWNERS, Pool
from verify.zombie_resources import PostgresResources, open_resources

STORES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
ROOM_MEBIBYTES = 200
CONNECTIONS = "200"


class Ground(Struct, frozen=True):
    """`folder` is empty; the URLs lead to an empty store and to empty ledgers."""

    kind: str
    folder: Path
    store: str
    resources: str

    @property
    def name(self) -> str:
        return STORES[self.kind]


@contextmanager
def grounds(kind: str) -> Iterator[Callable[[str], Ground]]:
    """Gives a new ground for every name it is called with, in memory where there is room."""
    with scratch("holdfast-zombie-", ROOM_MEBIBYTES) as folder:
        if kind == "sqlite":
            yield lambda name: _sqlite(folder / name)
            return
        with PostgresServer(fast=True, settings={"max_connections": CONNECTIONS}) as server:
            yield lambda name: _postgres(server, folder / name)


def _sqlite(folder: Path) -> Ground:
    folder.mkdir()
    return Ground("sqlite", folder, f"sqlite:///{folder}/jobs.db", f"sqlite:///{folder}/ledgers.db")


def _postgres(server: PostgresServer, folder: Path) -> Ground:
    folder.mkdir()
    store, ledgers = f"store_{folder.name}", f"ledgers_{folder.name}"
    server.create_database(store)
    server.create_database(ledgers)
    asyncio.run(PostgresResources.install(server.url(ledgers)))
    return Ground("postgres", folder, server.url(store), server.url(ledgers))


def freeze(
    ground: Ground,
    freezes: int,
    *,
    told: Callable[[str], None],
    owners: int = OWNERS,
    check: bool = True,
) -> Judgement:
    """Freeze so many owners on this ground, and judge what came of it."""

    async def body() -> Judgement:
        registry = await open_registry(ground.store)
        resources = open_resources(ground.resources)
        try:
            pool = Pool(
                folder=ground.folder,
                store=ground.store,
                resources=ground.resources,
                registry=registry,
                owners=owners,
                check=check,
                told=told,
            )
            await pool.run(freezes)
            return judge(await gather(pool.acts, registry, resources))
        finally:
            await resources.close()
            await registry.close()

    return asyncio.run(body())
