"""The bare script: the rows our verbs write, in the same batches, as durably, and nothing else.

No rules, no reading back, no notification, one statement per batch: what this reaches is what PostgreSQL
on this disk allows through asyncpg. It uses our own schema and the settings of our own sessions, and
`postgres_run.py` proves with `verify` that what it writes is what the verbs would have written.
"""

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from holdfast.stores.postgres.address import address_of
from holdfast.stores.postgres.partitions import JOBS_PER_PARTITION, ensure_partitions
from holdfast.stores.postgres.sessions import SETTINGS, Session
from holdfast.system import SystemIds

LEASE = timedelta(seconds=60)
MADE = "SELECT max(seq) FROM new"
TOLD = "SELECT max(seq), pg_notify('bare', '') FROM new"

EVENTS = """('{"n":' || many || ',"job":'
    || CASE many WHEN 1 THEN seqs[1]::text ELSE array_to_json(seqs)::text END || %s)::json"""

ENQUEUE = f"""
WITH new AS MATERIALIZED (
    SELECT nextval('holdfast.job_seq') AS seq, job_id, spec
    FROM unnest($1::text[], $2::json[]) AS given(job_id, spec)),
made AS MATERIALIZED (SELECT array_agg(seq) AS seqs, count(*) AS many FROM new),
number AS MATERIALIZED (SELECT nextval('holdfast.log_seq') AS commit),
jobs AS (
    INSERT INTO holdfast.job (seq, job_id, queue, kind, priority, created_at, spec, origin)
    SELECT seq, job_id, 'default', 'echo', 5, $3::timestamptz, spec, '{{"submitted_by":"user:bench"}}'
    FROM new),
states AS (
    INSERT INTO holdfast.state (seq, fencing_token, ready_at, updated_at, attempt, version, transition_no,
                                failures, crashes, state, log, detail)
    SELECT seq, 0, $3, $3, 1, 1, 1, 0, 0, 'queued', ARRAY[commit], '{{}}' FROM new, number),
queue AS (
    INSERT INTO holdfast.ready (lane, ready_at, seq) SELECT $4::integer, $3, seq FROM new),
events AS (
    INSERT INTO holdfast.segment (commit, place, size, event_type, occurred_at, events)
    SELECT commit, 0, many, 'job_queued', $3, {EVENTS % "$5::text"} FROM made, number),
counts AS (
    INSERT INTO holdfast.queue_count (queue, state, jobs) SELECT 'default', 'queued', many FROM made)
{MADE}
"""
READY = """SELECT ctid FROM holdfast.ready
        WHERE lane = $8::integer AND (ready_at, seq) > ($6::timestamptz, $7::bigint) AND ready_at <= $1
        ORDER BY ready_at, seq LIMIT $2 FOR UPDATE SKIP LOCKED"""
KNOWN = """SELECT ctid FROM holdfast.ready
        WHERE lane = $8::integer AND ready_at >= $6::timestamptz AND seq >= $7::bigint
        ORDER BY ready_at, seq LIMIT $2 FOR UPDATE SKIP LOCKED"""
