"""How much of a long queue is read where the planner knows nothing of it yet."""

import asyncpg

from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.stores.postgres.sessions import SETTINGS
from tests.stores.postgres.open_stores import ACTOR, OwnSchema

JOBS, NAMED = 2_000, 20


async def test_locking_named_jobs_does_not_read_the_queue(own: OwnSchema) -> None:
    registry = await own.open()
    for _ in range(JOBS // 500):
        await registry.enqueue_many([JobRequest(spec=Spec())] * 500, actor=ACTOR)
    job_ids = [job.job_id for job in (await registry.list_jobs(limit=NAMED)).jobs]
    session = await asyncpg.connect(own.server.url(), server_settings=SETTINGS)
    own.ends.push_async_callback(session.close, timeout=1)

    async with session.transaction():
        locked = await session.fetch(f"SELECT FROM {own.schema}.lock_jobs_4($1)", job_ids)
        read = await session.fetchval(
            "SELECT idx_tup_fetch FROM pg_stat_xact_user_tables WHERE schemaname = $1 AND relname = 'ready'",
            own.schema,
        )

    assert len(locked) == NAMED
    assert 0 < read <= 2 * NAMED
