"""What a hostile reader of the PostgreSQL store asked of its sessions and guests."""

import asyncio
import os
import shutil
import subprocess
import time
from datetime import timedelta

import psycopg
import pytest
from test_postgres_corners import Place, ended, made, place, postgres, server

from holdfast.core.errors import Denied, Fenced
from holdfast.core.lifecycle import Success
from holdfast.ports import Grant
from holdfast.sdk.open import open_registry
from verify.postgres_server import PostgresServer

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


def test_a_base_backup_that_is_put_back_refuses_the_owners_of_after_it() -> None:
    """A recovered cluster keeps its system identifier; only its timeline is another."""

    async def lose() -> Grant:
        registry = await open_registry(found.url())
        grant = await registry.acquire("job-1", owner="worker-7")
        await registry.close()
        return grant

    async def make() -> None:
        registry = await open_registry(found.url())
        await registry.enqueue(made("job-1"), actor="user:ana")
        await registry.close()

    async def again(lost: Grant) -> None:
        registry = await open_registry(found.url())
        try:
            grant = await registry.acquire("job-1", owner="worker-8")
            assert grant.fencing_token > lost.fencing_token
            with pytest.raises(Fenced):
                await registry.complete(lost, Success())
        finally:
            await registry.close()

    with PostgresServer(fast=True) as found:
        asyncio.run(make())
        found.stop()
        backup = found.folder / "backup"
        subprocess.run(["cp", "-a", str(found.data), str(backup)], check=True)
        found.start()
        lost = asyncio.run(lose())
        found.stop()
        shutil.rmtree(found.data)
        backup.rename(found.data)
        (found.data / "recovery.signal").touch()
        os.chown(found.data / "recovery.signal", *os.stat(found.data)[4:6])
        found.settings["restore_command"] = "false"
        found.start()
        for _ in range(200):
            if found.sql("SELECT pg_is_in_recovery()") == "f":
                break
            time.sleep(0.05)
        asyncio.run(again(lost))


def test_the_lease_of_a_job_that_waited_to_be_made_is_counted_from_when_it_was(
    place: Place,
) -> None:
    async def body() -> None:
        registry = await place.opened()
        person = await place.stranger()
        outer = person.transaction()
        await outer.start()
        await registry.enqueue(made("job-1"), actor="user:ana", connection=person)
        getting = asyncio.create_task(
            registry.acquire("job-1", owner="w", create=made("job-1"), lease=timedelta(seconds=10))
        )
        await asyncio.sleep(2)
        await outer.rollback()
        grant = await getting
        assert grant.job.lease is not None
        left = grant.job.lease.expires_at - await registry.now()
        assert left > timedelta(seconds=9)

    place.play(body)


def test_a_user_who_is_not_the_owner_prunes_what_he_may(place: Place) -> None:
    async def body() -> None:
        owner = await place.opened()
        await ended(owner, "job-1")
        person = await place.stranger()
        url = await place.worker_url(person)
        await place.skip_to(person, 3 * 2**18)
        await place.opened()  # with the next partitions
        registry = await place.opened(url)
        assert (await registry.prune(older_than=timedelta())).jobs == 1

    place.play(body)


def test_a_user_who_is_not_the_owner_gets_in_while_there_is_room(place: Place) -> None:
    async def body() -> None:
        await place.opened()
        person = await place.stranger()
        url = await place.worker_url(person)
        await place.skip_to(person, 2**18 + 7)
        registry = await place.opened(url)
        assert (await registry.enqueue(made("job-1"), actor="user:ana")).version == 1
        await place.skip_to(person, 2**21)
        with pytest.raises(Denied):
            await place.opened(url)

    place.play(body)
