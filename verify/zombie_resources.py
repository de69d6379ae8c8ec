"""The resources that owners write to: the same ledger unchecked, checked, and checked with the registry.

`unchecked` takes every write. `checked` compares the token in the transaction that writes
(`holdfast.fencing.sqlite.admit`, `holdfast.fencing.postgres.admit`). `asked` does that too, and before it
asks the registry whether the token still holds its job (`Guard(RegistryAuthority(registry))`).
"""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import asyncpg
from msgspec import Struct

from holdfast.core.errors import Unavailable
from holdfast.fencing import Fence, Guard, RegistryAuthority
from holdfast.fencing import postgres as postgres_fence
from holdfast.fencing import sqlite as sqlite_fence
from holdfast.ports import Grant, Registry

UNCHECKED, CHECKED, ASKED = "unchecked", "checked", "asked"
LEDGERS = (UNCHECKED, CHECKED, ASKED)
BUSY_SECONDS = 30.0
_SQLITE_TABLE = """\
CREATE TABLE IF NOT EXISTS {0} (
    place INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL, token INTEGER NOT NULL, who TEXT NOT NULL
)"""
_POSTGRES_TABLE = """\
CREATE TABLE IF NOT EXISTS {0} (
    place bigserial PRIMARY KEY, job text NOT NULL, token bigint NOT NULL, who text NOT NULL
)"""
_SETTINGS = {"idle_in_transaction_session_timeout": "500"}
_LOST = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
_ROWS = "SELECT place, job, token, who FROM {0} ORDER BY place"


class Row(Struct, frozen=True):
    """A write that a ledger has taken, and its place among all of them."""

    place: int
    job: str
    token: int
    who: str


class Resources(Protocol):
    """A connection to the ledgers."""

    async def write(self, ledger: str, fence: Fence, who: str) -> None:
        """Append a row; `Fenced` if the ledger compares tokens and has seen a higher one."""
        ...

    async def rows(self, ledger: str) -> list[Row]: ...

    async def close(self) -> None: ...


def fence_of(ledger: str, grant: Grant) -> Fence:
    return Fence(resource=f"{ledger}:{grant.job_id}", token=grant.fencing_token, job_id=grant.job_id)


class Careful:
    """Writes to the ledgers, and asks the registry first where that is what the ledger does."""

    def __init__(self, resources: Resources, registry: Registry) -> None:
        self._resources = resources
        self._guard = Guard(RegistryAuthority(registry))

    async def write(self, ledger: str, grant: Grant, who: str) -> None:
        fence = fence_of(ledger, grant)
        if ledger == ASKED:
            await self._guard.check(fence)
        await self._resources.write(ledger, fence, who)


class SqliteResources:
    """Ledgers in one file, which is not the store's."""

    def __init__(
        self, path: Path, admit: Callable[[sqlite3.Connection, Fence], None] = sqlite_fence.admit
    ) -> None:
        self._admit = admit
        self._connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        for ledger in LEDGERS:
            self._connection.execute(_SQLITE_TABLE.format(ledger))
        sqlite_fence.install(self._connection)

    async def write(self, ledger: str, fence: Fence, who: str) -> None:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            if ledger != UNCHECKED:
                self._admit(connection, fence)
            insert = f"INSERT INTO {ledger} (job, token, who) VALUES (?, ?, ?)"
            connection.execute(insert, (fence.job_id, fence.token, who))
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    async def rows(self, ledger: str) -> list[Row]:
        return [Row(*row) for row in self._connection.execute(_ROWS.format(ledger))]

    async def close(self) -> None:
        self._connection.close()


class PostgresResources:
    """Ledgers in a database, which is not the store's.

    Whoever is frozen inside a transaction is thrown out by the server, as everywhere in holdfast:
    nobody else could write to that resource before.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: asyncpg.Connection | None = None

    @staticmethod
    async def install(url: str) -> None:
        connection = await asyncpg.connect(url)
        try:
            await postgres_fence.install(connection)
            for ledger in LEDGERS:
                await connection.execute(_POSTGRES_TABLE.format(ledger))
        finally:
            await connection.close()

    async def write(self, ledger: str, fence: Fence, who: str) -> None:
        try:
            connection = await self._connected()
            async with connection.transaction():
                if ledger != UNCHECKED:
                    await postgres_fence.admit(connection, fence)
                insert = f"INSERT INTO {ledger} (job, token, who) VALUES ($1, $2, $3)"
                await connection.execute(insert, fence.job_id, fence.token, who)
        except _LOST as error:
            await self.close()
            raise Unavailable(f"The ledger {ledger} went away: {error!r}") from error

    async def _connected(self) -> asyncpg.Connection:
        if self._connection is None:
            self._connection = await asyncpg.connect(self._url, server_settings=_SETTINGS)
        return self._connection

    async def rows(self, ledger: str) -> list[Row]:
        connection = await self._connected()
        return [Row(*row) for row in await connection.fetch(_ROWS.format(ledger))]

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


def open_resources(url: str, *, check: bool = True) -> Resources:
    """A connection to the ledgers; without `check`, one for an owner whose ledger is broken."""
    if url.startswith("postgresql:"):
        assert check, "the broken ledger is an SQLite file"
        return PostgresResources(url)
    path = Path(url.removeprefix("sqlite:///"))
    return SqliteResources(path) if check else SqliteResources(path, admit_anything)


def admit_anything(connection: sqlite3.Connection, fence: Fence) -> None:
    """As `holdfast.fencing.sqlite.admit` without its comparison: for the test of the verdict."""
    mark = "INSERT OR REPLACE INTO holdfast_mark (resource, source, token) VALUES (?, ?, ?)"
    connection.execute(mark, (fence.resource, fence.source, fence.token))
