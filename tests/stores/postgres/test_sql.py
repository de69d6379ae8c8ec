"""The event log is a table that people read with SQL, and reading it costs what it gives."""

from collections import Counter
from typing import Any

import asyncpg
import msgspec
import pytest

from holdfast.core.catalogue import EventClass
from holdfast.core.event import Event
from holdfast.core.job import Failure
from holdfast.core.lifecycle import Outcome, Success
from holdfast.core.spec import Spec
from holdfast.ports import JobFilter, JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.stores.postgres.sessions import SETTINGS
from holdfast.stores.postgres.statements import statement
from holdfast.system import SystemIds
from tests.stores.postgres.open_stores import (
    ACTOR,
    claimed,
    connected,
    fact,
    fresh_store_url,
    opened,
    said,
    schema_of,
    wanted,
)

COLUMNS = {
    "log_id": "bigint",
    "event_id": "text",
    "event_type": "text",
    "occurred_at": "timestamp with time zone",
    "job_id": "text",
    "task_id": "text",
    "execution_id": "text",
    "trace_id": "text",
    "span_id": "text",
    "attributes": "json",
    "received_at": "timestamp with time zone",
}
SOME_JOBS = 4_000


async def test_the_log_has_the_columns_that_were_asked_for() -> None:
    url = fresh_store_url()

    async with opened(url), connected() as person:
        rows = await person.fetch(
            "SELECT column_name, data_type FROM information_schema.columns"
            " WHERE table_schema = $1 AND table_name = 'job_event_log'",
            schema_of(url),
        )
        assert dict(map(tuple, rows)) == COLUMNS


async def test_a_row_of_the_log_says_what_the_event_says() -> None:
    url = fresh_store_url()

    async with opened(url) as store, connected() as person:
        registry = LocalRegistry(store, SystemIds())
        request = JobRequest(spec=Spec(), job_id="job", trace_id="trace-1", correlation_id="c-1")
        await registry.enqueue(request, actor=ACTOR)
        for last in (False, True):
            [grant] = await registry.claim(["default"], owner="w")
            [first, *_] = await registry.history("job")
            await registry.publish(grant, [said(1, first)])
            await registry.publish(grant, [said(2, first), said(3, first)])
            await (registry.complete(grant, Success()) if last else registry.release(grant))
        about = msgspec.structs.replace(fact("theirs", "job"), attributes={"size": 3})
        await registry.record([about, fact("alone", None)])
        events = (await registry.events(limit=100)).events
        rows = await person.fetch(f"SELECT * FROM {schema_of(url)}.job_event_log ORDER BY log_id")
        assert len({row["event_id"] for row in rows}) == len(rows)
        assert {row["log_id"] for row in rows} == {event.log_id for event in events}
        known = {event.event_id: event for event in events}
        for row in rows:
            check_row(row, known[row["event_id"]])
        lines = [row for row in rows if row["event_type"] == "output"]
        sequences = [msgspec.json.decode(row["attributes"])["sequence"] for row in lines]
        assert sorted(sequences) == [1, 1, 2, 2, 3, 3]
        executions = {row["execution_id"] for row in lines}
        assert executions == {"job#1", "job#2"}
        assert {row["trace_id"] for row in rows if row["job_id"] and row["event_id"] != "theirs"}


def check_row(row: asyncpg.Record, event: Event) -> None:
    assert row["event_type"] == event.event_type
    assert row["occurred_at"] == event.occurred_at
    assert row["job_id"] == event.job_id
    assert row["received_at"] == (event.received_at or event.occurred_at)
    if event.execution_id is not None:
        assert row["execution_id"] == event.execution_id
    if event.event_class is not EventClass.WORKER:
        assert msgspec.json.decode(row["attributes"] or "{}") == event.attributes


@pytest.mark.parametrize("where", ["payload", "result", "error", "fact"])
async def test_a_job_with_a_nul_in_it_hides_no_other(where: str) -> None:
    """PostgreSQL refuses to take JSON apart in which there is one."""
    url = fresh_store_url()
    nul = "a\0b"
    specs = {
        "payload": Spec(payload=msgspec.Raw(b'{"a":"\\u0000"}')),
    }

    async with opened(url) as store, connected() as person:
        registry = LocalRegistry(store, SystemIds())
        spec = specs.get(where, Spec())
        await registry.enqueue(JobRequest(spec=spec, job_id="nul"), actor=ACTOR)
        [grant] = await registry.claim(["default"], owner="w")
        outcomes: dict[str, Outcome] = {
            "result": Success(result={"a": nul}),
            "error": Failure(message=nul),
        }
        await registry.complete(grant, outcomes.get(where, Success()))
        if where == "fact":
            theirs = msgspec.structs.replace(fact("theirs", "nul"), attributes={"a": nul})
            await registry.record([theirs])
        mine = Spec(labels={"team": "mine"})
        await registry.enqueue(JobRequest(spec=mine, job_id="mine"), actor=ACTOR)
        assert (await registry.status("nul")).spec.labels == spec.labels
        found = await registry.list_jobs(JobFilter(labels={"team": "mine"}))
        assert [job.job_id for job in found.jobs] == ["mine"]
        rows = await person.fetch(f"SELECT * FROM {schema_of(url)}.job_event_log")
        assert Counter(row["job_id"] for row in rows)["mine"] == 1


