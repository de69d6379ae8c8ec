"""Fences in the transaction of the write: SQLite by two drivers, PostgreSQL by three."""

import asyncio
import random
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import psycopg
import pytest

from holdfast.core.errors import Conflict, Fenced, Invalid
from holdfast.fencing import Fence, postgres, sqlite
from postgres_world import server

WRITE = "INSERT INTO payment (account, token) VALUES ('account-17', {})"
PAYMENTS = "CREATE TABLE payment (n {} PRIMARY KEY, account text, token {})"
TOKENS = "SELECT token FROM payment ORDER BY n"
HUGE = 2**63 - 1


def fence(token: int, resource: str = "account-17", lock: str | None = "account-17") -> Fence:
    return Fence(resource=resource, token=token, job_id="job-1", lock=lock)


class File:
    """An SQLite file with a table of payments, and connections of one driver to it."""

    def __init__(self, path: Path, driver: str) -> None:
        self.path = path
        self.driver = driver
        with self.opened() as connection:
            sqlite.install(connection)
            sqlite.install(connection)
            connection.execute(PAYMENTS.format("INTEGER", "INTEGER"))

    @contextmanager
    def opened(self) -> Iterator[Any]:
        if self.driver == "sqlite3":
            connection: Any = sqlite3.connect(self.path, timeout=60)
        else:
            connection = apsw.Connection(str(self.path))
            connection.set_busy_timeout(60_000)
        try:
            yield connection
        finally:
            connection.close()

    def pay(self, *fences: Fence) -> None:
        """One payment under each fence, in one transaction."""
        with self.opened() as connection:
            if self.driver == "apsw":
                connection.execute("BEGIN IMMEDIATE")
            with connection:
                for one in fences:
                    sqlite.admit(connection, one)
                    connection.execute(WRITE.format(one.token))
            if self.driver == "apsw":
                connection.execute("COMMIT")

    def tokens(self) -> list[int]:
        with self.opened() as connection:
            return [token for (token,) in connection.execute(TOKENS)]


