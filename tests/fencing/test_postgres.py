"""Fences in the PostgreSQL transaction of the write, by three drivers."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest

from holdfast.core.errors import Conflict, Fenced, Invalid
from holdfast.fencing import Fence, postgres
from tests.stores.postgres.running_server import server

WRITE = "INSERT INTO payment (account, token) VALUES ('account-17', {})"
PAYMENTS = "CREATE TABLE payment (n {} PRIMARY KEY, account text, token {})"
TOKENS = "SELECT token FROM payment ORDER BY n"
HUGE = 2**63 - 1


def fence(token: int, resource: str = "account-17", lock: str | None = "account-17") -> Fence:
    return Fence(resource=resource, token=token, job_id="job-1", lock=lock)


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


async def made() -> None:
    """The schema `bank`, as new."""
    connection = await asyncpg.connect(server().url())
    await connection.execute("DROP SCHEMA IF EXISTS bank CASCADE; CREATE SCHEMA bank")
    await connection.execute("SET search_path = bank")
    await postgres.install(connection)
    await postgres.install(connection)
    await connection.execute(PAYMENTS.format("bigserial", "bigint"))
    await connection.close()


@pytest.fixture(params=[Asyncpg, PsycopgAsync, PsycopgBlocking])
async def bank(request: pytest.FixtureRequest) -> Bank:
    await made()
    return Bank(request.param(), server().url(), "bank")


async def test_postgres_takes_rising_tokens_and_refuses_stale_ones(bank: Bank) -> None:
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


async def test_a_refused_transaction_writes_nothing_in_postgres(bank: Bank) -> None:
    await bank.pay(fence(43))
    with pytest.raises(Fenced):
        await bank.pay(fence(1, "account-18", "account-18"), fence(42))
    assert await bank.tokens() == [43]


async def test_a_stale_writer_that_waited_for_the_owner_is_refused(bank: Bank) -> None:
    """The owner's transaction is open while the zombie's begins: the zombie's decision comes after."""

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


async def test_postgres_is_asked_inside_a_transaction_only(bank: Bank) -> None:
    async with bank.opened() as connection:
        with pytest.raises(Invalid, match="Begin a transaction"):
            await bank.driver.admit(connection, fence(1))
    with pytest.raises(Invalid, match="whole number"):
        await bank.pay(fence(0))


async def test_a_database_without_the_function_is_said(bank: Bank) -> None:
    bank.schema = "pg_temp"
    with pytest.raises(Invalid, match="install"):
        await bank.pay(fence(1))


async def test_writers_that_race_for_a_row_never_go_back(bank: Bank) -> None:
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


async def test_a_mark_in_postgres_says_when_it_was_last_seen(bank: Bank) -> None:
    await bank.pay(fence(1))
    connection = await asyncpg.connect(bank.url)
    marks = f"{bank.schema}.holdfast_mark"
    await connection.execute(f"UPDATE {marks} SET seen_at = '2020-01-01'")
    await bank.pay(fence(1))
    new = await connection.fetchval(f"SELECT seen_at > now() - interval '1 day' FROM {marks}")
    await connection.close()
    assert new


async def test_the_marks_are_those_beside_the_function_whatever_the_search_path(bank: Bank) -> None:
    await bank.pay(fence(43))
    connection = await asyncpg.connect(bank.url)
    await connection.execute("CREATE TEMP TABLE holdfast_mark (LIKE bank.holdfast_mark)")
    for path in ("bank", "pg_temp, bank", "public"):
        await connection.execute(f"SET search_path = {path}")
        with pytest.raises(asyncpg.PostgresError) as refused:
            await connection.execute("SELECT bank.holdfast_admit('account-17', 'lock:account-17', 42)")
        assert refused.value.sqlstate == "HF001"
    await connection.close()


async def test_a_psycopg_connection_begins_by_itself_unless_it_commits_by_itself() -> None:
    await made()
    connection = await psycopg.AsyncConnection.connect(server().url(), options="-c search_path=bank")
    await postgres.admit(connection, fence(43))
    await connection.rollback()
    await postgres.admit(connection, fence(42))
    await connection.commit()
    await connection.close()


async def test_many_may_install_at_once() -> None:
    async def install() -> None:
        connection = await asyncpg.connect(server().url())
        await connection.execute("SET search_path = bank")
        await postgres.install(connection)
        await connection.close()

    for _ in range(5):
        connection = await asyncpg.connect(server().url())
        await connection.execute("DROP SCHEMA IF EXISTS bank CASCADE; CREATE SCHEMA bank")
        await connection.close()
        await asyncio.gather(*(install() for _ in range(6)))


async def test_blocking_connections_have_their_own_verbs() -> None:
    await made()
    with psycopg.connect(server().url(), options="-c search_path=bank") as connection:
        postgres.install_blocking(connection)
        postgres.admit_blocking(connection, fence(43))
        for wrong in (postgres.install(connection), postgres.admit(connection, fence(43))):
            with pytest.raises(Invalid, match="blocking"):
                await wrong
        with pytest.raises(Invalid, match="Cursor"):
            postgres.admit_blocking(connection.cursor(), fence(43))
