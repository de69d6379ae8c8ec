"""Sessions keep their own settings, limits and health, whatever the server or the role is set to."""

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

from holdfast.core.errors import Unavailable
from holdfast.stores.postgres import sessions
from holdfast.stores.postgres.store import PostgresStore
from holdfast.system import SystemClock, SystemIds
from tests.stores.postgres.open_stores import (
    OwnSchema,
    job_request,
    store_of,
)
from verify.postgres_server import PostgresServer


async def test_a_server_that_stops_waiting_for_the_disk_meanwhile_changes_nothing_for_us() -> None:
    with PostgresServer(fast=True) as mine:
        here = OwnSchema(mine)
        async with AsyncExitStack() as here.ends:
            registry = await here.open()
            here.server.sql("ALTER SYSTEM SET synchronous_commit = off; SELECT pg_reload_conf();")
            await asyncio.sleep(0.5)
            found = await store_of(registry)._sessions.use(
                lambda session: session.fetch("SHOW synchronous_commit")
            )
            assert found[0][0] == "on"


async def test_a_role_set_to_serializable_is_served_all_the_same(own: OwnSchema) -> None:
    await own.open()
    person = await own.connect()
    await person.execute(
        f"CREATE ROLE strict_{own.schema} SUPERUSER LOGIN;"
        f"ALTER ROLE strict_{own.schema} SET default_transaction_isolation = 'serializable'"
    )
    url = own.server.url(user=f"strict_{own.schema}", schema=own.schema)
    strict = await own.open(url)
    found = await store_of(strict)._sessions.use(lambda session: session.fetch("SHOW transaction_isolation"))
    assert found[0][0] == "read committed"


async def test_a_session_that_finds_itself_on_a_replica_is_not_used_again(own: OwnSchema) -> None:
    """After a failover the old primary may keep its connections, and only read."""

    registry = await own.open()
    await store_of(registry)._sessions.use(
        lambda session: session.connection.execute("SET default_transaction_read_only = on")
    )
    first = registry.enqueue(job_request("job-1"), actor="user:ana")
    await asyncio.gather(first, return_exceptions=True)
    job = await registry.enqueue(job_request("job-2"), actor="user:ana")
    assert job.version == 1


async def test_a_column_that_becomes_wider_meanwhile_is_not_noticed(own: OwnSchema) -> None:
    registry = await own.open()
    for n in range(4):
        await registry.enqueue(job_request(f"job-{n}"), actor="user:ana")
    await registry.claim(["default"], owner="worker-7")
    person = await own.connect()
    await person.execute(f"ALTER TABLE {own.schema}.ready ALTER lock TYPE varchar(1000)")
    assert len(await registry.claim(["default"], owner="worker-7")) == 1
    assert await registry.status("job-3")


async def test_slow_questions_do_not_hold_up_a_heartbeat(own: OwnSchema) -> None:
    registry = await own.open()
    await registry.enqueue(job_request("job-1"), actor="user:ana")
    grant = await registry.acquire("job-1", owner="worker-7")
    slow = [
        asyncio.create_task(store_of(registry)._sessions.use(lambda s: s.fetch("SELECT pg_sleep(1)")))
        for _ in range(12)
    ]
    await asyncio.sleep(0.1)
    started = time.monotonic()
    await registry.heartbeat(grant)
    took = time.monotonic() - started
    await asyncio.gather(*slow)
    assert took < 0.7


async def test_a_row_that_somebody_holds_holds_up_the_other_jobs_of_a_batch_for_a_part_of_a_lease(
    own: OwnSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sessions.SETTINGS, "lock_timeout", "200ms")

    registry = await own.open()
    await registry.enqueue(job_request("held"), actor="user:ana")
    await registry.enqueue(job_request("free"), actor="user:ana")
    grant = await registry.acquire("free", owner="worker-7")
    person = await own.connect()
    async with person.transaction():
        await person.execute(
            f"SELECT FROM {own.schema}.state"
            f" WHERE seq = (SELECT seq FROM {own.schema}.job WHERE job_id = 'held') FOR UPDATE"
        )
        started = time.monotonic()
        stuck = asyncio.create_task(registry.cancel("held", actor="user:ana"))
        beat = asyncio.create_task(registry.heartbeat(grant))
        await asyncio.wait([stuck, beat], timeout=10)
        took = time.monotonic() - started
    answers = await asyncio.gather(stuck, beat, return_exceptions=True)
    assert isinstance(answers[0], Unavailable)
    assert took < 1  # five timeouts of this test; of the real ones, 25 s of a lease of 60


async def test_a_caller_that_leaves_while_it_waits_leaves_its_turn_to_others(own: OwnSchema) -> None:
    pool = store_of(await own.open())._sessions

    async def all_at_once() -> None:
        together = asyncio.Barrier(sessions.CONNECTIONS_MAX)

        async def meet(session: sessions.Session) -> None:
            await together.wait()

        async with asyncio.timeout(10):
            works = [pool.use(meet, deciding=not n) for n in range(sessions.CONNECTIONS_MAX)]
            await asyncio.gather(*works)

    async def hold(session: sessions.Session) -> None:
        await done.wait()

    done = asyncio.Event()
    await all_at_once()
    holders = [asyncio.create_task(pool.use(hold, deciding=True)) for _ in range(sessions.CONNECTIONS_MAX)]
    await asyncio.sleep(0)
    leaver = asyncio.create_task(pool.use(hold, scanning=True))
    await asyncio.sleep(0)
    leaver.cancel()
    await asyncio.gather(leaver, return_exceptions=True)
    done.set()
    await asyncio.gather(*holders)
    await all_at_once()
    await pool.use(hold, scanning=True)


class CountingClock(SystemClock):
    """The real clock, which counts how often somebody waits."""

    waits = 0

    async def sleep(self, seconds: float) -> None:
        self.waits += 1
        await super().sleep(seconds)


async def test_a_server_that_is_known_to_be_away_is_told_of_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "AWAY_SECONDS_MAX", 0.3)
    with PostgresServer(fast=True) as mine:
        store = await PostgresStore.open(mine.url(), ids=SystemIds())
        clock = store._sessions._clock = CountingClock()
        mine.kill()

        with pytest.raises(Unavailable, match="No PostgreSQL answers at"):
            await store.counts(None)
        first = clock.waits
        with pytest.raises(Unavailable, match="No PostgreSQL answers at"):
            await store.counts(None)
        assert first > 0
        assert clock.waits == first

        mine.start()
        assert await store.counts(None) == {}
        mine.kill()
        with pytest.raises(Unavailable):
            await store.counts(None)
        assert clock.waits > first
        await store.close()
