"""The setup of the zombie test: a store, and the ledgers in a database of their own."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from holdfast.sdk.open import open_registry
from verify.environment import scratch
from verify.postgres_server import PostgresServer
from verify.zombie_pool import OWNERS, Pool
from verify.zombie_resources import PostgresResources, open_resources
from verify.zombie_verdict import Verdict, gather, verdict_of

STORES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
ROOM_MEBIBYTES = 200
CONNECTIONS = "200"


class ZombieSetup(Struct, frozen=True):
    """`folder` is empty; the URLs lead to an empty store and to empty ledgers."""

    kind: str
    folder: Path
    store: str
    resources: str

    @property
    def name(self) -> str:
        return STORES[self.kind]


@contextmanager
def setups(kind: str) -> Iterator[Callable[[str], ZombieSetup]]:
    """Yield a function that makes a new setup for a name, in memory where there is room."""
    with scratch("holdfast-zombie-", ROOM_MEBIBYTES) as folder:
        if kind == "sqlite":
            yield lambda name: _sqlite(folder / name)
            return
        with PostgresServer(fast=True, settings={"max_connections": CONNECTIONS}) as server:
            yield lambda name: _postgres(server, folder / name)


def _sqlite(folder: Path) -> ZombieSetup:
    folder.mkdir()
    return ZombieSetup("sqlite", folder, f"sqlite:///{folder}/jobs.db", f"sqlite:///{folder}/ledgers.db")


def _postgres(server: PostgresServer, folder: Path) -> ZombieSetup:
    folder.mkdir()
    store, ledgers = f"store_{folder.name}", f"ledgers_{folder.name}"
    server.create_database(store)
    server.create_database(ledgers)
    asyncio.run(PostgresResources.install(server.url(ledgers)))
    return ZombieSetup("postgres", folder, server.url(store), server.url(ledgers))


def freeze(
    setup: ZombieSetup,
    freezes: int,
    *,
    told: Callable[[str], None],
    owners: int = OWNERS,
    check: bool = True,
) -> Verdict:
    """Freeze this many owners on this setup, and return the verdict."""

    async def body() -> Verdict:
        registry = await open_registry(setup.store)
        resources = open_resources(setup.resources)
        try:
            pool = Pool(
                folder=setup.folder,
                store=setup.store,
                resources=setup.resources,
                registry=registry,
                owners=owners,
                check=check,
                told=told,
            )
            await pool.run(freezes)
            return verdict_of(await gather(pool.acts, registry, resources))
        finally:
            await resources.close()
            await registry.close()

    return asyncio.run(body())
