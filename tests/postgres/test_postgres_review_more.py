"""What a hostile reader of the PostgreSQL store asked of its sessions and guests."""

import asyncio
import time

import psycopg
import pytest

from test_postgres_review import Place, made, place, postgres, server

__all__ = ["place", "server"]


def test_a_session_that_finds_itself_on_a_replica_is_not_used_again(place: Place) -> None:
    """After a failover the old primary may keep its connections, and only read."""

    async def body() -> None:
        registry = await place.opened()
        await postgres(registry)._sessions.use(
            lambda session: session.connection.execute("SET default_transaction_read_only = on")
        )
        first = registry.enqueue(made("job-1"), actor="user:ana")
        await asyncio.gather(first, return_exceptions=True)
        job = await registry.enqueue(made("job-2"), actor="user:ana")
        assert job.version == 1

    place.play(body)


def test_a_column_that_becomes_wider_meanwhile_is_not_noticed(place: Place) -> None:
    async def body() -> None:
        registry = await place.opened()
        for n in range(4):
            await registry.enqueue(made(f"job-{n}"), actor="user:ana")
        await registry.claim(["default"], owner="worker-7")
        person = await place.stranger()
        await person.execute(f"ALTER TABLE {place.schema}.job ALTER crashes TYPE bigint")
        assert len(await registry.claim(["default"], owner="worker-7")) == 1
        assert await registry.get("job-3")

    place.play(body)


def test_slow_questions_do_not_hold_up_a_heartbeat(place: Place) -> None:
    async def body() -> None:
        registry = await place.opened()
        await registry.enqueue(made("job-1"), actor="user:ana")
        grant = await registry.acquire("job-1", owner="worker-7")
        slow = [
            asyncio.create_task(
                postgres(registry)._sessions.use(lambda s: s.fetch("SELECT pg_sleep(1)"))
            )
            for _ in range(12)
        ]
        await asyncio.sleep(0.1)
        started = time.monotonic()
        await registry.heartbeat(grant)
        took = time.monotonic() - started
        await asyncio.gather(*slow)
        assert took < 0.7

    place.play(body)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_an_enqueue_that_is_cancelled_leaves_the_transaction_usable(
    place: Place, driver: str
) -> None:
    async def body() -> None:
        registry = await place.opened()
        other = await place.stranger()
        await other.execute("BEGIN")
        await registry.enqueue(made("job-1"), actor="user:ana", connection=other)
        if driver == "asyncpg":
            mine: object = await place.stranger()
            await mine.execute("BEGIN")  # type: ignore[attr-defined]
        else:
            mine = await psycopg.AsyncConnection.connect(place.server.url())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await registry.enqueue(made("job-1"), actor="user:ana", connection=mine)
        job = await registry.enqueue(made("job-2"), actor="user:ana", connection=mine)
        assert job.version == 1
        await mine.execute("COMMIT")  # type: ignore[attr-defined]
        if driver == "psycopg":
            await mine.close()  # type: ignore[attr-defined]
        assert (await registry.get("job-2")).version == 1

    place.play(body)