CLAIM = f"""
WITH gone AS MATERIALIZED (
    DELETE FROM holdfast.ready WHERE ctid = ANY(ARRAY({READY})) RETURNING seq, ready_at),
held AS MATERIALIZED (
    SELECT array_agg(seq ORDER BY seq) AS seqs, count(*) AS many, max(ready_at) AS mark
    FROM gone HAVING count(*) > 0),
number AS MATERIALIZED (SELECT nextval('holdfast.log_seq') AS commit FROM held),
moved AS (
    UPDATE holdfast.state
    SET state = 'assigned', version = 2, transition_no = 2, fencing_token = 1, owner = 'w1', due_at = $3,
        updated_at = $1, log = log || commit, detail = CASE WHEN many = 1 THEN $4::json END
    FROM gone, held, number WHERE state.seq = gone.seq),
events AS (
    INSERT INTO holdfast.segment (commit, place, size, event_type, occurred_at, events, detail)
    SELECT commit, 0, many, 'job_claimed', $1, {EVENTS % "$9::text"}, CASE WHEN many > 1 THEN $4::json END
    FROM held, number),
claims AS (
    INSERT INTO holdfast.claim (op_id, jobs, claimed_at) SELECT $5::text, seqs, $1::timestamptz FROM held),
alarms AS (
    INSERT INTO holdfast.alarm (due_at, jobs) SELECT $3::timestamptz, seqs FROM held),
counts AS (
    INSERT INTO holdfast.queue_count (queue, state, jobs)
    SELECT 'default', state, sign * many
    FROM held, (VALUES ('assigned', 1), ('queued', -1)) AS change(state, sign))
SELECT seqs, mark FROM held
"""
COMPLETE = f"""
WITH held AS MATERIALIZED (SELECT $1::bigint[] AS seqs, cardinality($1::bigint[]) AS many),
number AS MATERIALIZED (SELECT nextval('holdfast.log_seq') AS commit),
moved AS (
    UPDATE holdfast.state
    SET state = 'succeeded', version = 4, transition_no = 4, owner = NULL, due_at = NULL,
        updated_at = $2::timestamptz, ended_at = $2, log = log || commit,
        detail = CASE WHEN many = 1 THEN $3::json END
    FROM unnest($1::bigint[]) AS given(seq), held, number
    WHERE state.seq = given.seq AND state.version = 2
    RETURNING state.seq),
events AS (
    INSERT INTO holdfast.segment (commit, place, size, event_type, occurred_at, events, detail)
    SELECT commit, at * many, many, event_type, $2,
           {EVENTS % "replace(text, '@', (at * many)::text)"},
           CASE WHEN at = 0 AND many > 1 THEN $3::json END
    FROM held, number,
         (VALUES (0, 'job_started', $4::text), (1, 'job_succeeded', $5::text)) AS type(at, event_type, text)),
counts AS (
    INSERT INTO holdfast.queue_count (queue, state, jobs)
    SELECT 'default', state, sign * (SELECT count(*) FROM moved)
    FROM (VALUES ('succeeded', 1), ('assigned', -1)) AS change(state, sign))
SELECT count(*) FROM moved
"""


class Bare:
    """One connection that writes batches. The store has been opened before, so the tables are there."""

    def __init__(self, connection: "asyncpg.Connection[Any]", schema: str, lane: int) -> None:
        self.connection = connection
        self._schema = schema
        self._lane = lane
        self._mark = (datetime(2000, 1, 1, tzinfo=UTC), 0)
        self._ids = SystemIds()
        self._room = 0
        self._made = 0
        self._claim_op = ""
        self._enqueue, self._claim, self._complete = (
            sql.replace("holdfast.", f"{schema}.") for sql in (ENQUEUE, CLAIM, COMPLETE)
        )
        ready, known = (sql.replace("holdfast.", f"{schema}.") for sql in (READY, KNOWN))
        self._known = self._claim.replace(ready, known)

    @classmethod
    async def open(cls, url: str) -> "Bare":
        address = address_of(url)
        connection = await asyncpg.connect(
            address.url, server_settings=SETTINGS, max_cacheable_statement_size=0
        )
        table = f"{address.schema}.lane"
        await connection.execute(
            f"INSERT INTO {table} (queue, priority, kind, executor, region, locking)"
            " VALUES ('default', 5, 'echo', '', '', false) ON CONFLICT DO NOTHING"
        )
        lane = await connection.fetchval(f"SELECT id FROM {table} WHERE queue = 'default' AND kind = 'echo'")
        bare = cls(connection, address.schema, lane)
        await bare._make_room()
        return bare

    async def close(self) -> None:
        await self.connection.close()

    async def _make_room(self) -> None:
        self._room = await ensure_partitions(Session(self.connection), self._schema)

    async def enqueue(self, batch: int, *, tell: bool = False) -> None:
        """Make jobs, and tell who listens if asked to."""
        start, self._made = self._made, self._made + batch
        prefix = self._ids.new()[:24]
        job_ids = [f"{prefix}{n:012x}" for n in range(start, start + batch)]
        specs = [
            f'{{"kind":"echo","payload":{{"n":{n},"argv":["echo","hello"]}}}}'
            for n in range(start, start + batch)
        ]
        now = datetime.now(UTC)
        events = events_text("job_queued", now, 1, job_ids, "user:bench", to_state="queued")
        sql = self._enqueue.replace(MADE, TOLD) if tell else self._enqueue
        last = await self.connection.fetchval(sql, job_ids, specs, now, self._lane, events)
        if last + JOBS_PER_PARTITION > self._room:
            await self._make_room()

    async def claim(self, batch: int, *known: int) -> list[int]:
        """Claim the jobs that have waited longest, or those from a known number on."""
        now = datetime.now(UTC)
        self._claim_op = self._ids.new()
        detail = (
            f'{{"lease":{{"owner":"w1","expires_at":"{iso(now + LEASE)}","ttl":"PT60S",'
            f'"granted_at":"{iso(now)}","heartbeat_at":"{iso(now)}"}},'
            f'"claim_op_id":"{self._claim_op}"}}'
        )
        events = events_text(
            "job_claimed", now, 2, [self._claim_op], "worker:w1", 1, from_state="queued", to_state="assigned"
        )
        at, after = self._mark
        row = await self.connection.fetchrow(
            self._known if known else self._claim,
            now,
            batch,
            now + LEASE,
            detail,
            self._claim_op,
            at,
            known[0] if known else after,
            self._lane,
            events,
        )
        if row is None:
            return []
        seqs: list[int] = row["seqs"]
        if row["mark"] < now - timedelta(seconds=1):
            self._mark = (row["mark"], seqs[-1])
        return seqs

    async def complete(self, held: list[int]) -> None:
        now, op = datetime.now(UTC), self._ids.new()
        detail = f'{{"claim_op_id":"{self._claim_op}","started_at":"{iso(now)}"}}'
        ops = [f"{op}.{n}" for n in range(len(held))]
        texts = [
            events_text(
                name, now, offset, ops, "worker:w1", 1, at=at, from_state=from_state, to_state=to_state
            )
            for name, offset, at, from_state, to_state in (
                ("job_started", 3, "", "assigned", "running"),
                ("job_succeeded", 4, ',"at":@', "running", "succeeded"),
            )
        ]
        done = await self.connection.fetchval(self._complete, held, now, detail, *texts)
        assert done == len(held)