@pytest.fixture(params=["sqlite3", "apsw"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> File:
    return File(tmp_path / "payments.db", request.param)


def test_sqlite_takes_rising_tokens_and_refuses_stale_ones(file: File) -> None:
    for token in (41, 41, 43):
        file.pay(fence(token))
    with pytest.raises(Fenced, match="Token 42 is stale: account-17 has seen token 43"):
        file.pay(fence(42))
    with pytest.raises(Conflict, match="one lock"):
        file.pay(fence(99, lock=None))
    file.pay(fence(1, "account-18", "account-18"))
    file.pay(fence(HUGE - 1))
    file.pay(fence(HUGE))
    with pytest.raises(Fenced):
        file.pay(fence(HUGE - 1))

    assert file.tokens() == [41, 41, 43, 1, HUGE - 1, HUGE]


def test_a_refused_transaction_writes_nothing_in_sqlite(file: File) -> None:
    file.pay(fence(43))
    with pytest.raises(Fenced):
        file.pay(fence(1, "account-18", "account-18"), fence(42))

    assert file.tokens() == [43]
    file.pay(fence(1, "account-18", "account-18"))  # its mark was undone as well


def test_sqlite_is_asked_inside_a_transaction_only(tmp_path: Path) -> None:
    file = File(tmp_path / "payments.db", "apsw")
    with file.opened() as connection, pytest.raises(Invalid, match="Begin a transaction"):
        sqlite.admit(connection, fence(1))
    plain = sqlite3.connect(file.path, isolation_level=None)
    with pytest.raises(Invalid, match="Begin a transaction"):
        sqlite.admit(plain, fence(1))
    plain.execute("BEGIN")
    sqlite.admit(plain, fence(1))
    plain.close()
    with pytest.raises(Invalid, match="whole number"):
        file.pay(fence(0))


def test_writers_that_race_for_a_file_never_go_back(file: File) -> None:
    refused = []

    def write(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(15):
            token = chance.randrange(1, 30)
            try:
                file.pay(fence(token))
            except Fenced:
                refused.append(token)

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    tokens = file.tokens()
    assert tokens == sorted(tokens)
    assert len(tokens) + len(refused) == 90
    assert refused


class Asyncpg:
    """Payments by asyncpg."""

    async def admit(self, connection: Any, one: Fence) -> None:  # noqa: ANN401
        await postgres.admit(connection, one)

    async def connect(self, url: str) -> Any:  # noqa: ANN401
        return await asyncpg.connect(url)

    async def pay(self, connection: Any, *fences: Fence) -> None:  # noqa: ANN401
        async with connection.transaction():
            for one in fences:
                await postgres.admit(connection, one)
                await connection.execute(WRITE.format(one.token))


class PsycopgAsync(Asyncpg):
    """Payments by psycopg, for asyncio."""

    async def connect(self, url: str) -> Any:  # noqa: ANN401
        return await psycopg.AsyncConnection.connect(url, autocommit=True)


class PsycopgBlocking(Asyncpg):
    """Payments by psycopg, in a thread."""

    async def admit(self, connection: Any, one: Fence) -> None:  # noqa: ANN401
        postgres.admit_blocking(connection, one)

    async def connect(self, url: str) -> Any:  # noqa: ANN401
        return await asyncio.to_thread(psycopg.connect, url, autocommit=True)

    async def pay(self, connection: Any, *fences: Fence) -> None:  # noqa: ANN401
        def work() -> None:
            with connection.transaction():
                for one in fences:
                    postgres.admit_blocking(connection, one)
                    connection.execute(WRITE.format(one.token))

        await asyncio.to_thread(work)


class Bank:
    """A PostgreSQL schema with a table of payments, and connections of one driver to it."""

    def __init__(self, driver: Asyncpg, url: str, schema: str) -> None:
        self.driver = driver
        self.url = url
        self.schema = schema

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Any]:
        connection = await self.driver.connect(self.url)
        done = connection.execute(f"SET search_path = {self.schema}")
        if asyncio.iscoroutine(done):
            await done
        try:
            yield connection
        finally:
            closed = connection.close()
            if asyncio.iscoroutine(closed):
                await closed

    async def pay(self, *fences: Fence) -> None:
        async with self.opened() as connection:
            await self.driver.pay(connection, *fences)

    async def tokens(self) -> list[int]:
        connection = await asyncpg.connect(self.url)
        try:
            rows = await connection.fetch(TOKENS.replace("payment", f"{self.schema}.payment"))
            return [row[0] for row in rows]
        finally:
            await connection.close()


Body = Callable[[Bank], Coroutine[Any, Any, None]]


@pytest.fixture(params=[Asyncpg, PsycopgAsync, PsycopgBlocking])
def play(request: pytest.FixtureRequest) -> Callable[[Body], None]:
    def run(body: Body) -> None:
        async def main() -> None:
            base, schema = server().url(), "bank"
            connection = await asyncpg.connect(base)
            await connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
            await connection.execute(f"CREATE SCHEMA {schema}")
            await connection.execute(f"SET search_path = {schema}")
            await postgres.install(connection)
            await postgres.install(connection)
            await connection.execute(PAYMENTS.format("bigserial", "bigint"))
            await connection.close()
            await body(Bank(request.param(), base, schema))

        asyncio.run(main())

    return run


def test_postgres_takes_rising_tokens_and_refuses_stale_ones(play: Callable[[Body], None]) -> None:
    async def body(bank: Bank) -> None:
        for token in (41, 41, 43):
            await bank.pay(fence(token))
        with pytest.raises(Fenced, match="Token 42 is stale: account-17 has seen token 43"):
            await bank.pay(fence(42))
        with pytest.raises(Conflict, match="one lock"):
            await bank.pay(fence(99, lock=None))
        await bank.pay(fence(1, "account-18", "account-18"))
        await bank.pay(fence(HUGE - 1))
        await bank.pay(fence(HUGE))
        with pytest.raises(Fenced):
            await bank.pay(fence(HUGE - 1))
        assert await bank.tokens() == [41, 41, 43, 1, HUGE - 1, HUGE]

    play(body)


def test_a_refused_transaction_writes_nothing_in_postgres(play: Callable[[Body], None]) -> None:
    async def body(bank: Bank) -> None:
        await bank.pay(fence(43))
        with pytest.raises(Fenced):
            await bank.pay(fence(1, "account-18", "account-18"), fence(42))
        assert await bank.tokens() == [43]

    play(body)


def test_a_stale_writer_that_waited_for_the_owner_is_refused(play: Callable[[Body], None]) -> None:
    """The owner's transaction is open while the zombie's begins: the zombie's decision comes after."""

    async def body(bank: Bank) -> None:
        owner = await asyncpg.connect(bank.url)
        await owner.execute(f"SET search_path = {bank.schema}")
        async with bank.opened() as zombie:
            async with owner.transaction():
                await postgres.admit(owner, fence(43))
                late = asyncio.create_task(bank.driver.pay(zombie, fence(42)))
                await asyncio.sleep(0.2)
                assert not late.done()
                await owner.execute(WRITE.format(43))
            with pytest.raises(Fenced):
                await late
            await bank.driver.pay(zombie, fence(43))
        await owner.close()
        assert await bank.tokens() == [43, 43]

    play(body)


def test_postgres_is_asked_inside_a_transaction_only(play: Callable[[Body], None]) -> None:
    async def body(bank: Bank) -> None:
        async with bank.opened() as connection:
            with pytest.raises(Invalid, match="Begin a transaction"):
                await bank.driver.admit(connection, fence(1))
        with pytest.raises(Invalid, match="whole number"):
            await bank.pay(fence(0))

    play(body)


def test_a_database_without_the_function_is_said(play: Callable[[Body], None]) -> None:
    async def body(bank: Bank) -> None:
        bank.schema = "pg_temp"
        with pytest.raises(Invalid, match="install"):
            await bank.pay(fence(1))

    play(body)


def test_writers_that_race_for_a_row_never_go_back(play: Callable[[Body], None]) -> None:
    async def body(bank: Bank) -> None:
        refused = []

        async def write(seed: int) -> None:
            chance = random.Random(seed)
            async with bank.opened() as connection:
                for _ in range(15):
                    token = chance.randrange(1, 30)
                    try:
                        await bank.driver.pay(connection, fence(token))
                    except Fenced:
                        refused.append(token)

        await asyncio.gather(*(write(seed) for seed in range(6)))
        tokens = await bank.tokens()
        assert tokens == sorted(tokens)
        assert len(tokens) + len(refused) == 90
        assert refused

    play(body)
