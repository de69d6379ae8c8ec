"""Behind a pooler that lends connections by the transaction, the store is the same store."""

import asyncio
import time
from functools import cache
from pathlib import Path

import asyncpg
import pytest

from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import Clock, Ids, JobRequest, Store
from holdfast.registry.local import LocalRegistry
from holdfast.stores.postgres.sessions import Session
from holdfast.stores.postgres.store import PostgresStore
from holdfast.system import SystemIds
from holdfast.testing.store_contract import StoreContract
from tests.stores.postgres.open_stores import ACTOR, connected, fresh_schema, opened, wanted
from tests.stores.postgres.running_server import MAJOR, fresh_url, server
from verify.pooler import Pooler

CLIENTS = 6
SERVER_CONNECTIONS = 2


@cache
def pooler(pool_mode: str) -> Pooler:
    """One per test process; it ends with it."""
    found = Pooler(server(MAJOR), pool_mode=pool_mode, default_pool_size=SERVER_CONNECTIONS)
    found.start()
    return found


def through(pool: Pooler, url: str) -> str:
    return url.replace(f":{server(MAJOR).port}/", f":{pool.port}/")


def pooled_url(pool_mode: str = "transaction") -> str:
    return through(pooler(pool_mode), server(MAJOR).url(schema=fresh_schema()))


class TestPooled(StoreContract):
    @staticmethod
    async def open(folder: Path, clock: Clock | None, ids: Ids) -> Store:
        url = through(pooler("transaction"), await fresh_url(folder))
        store = await PostgresStore.open(url, ids=ids, clock=clock)
        assert store._sessions.pooled
        return store


@pytest.mark.parametrize("pool_mode", ["transaction", "session"])
async def test_six_clients_work_through_two_connections(pool_mode: str) -> None:
    """By the session, a connection belongs to one client until it leaves."""
    pool = Pooler(server(MAJOR), pool_mode=pool_mode, default_pool_size=SERVER_CONNECTIONS)
    if pool_mode == "session":
        pool.settings["default_pool_size"] = str(CLIENTS * 5)
    url = through(pool, server(MAJOR).url(schema=fresh_schema()))
    rounds = 10

    async def work(n: int) -> int:
        ended = 0
        async with opened(url) as store:
            registry = LocalRegistry(store, SystemIds())
            for _ in range(rounds):
                await registry.enqueue(JobRequest(spec=Spec()), actor=ACTOR)
                for grant in await registry.claim(["default"], owner=f"w-{n}", limit=2):
                    await registry.heartbeat(grant)
                    await registry.complete(grant, Success())
                    ended += 1
        return ended

    with pool:
        async with opened(url) as store:
            ended = await asyncio.gather(*(work(n) for n in range(CLIENTS)))
            counts = await store.counts()
            assert counts["succeeded"] == sum(ended)  # type: ignore[index]
            assert sum(counts.values()) == CLIENTS * rounds
            registry = LocalRegistry(store, SystemIds())
            assert (await registry.verify()).equal


async def test_nothing_listens_and_a_new_job_is_found_by_looking() -> None:
    url = pooled_url()

    async with opened(url) as waiter, opened(url) as submitter:
        mark = waiter.change_mark()
        began = time.monotonic()
        waiting = asyncio.create_task(waiter.wait(mark, 30))
        await asyncio.sleep(0.2)
        await submitter.transact([wanted()])
        await waiting
        assert time.monotonic() - began < 1.5
        async with connected() as person:
            sql = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
            assert await person.fetchval(sql) == 0


async def left_on_the_session(url: str) -> dict[str, object]:
    """What a server's session that others used before us still has."""
    person = await asyncpg.connect(url, statement_cache_size=0)
    left = await person.fetchrow("""
        SELECT ARRAY(SELECT name FROM pg_settings
                     WHERE setting <> reset_val AND source = 'session'
                       AND name <> 'application_name') AS settings,
               ARRAY(SELECT name FROM pg_prepared_statements WHERE name <> '') AS statements,
               ARRAY(SELECT pg_listening_channels()) AS channels,
               (SELECT count(*) FROM pg_locks
                WHERE locktype = 'advisory' AND pid = pg_backend_pid()) AS locks
    """)
    await person.close()
    assert left is not None
    return dict(left)


async def test_settings_are_there_inside_a_transaction_and_gone_after_it() -> None:
    url = pooled_url()

    async def settings(session: Session) -> dict[str, str]:
        rows = await session.fetch("SELECT name, setting FROM pg_settings")
        return {row[0]: row[1] for row in rows}

    async with opened(url) as store:
        inside = await store._sessions.use(settings)
        assert inside["lock_timeout"] == "2000"
        assert inside["statement_timeout"] == "10000"
        assert inside["idle_in_transaction_session_timeout"] == "2000"
        assert inside["plan_cache_mode"] == "force_generic_plan"
        await store.transact([wanted()])
        left = await left_on_the_session(url.partition("?")[0])
        assert left == {"settings": [], "statements": [], "channels": [], "locks": 0}


@pytest.mark.parametrize("pooled", [False, True])
async def test_commits_wait_for_the_disk_where_the_server_would_not(pooled: bool) -> None:
    role = f"careless_{pooled}".lower()
    server(MAJOR).sql(
        f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN SUPERUSER;"
        f" ALTER ROLE {role} SET synchronous_commit = off;"
    )
    direct = server(MAJOR).url(user=role)
    url = through(pooler("transaction"), direct) if pooled else direct

    async with opened(f"{url}?schema={fresh_schema()}") as store:
        assert store._sessions.pooled == pooled
        rows = await store._sessions.use(lambda s: s.fetch("SHOW synchronous_commit"))
        assert rows[0][0] == "on"
        found = [finding for finding in await store.doctor() if finding.level == "warning"]
        assert any("synchronous_commit is off" in finding.words for finding in found)
    person = await asyncpg.connect(url, statement_cache_size=0)
    assert await person.fetchval("SHOW synchronous_commit") == "off"
    await person.close()
