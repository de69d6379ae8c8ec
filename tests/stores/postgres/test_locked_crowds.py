"""Claims beside many jobs whose locks are held: how many rows they read, and whom they pass over."""

import asyncio
from typing import Any

import asyncpg
import pytest

from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.stores.postgres.store import PostgresStore
from holdfast.system import SystemIds
from tests.stores.postgres.open_stores import (
    ACTOR,
    connected,
    fresh_store_url,
    job_request,
    opened,
    schema_of,
)

CROWD = 30_000
ROWS = """
INSERT INTO {0}.ready
SELECT min(lane), min(ready_at) - n * interval '1 microsecond', 1000000 + n, NULL, 'held-' || n % {1}
FROM {0}.ready, generate_series(1, {2}) AS n WHERE lock IS NOT NULL GROUP BY n
"""
READS = """
SELECT sum(idx_tup_fetch + seq_tup_read) FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = 'ready'
"""


async def hold(registry: LocalRegistry, locks: int) -> None:
    """Have jobs run with the locks `held-0`, `held-1` …"""
    requests = [JobRequest(spec=Spec(queue="holders", lock=f"held-{n}")) for n in range(locks)]
    await registry.enqueue_many(requests, actor=ACTOR)
    assert len(await registry.claim(["holders"], owner="holder", limit=locks)) == locks


async def rows_read(store: PostgresStore, person: "asyncpg.Connection[Any]", schema: str, before: int) -> int:
    """How many more rows of the queue were read, told by the sessions when they end."""
    await store._sessions.close()
    for _ in range(500):
        await person.execute("SELECT pg_stat_clear_snapshot()")
        if (after := await person.fetchval(READS, schema)) != before:
            return int(after - before)
        await asyncio.sleep(0.02)
    raise AssertionError("no session has told what it read")


@pytest.mark.parametrize("locks", [1, 100])
@pytest.mark.parametrize("known", ["VACUUM ANALYZE", "VACUUM"])
async def test_a_claim_reads_few_rows_beside_many_jobs_of_held_locks(locks: int, known: str) -> None:
    """Whether the server knows how many they are or not."""
    url = fresh_store_url()
    schema = schema_of(url)

    async with opened(url) as store, connected() as person:
        registry = LocalRegistry(store, SystemIds())
        await hold(registry, locks)
        for job_id, lock in {"one": "free", "two": "free", "plain": None, "three": "another"}.items():
            await registry.enqueue(job_request(job_id, lock), actor=ACTOR)
        await person.execute(ROWS.format(schema, locks, CROWD))
        await person.execute(f"{known} {schema}.ready")
        before = await person.fetchval(READS, schema)
        got = await registry.claim(["default"], owner="w", limit=10)
        assert [grant.job_id for grant in got] == ["one", "plain", "three"]
        assert await rows_read(store, person, schema, before) < 5_000


async def test_a_claim_that_finds_nothing_but_held_locks_reads_few_rows_each_time() -> None:
    url = fresh_store_url()
    schema = schema_of(url)

    async with opened(url) as store, connected() as person:
        registry = LocalRegistry(store, SystemIds())
        await hold(registry, 1)
        await registry.enqueue(job_request("waits", "held-0"), actor=ACTOR)
        await person.execute(ROWS.format(schema, 1, CROWD))
        before = await person.fetchval(READS, schema)
        for _ in range(10):
            assert not await registry.claim(["default"], owner="w", limit=10)
        assert await rows_read(store, person, schema, before) < 30_000


async def test_a_job_that_somebody_has_locked_does_not_hide_the_others_of_its_lock() -> None:
    """As long as one person looks at a job, the others go on."""
    url = fresh_store_url()
    schema = schema_of(url)

    async with opened(url) as store, connected() as person:
        registry = LocalRegistry(store, SystemIds())
        await hold(registry, 1)
        for job_id, lock in {"a1": "a", "a2": "a", "b1": "b", "plain": None, "a3": "a"}.items():
            await registry.enqueue(job_request(job_id, lock), actor=ACTOR)
        await person.execute(ROWS.format(schema, 1, 2_000))
        async with person.transaction():
            find = f"SELECT seq FROM {schema}.job WHERE job_id = 'a1'"
            await person.execute(f"SELECT FROM {schema}.ready WHERE seq = ({find}) FOR UPDATE")
            got = {grant.job_id: grant for grant in await registry.claim(["default"], owner="w", limit=10)}
            assert {*got} == {"a2", "b1", "plain"}
        assert not await registry.claim(["default"], owner="w", limit=10)
        await registry.complete(got["a2"], Success())
        [grant] = await registry.claim(["default"], owner="w", limit=10)
        assert grant.job_id == "a1"
