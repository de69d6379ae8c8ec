"""Jobs enqueued in the caller's own transaction exist if and only if it is committed."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psycopg
import pytest

from holdfast import App, AsyncClient, Client, Invalid, State
from tests.sdk.sample_jobs import add, url_of


@pytest.fixture
def url(tmp_path: Path) -> str:
    return url_of("postgres", tmp_path)


@pytest.fixture
def app(url: str) -> Iterator[App]:
    made = App(url)
    yield made
    made.close()


def plain(url: str) -> str:
    """The URL as other drivers take it."""
    return url.partition("?")[0]


def made(app: App) -> int:
    return app.background.call(lambda client: client.counts()).get(State.QUEUED, 0)


@pytest.mark.parametrize("commits", [True, False])
async def test_a_coroutine_makes_jobs_on_its_own_connection(app: App, commits: bool) -> None:
    job = app.job(add)

    connection = await asyncpg.connect(plain(app.url))
    transaction = connection.transaction()
    await transaction.start()
    mine = job.configure(connection=connection)
    handle = await mine.enqueue_async(1)
    await mine.enqueue_many_async([job.call(2), job.call(3)])
    assert await app.background.call_async(lambda client: client.counts()) == {}
    await (transaction.commit() if commits else transaction.rollback())
    await connection.close()
    job_id = handle.job_id

    assert made(app) == (3 if commits else 0)
    if commits:
        assert app.background.call(lambda client: client.status(job_id)).job_id == job_id


@pytest.mark.parametrize("commits", [True, False])
def test_a_blocking_connection_serves_plain_functions(app: App, commits: bool) -> None:
    job = app.job(add)

    with psycopg.connect(plain(app.url)) as connection:
        job.configure(connection=connection).enqueue(1)
        assert made(app) == 0
        if not commits:
            connection.rollback()

    assert made(app) == (1 if commits else 0)


def test_every_loop_has_its_own_way(app: App) -> None:
    job = app.job(add)

    async def enqueue_two() -> None:
        async with await psycopg.AsyncConnection.connect(plain(app.url)) as connection:
            mine = job.configure(connection=connection)
            await mine.enqueue_async(1)
            await mine.enqueue_async(2)

    for _ in range(3):
        asyncio.run(enqueue_two())

    assert made(app) == 6


async def test_a_connection_of_a_loop_does_not_serve_plain_functions(app: App) -> None:
    job = app.job(add)

    connection = await asyncpg.connect(plain(app.url))
    other = await psycopg.AsyncConnection.connect(plain(app.url))
    with Client(app.url) as client:
        for one in (connection, other):
            with pytest.raises(Invalid, match="belongs to an event loop"):
                job.configure(connection=one).enqueue(1)
            with pytest.raises(Invalid, match="belongs to an event loop"):
                client.enqueue(job.call(1), connection=one)
    await connection.close()
    await other.close()
    assert made(app) == 0


async def test_the_client_for_coroutines_joins_a_transaction(app: App) -> None:
    call = app.job(add).call(1)

    async with AsyncClient(app.url) as client:
        connection = await asyncpg.connect(plain(app.url))
        async with connection.transaction():
            await client.enqueue(call, connection=connection)
            assert await client.counts() == {}
        await connection.close()
        assert await client.counts() == {State.QUEUED: 1}


def test_the_plain_client_joins_a_transaction(app: App) -> None:
    call = app.job(add).call(1)

    with Client(app.url) as client, psycopg.connect(plain(app.url)) as connection:
        client.enqueue(call, connection=connection)
        assert made(app) == 0
    assert made(app) == 1


def test_a_store_without_transactions_says_so() -> None:
    app = App("memory://")

    with pytest.raises(Invalid, match="Only a postgresql:// store"):
        app.job(add).configure(connection=object()).enqueue(1)
    app.close()