QUESTIONS = [
    "SELECT * FROM job_event_log WHERE job_id = 'job-7' ORDER BY log_id",
    "SELECT * FROM event WHERE job = (SELECT seq FROM job WHERE job_id = 'job-7')",
    "SELECT * FROM job_event_log WHERE event_type = 'job_failed' AND occurred_at > now() - interval '1 hour'",
    "SELECT * FROM job_event_log WHERE event_type = 'noted'"
    " AND occurred_at > now() - interval '1 hour' AND occurred_at < now() - interval '50 minutes'",
    "SELECT * FROM job_event_log WHERE occurred_at"
    " BETWEEN now() - interval '1 day' AND now() - interval '1 hour'",
    "SELECT * FROM job WHERE correlation_id = 'corr-7'",
    "SELECT event.* FROM job JOIN event ON event.job = job.seq WHERE correlation_id = 'corr-7'",
]
OURS = {
    "select_logs": "'job-7', 0, 0, true, 100, 4000000",
    "select_old_histories": "ARRAY['job-7']",
    "select_facts": "ARRAY['job-7'], 'job_replayed'",
    "select_logged": "ARRAY['job-7']",
    "select_segments": "ARRAY[7, 8]",
    "get_jobs": "ARRAY['job-7']",
    "select_old_events": "100, 100, 100, 4000000",
    "select_feed_rows": "100, 1000, 100, 4000000",
    "select_feed_segments": "100, 110, 100, 4000000, 0",
    "peek_ready": (
        "now(), ARRAY['default'], ARRAY['command'], '', '', ARRAY[1], ARRAY[now()], ARRAY[7], '-infinity',"
        " ARRAY['op-7'], 17"
    ),
    "delete_events": "ARRAY[1, 2, 3]",
    "delete_claims": "ARRAY['op-7']",
    "delete_facts": "ARRAY['job-7']",
    "select_claimed": "ARRAY['op-7']",
    "lock_segments": "ARRAY[7, 8]",
}


async def test_no_question_that_people_ask_reads_a_whole_table() -> None:
    """The second partition is empty: what reads all of that reads nothing."""
    url = fresh_store_url()

    async with connected() as person:
        await fill(url, person)
        for question in QUESTIONS:
            plan = await explained(person, question)
            assert not scanned(plan), (question, plan)
        everything = await explained(person, "SELECT * FROM job_event_log")
        assert scanned(everything) >= {"segment", "event_000000000000", "fact"}


async def test_no_statement_of_ours_reads_a_whole_table() -> None:
    url = fresh_store_url()

    async with connected() as person:
        await fill(url, person)
        for name, value in SETTINGS.items():
            await person.execute(f"SET {name} = '{value}'")
        for name, parameters in OURS.items():
            await person.execute(f"PREPARE ours AS {statement(name, schema_of(url))}")
            plan = await explained(person, f"EXECUTE ours({parameters})")
            assert not scanned(plan), (name, plan)
            await person.execute("DEALLOCATE ours")


async def fill(url: str, person: "asyncpg.Connection[Any]") -> None:
    async with opened(url) as store:
        for start in range(0, SOME_JOBS, 10):
            numbers = range(start, start + 10)
            await store.transact([wanted(f"job-{n}", correlation_id=f"corr-{n}") for n in numbers])
            await store.transact([claimed(f"op-{start}", limit=10)])
            await store.record([fact(f"fact-{n}", f"job-{n}") for n in numbers])
    await person.execute(OUTPUT.format(schema_of(url)))
    await person.execute(f"SET search_path = {schema_of(url)}; ANALYZE")


OUTPUT = """
INSERT INTO {0}.event (log_id, place, job, event_type, event_class, attempt, fencing_token, sequence,
                       end_sequence, occurred_at, received_at, body)
SELECT n, 1::bigint << 59, 1 + n % 4000, 'output', 'worker', 1, 1, n, n,
       now() - (50000 - n) * interval '1 minute', now(), '[]'
FROM generate_series(1, 40000) AS n
"""


async def explained(person: "asyncpg.Connection[Any]", question: str) -> str:
    return "\n".join(row[0] for row in await person.fetch(f"EXPLAIN (COSTS OFF) {question}"))


def scanned(plan: str) -> set[str]:
    """The tables with something in them that a plan reads from one end to the other."""
    lines = [line.partition("Seq Scan on ")[2].split() for line in plan.splitlines()]
    return {line[0] for line in lines if line} - {"event_000000262144", "claim"}


READS = "pg_stat_user_tables WHERE schemaname = $1 AND"

COPIES = """
INSERT INTO {0}.ready SELECT min(lane), min(ready_at) + n * interval '1 microsecond', 1000000 + n
FROM {0}.ready, generate_series(1, 30000) AS n GROUP BY n
"""


async def test_a_claim_reads_what_it_takes_however_many_wait() -> None:
    """Found by the benchmark beside other systems: 290 ms where 100,000 waited, by sorting all of them."""
    url = fresh_store_url()
    schema = schema_of(url)

    async with opened(url) as store, connected() as person:
        registry = LocalRegistry(store, SystemIds())
        await registry.enqueue_many([JobRequest(spec=Spec())] * 20, actor=ACTOR)
        await person.execute(COPIES.format(schema))
        await person.execute(f"VACUUM ANALYZE {schema}.ready")
        reads = f"SELECT sum(idx_tup_fetch + seq_tup_read) FROM {READS} relname = 'ready'"
        before = await person.fetchval(reads, schema)
        assert len(await registry.claim(["default"], owner="w", limit=10)) == 10
        await person.execute("SELECT pg_stat_clear_snapshot()")
        await store._sessions.close()  # a session that ends tells what it has read
        while (after := await person.fetchval(reads, schema)) == before:
            await person.execute("SELECT pg_stat_clear_snapshot()")
        assert after - before < 100
