"""A store that code of schema 3 made is brought forward with all that is in it."""

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Grant, JobFilter, JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.stores.postgres import schema, statements
from holdfast.system import SystemIds
from tests.stores.postgres.open_stores import (
    ACTOR,
    connected,
    fresh_store_url,
    opened,
    schema_of,
)

DUMP = Path(__file__).with_name("schema_3.sql")
"""Jobs in every state, as pg_dump wrote them down."""

STATES = {
    "assigned": 3,
    "cancelled": 1,
    "dead_lettered": 1,
    "failed": 1,
    "queued": 12,
    "running": 2,
    "succeeded": 2,
    "validating": 1,
}
MANY = 5_000


async def restored() -> str:
    """The URL of a store of schema 3."""
    url = fresh_store_url()
    async with connected() as person:
        await person.execute("SET check_function_bodies = off")
        await person.execute(DUMP.read_text().replace("holdfast", schema_of(url)))
    return url


async def test_every_job_is_there_with_its_log_and_its_record_follows_from_it() -> None:
    url = await restored()

    async with opened(url) as store:
        registry = LocalRegistry(store, SystemIds())
        counts = {str(state): jobs for state, jobs in (await store.counts()).items()}
        assert counts == STATES
        assert (await registry.verify()).equal
        [traced, resulted] = await store.get(["traced", "resulted"])
        assert traced is not None
        assert (traced.trace_id, traced.correlation_id, traced.submitted_by) == ("trace-1", "corr-1", ACTOR)
        assert resulted is not None
        assert resulted.result == {"answer": 42}
        feed = await store.events(after=None, limit=1000)
        kinds = Counter(event.event_type for event in feed.events)
        assert kinds["output"] == 8
        assert kinds["noted"] == 1
        assert kinds["job_queued"] == sum(STATES.values())
        for states in ((State.FAILED,), (State.DEAD_LETTERED, State.CANCELLED)):
            page = await store.list_jobs(JobFilter(states=states), after=None, limit=10)
            assert {job.state for job in page.jobs} == set(states)


async def test_what_was_queued_leased_and_due_goes_on() -> None:
    url = await restored()

    async with opened(url) as store:
        registry = LocalRegistry(store, SystemIds())
        [running, crashed] = await store.get(["running", "crashed"])
        assert running is not None
        assert crashed is not None
        assert crashed.due_at is not None
        assert await registry.expire() > 0  # the dump is old: all its leases have run out
        claimed: list[Grant] = []
        for more in ({}, {"region": "eu"}, {"executor": "gpu"}):
            claimed += await registry.claim(["later", "claims", "default"], owner="w", limit=50, **more)  # type: ignore[arg-type]
        names = [grant.job_id for grant in claimed]
        queued = {"queued-0", "queued-1", "queued-2", "kind", "region", "executor", "deadline", "traced"}
        assert queued <= set(names)
        assert "delayed" not in names
        assert [name for name in names if name.startswith("queued")] == ["queued-0", "queued-1", "queued-2"]
        for grant in claimed:
            await registry.complete(grant, Success())
        assert {job.state for job in await store.get(names) if job} <= {State.SUCCEEDED, State.VALIDATING}
        overdue = await registry.status("overdue")
        assert overdue.ended
        assert (await registry.verify()).equal
        [chain] = await store.histories(["queued-0"])
        assert [event.offset for event in chain] == list(range(1, len(chain) + 1))
        log = await store.logs("queued-0", after=None, limit=100)
        assert [event.offset for event in log.events] == [event.offset for event in chain]


async def test_a_reader_of_the_feed_goes_on_from_old_events_to_new_ones() -> None:
    url = await restored()

    async with opened(url) as store:
        registry = LocalRegistry(store, SystemIds())
        await registry.enqueue(JobRequest(spec=Spec(), job_id="new"), actor=ACTOR)
        seen: list[str] = []
        cursor = None
        while (page := await store.events(after=cursor, limit=7)).events:
            seen += [event.event_id for event in page.events]
            cursor = page.cursor
        assert len(seen) == len(set(seen))
        assert seen[-1] == "new/1"
        async with connected() as person:
            view = f"SELECT event_id FROM {schema_of(url)}.job_event_log"
            rows = {row[0] for row in await person.fetch(view)}
        assert len(rows) == len(seen)


async def test_old_jobs_are_pruned_with_all_that_is_theirs() -> None:
    url = await restored()

    async with opened(url) as store, connected() as person:
        registry = LocalRegistry(store, SystemIds())
        pruned = await registry.prune(older_than=timedelta(0))
        assert pruned.jobs == 5
        left = await person.fetchval(f"SELECT count(*) FROM {schema_of(url)}.rare")
        assert left == 1  # the one that waits for its validation
        assert (await registry.verify()).equal


async def test_code_of_schema_3_is_refused_by_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is already connected finds none of the types that its statements name."""
    url = await restored()

    async with opened(url), connected() as person:
        for name in ("new_job", "changed_job", "touched_job", "new_event"):
            with pytest.raises(asyncpg.UndefinedObjectError):
                await person.execute(f"SELECT NULL::{schema_of(url)}.{name}[]")
    known = statements.migrations
    monkeypatch.setattr(schema, "migrations", lambda schema: known(schema)[:3])
    with pytest.raises(Exception, match=r"newer holdfast \(schema 4; this one knows 3\)"):
        async with opened(url):
            pass


async def test_many_stores_that_open_an_old_one_at_once_all_go_on() -> None:
    url = await restored()

    async def work(n: int) -> int:
        async with opened(url) as store:
            registry = LocalRegistry(store, SystemIds())
            done = 0
            while grants := await registry.claim(["claims", "bulk"], owner=f"w-{n}", limit=500):
                done += len(grants)
                await asyncio.gather(*(registry.complete(grant, Success()) for grant in grants))
            return done

    async with connected() as person:
        await person.execute(COPIES.format(schema_of(url), MANY))
    done = await asyncio.gather(*map(work, range(4)))
    assert sum(done) >= MANY
    async with opened(url) as store:
        assert (await store.counts("bulk")) == {State.SUCCEEDED: MANY}


COPIES = """
INSERT INTO {0}.job SELECT (jsonb_populate_record(job, jsonb_build_object(
    'seq', 1000 + n, 'job_id', 'copy-' || n, 'queue', 'bulk',
    'spec', replace(spec::text, 'later', 'bulk')::jsonb))).*
FROM {0}.job, generate_series(1, {1}) AS n WHERE job_id = 'queued-0';
INSERT INTO {0}.event SELECT (jsonb_populate_record(event, jsonb_build_object(
    'job', 1000 + n, 'log_id', 10000 + n))).*
FROM {0}.event, generate_series(1, {1}) AS n WHERE job = (SELECT seq FROM {0}.job WHERE job_id = 'queued-0');
INSERT INTO {0}.queue_count VALUES ('bulk', 'queued', {1});
SELECT setval('{0}.job_seq', 1000 + {1});
SELECT setval('{0}.log_seq', 10000 + {1});
"""
