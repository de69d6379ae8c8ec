"""Pruning and adding up counts beside the work: bounded, and never at the expense of a job."""

import asyncio
from datetime import timedelta

import pytest

from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.stores.postgres import maintenance, sessions
from tests.stores.postgres.open_stores import (
    OwnSchema,
    finish_job,
    job_request,
    waiting_for_a_lock,
)


async def test_a_prune_has_the_time_it_was_given(own: OwnSchema, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "ANSWER_SECONDS", 1)

    registry = await own.open()
    await finish_job(registry, "job-1")
    person = await own.connect()
    await person.execute(
        f"CREATE FUNCTION {own.schema}.slow() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_sleep(2); RETURN NULL; END';"
        f"CREATE TRIGGER slow AFTER DELETE ON {own.schema}.job"
        f" FOR EACH STATEMENT EXECUTE FUNCTION {own.schema}.slow()"
    )
    pruned = await registry.prune(older_than=timedelta())
    assert pruned.jobs == 1


async def test_a_job_made_again_while_its_predecessor_is_pruned_has_no_token_of_before(
    own: OwnSchema,
) -> None:
    """The batch also claims, so that it locks what it reads, and waits for the prune to end."""

    registry = await own.open()
    before = await finish_job(registry, "job-1")
    pruner = await own.connect()
    async with pruner.transaction():
        await pruner.execute(f"SELECT FROM {own.schema}.state FOR UPDATE")
        again = asyncio.gather(
            registry.enqueue(job_request("job-1"), actor="user:ana"),
            registry.claim(["elsewhere"], owner="worker-8"),
        )
        await waiting_for_a_lock(pruner)
        await pruner.execute(f"INSERT INTO {own.schema}.meta VALUES ('token_floor', '{before}')")
        for table in ("event", "claim", "job"):
            await pruner.execute(f"DELETE FROM {own.schema}.{table}")
    job, _ = await again
    assert job.version == 1  # a new one
    grant = await registry.acquire("job-1", owner="worker-9")
    assert grant.fencing_token > before


async def test_counts_of_many_queues_are_added_up_as_fast_as_they_come(
    own: OwnSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "COMMITS_PER_CLEANING", 20)
    monkeypatch.setattr(maintenance, "COUNTS_MAX", 200)

    registry = await own.open()
    for _ in range(60):
        requests = [JobRequest(spec=Spec(queue=f"queue-{k}")) for k in range(50)]
        await registry.enqueue_many(requests, actor="user:ana")
    person = await own.connect()
    rows = await person.fetchval(f"SELECT count(*) FROM {own.schema}.queue_count")
    assert rows < 1200  # of 3,000 that were written
