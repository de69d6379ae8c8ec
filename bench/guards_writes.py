"""What comparing the token adds to a write, in each kind of resource."""

import sqlite3
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path

import asyncpg
from redis.asyncio import Redis

from holdfast.fencing import Fence, buckets, postgres, sqlite
from holdfast.fencing import redis as fenced_redis
from postgres_setup import PostgresSetup
from verify.bucket_server import s3_store
from verify.redis_server import redis_port

INSERT = "INSERT INTO payment (account, token) VALUES ('account-17', 1)"
TABLE = "CREATE TABLE payment (account text, token bigint)"
FENCE = Fence(resource="account-17", token=1, job_id="job-1", lock="account-17")


@dataclass(frozen=True)
class Cost:
    """Microseconds of one write, without and with a fence."""

    name: str
    bare: float
    fenced: float


async def measured(
    name: str,
    bare: Callable[[], Awaitable[None]],
    fenced: Callable[[], Awaitable[None]],
    count: int,
) -> Cost:
    """The median of each, taken in turns, so that the machine's moods fall on both."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(count):
        for write, kept in zip((bare, fenced), times, strict=True):
            begun = time.perf_counter()
            await write()
            kept.append(time.perf_counter() - begun)
    bare_time, fenced_time = (sorted(kept)[len(kept) // 2] * 1e6 for kept in times)
    return Cost(name, bare_time, fenced_time)


async def sqlite_file(folder: Path, setup: PostgresSetup, count: int) -> Cost:
    connection = sqlite3.connect(folder / "bank.db")
    connection.execute("PRAGMA journal_mode = WAL")
    sqlite.install(connection)
    connection.execute(TABLE)

    async def bare() -> None:
        with connection:
            connection.execute(INSERT)

    async def fenced() -> None:
        with connection:
            sqlite.admit(connection, FENCE)
            connection.execute(INSERT)

    try:
        return await measured("SQLite file, durable", bare, fenced, count)
    finally:
        connection.close()


async def postgres_row(folder: Path, setup: PostgresSetup, count: int) -> Cost:
    connection = await asyncpg.connect(setup.server.url())
    await postgres.install(connection)
    await connection.execute(TABLE)

    async def bare() -> None:
        async with connection.transaction():
            await connection.execute(INSERT)

    async def fenced() -> None:
        async with connection.transaction():
            await postgres.admit(connection, FENCE)
            await connection.execute(INSERT)

    try:
        return await measured("PostgreSQL, durable", bare, fenced, count)
    finally:
        await connection.close()


async def redis_key(folder: Path, setup: PostgresSetup, count: int) -> Cost:
    async with Redis(port=redis_port()) as client:

        async def bare() -> None:
            await client.set("account-17", 1)

        async def fenced() -> None:
            await fenced_redis.execute(client, FENCE, ("SET", "account-17", 1))

        return await measured("Redis, in memory", bare, fenced, count)


async def bucket_object(folder: Path, setup: PostgresSetup, count: int) -> Cost:
    store = s3_store()

    async def bare() -> None:
        await store.put_async("bare", b"1")

    async def fenced() -> None:
        await buckets.put(store, "fenced", b"1", FENCE)

    return await measured("S3 (an emulator)", bare, fenced, max(10, count // 10))


WRITES: tuple[Callable[[Path, PostgresSetup, int], Coroutine[None, None, Cost]], ...] = (
    sqlite_file,
    postgres_row,
    redis_key,
    bucket_object,
)