def events_text(
    event_type: str,
    now: datetime,
    offset: int,
    ops: list[str],
    actor: str,
    token: int | None = None,
    at: str = "",
    **states: str,
) -> str:
    """The text of a segment after the numbers of its jobs."""
    fields: dict[str, object] = {
        "event_type": event_type,
        "event_class": "transition",
        "occurred_at": (now - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1),
        "offset": offset,
        "transition_no": offset,
        **states,
        "attempt": 1,
    }
    if token is not None:
        fields["fencing_token"] = token
    fields |= {"op_id": ops if len(ops) > 1 else ops[0], "actor": actor}
    return at + "," + json.dumps(fields, separators=(",", ":"))[1:]


def iso(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z"


async def enqueue(bare: Bare, jobs: int, batch: int) -> int:
    for _ in range(jobs // batch):
        await bare.enqueue(batch)
    return jobs // batch * batch


async def drain(bare: Bare, batch: int) -> int:
    done = 0
    while held := await bare.claim(batch):
        await bare.complete(held)
        done += len(held)
    return done


async def retire(bare: Bare, first: int, jobs: int, batch: int) -> int:
    """Claim and complete jobs by their numbers: the same rows, found without looking for them."""
    for start in range(first, first + jobs, batch):
        await bare.complete(await bare.claim(batch, start))
    return jobs


async def wake_up(bare: Bare, jobs: int) -> list[float]:
    """Enqueue one job now and then, and tell; answers the moments before each."""
    moments = []
    for n in range(jobs):
        await asyncio.sleep(0.01 + n % 7 * 0.001)
        moments.append(time.monotonic())
        await bare.enqueue(1, tell=True)
    return moments


async def awaken(bare: Bare, jobs: int) -> list[float]:
    """Claim whenever told; answers the moments of the grants."""
    told = asyncio.Event()
    await bare.connection.add_listener("bare", lambda *_: told.set())
    moments: list[float] = []
    while len(moments) < jobs:
        await told.wait()
        told.clear()
        held = await bare.claim(10)
        moments += [time.monotonic()] * len(held)
    return moments
