"""The bare script: the rows our verbs write, in the same batches, as durably, and nothing else.

No rules, no reading back, no notification, one statement per batch: what this reaches is what PostgreSQL
on this disk allows through asyncpg. It uses our own schema and the settings of our own sessions, and
`postgres_run.py` proves with `verify` that what it writes is what the verbs would have written.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from holdfast.stores.postgres.address import address_of
from holdfast.stores.postgres.partitions import JOBS_PER_PARTITION, ensure_partitions
from holdfast.stores.postgres.sessions import SETTINGS, Session
from holdfast.system import SystemIds

LEASE = timedelta(seconds=60)
PLACE = """(SELECT greatest(pg_current_xact_id()::text::bigint,
                            pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1))"""
MADE = "SELECT max(seq) FROM new"
TOLD = "SELECT max(seq), pg_notify('bare', '') FROM new"

ENQUEUE = f"""
WITH new AS MATERIALIZED (
    SELECT nextval('holdfast.job_seq') AS seq, job_id, spec
    FROM unnest($1::text[], $2::json[]) AS given(job_id, spec)),
jobs AS (
    INSERT INTO holdfast.job (seq, job_id, queue, kind, priority, created_at, spec, state, attempt,
                              version, transition_no, failures, crashes, fencing_token, ready_at,
                              updated_at, detail)
    SELECT seq, job_id, 'default', 'echo', 5, $3::timestamptz, spec, 'queued', 1, 1, 1, 0, 0, 0, $3, $3,
           '{{"submitted_by":"user:bench"}}'
    FROM new),
events AS (
    INSERT INTO holdfast.event (log_id, place, job, event_offset, transition_no, event_type, event_class,
                                to_state, attempt, op_id, actor, occurred_at)
    SELECT nextval('holdfast.log_seq'), {PLACE}, seq, 1, 1, 'job_queued', 'transition', 'queued', 1,
           job_id, 'user:bench', $3
    FROM new),
counts AS (
    INSERT INTO holdfast.queue_count (queue, state, jobs)
    SELECT 'default', 'queued', count(*) FROM new)
{MADE}
"""
READY = """
    WHERE state = 'queued' AND queue = 'default' AND priority = 5 AND ready_at <= $1::timestamptz
    ORDER BY ready_at, seq"""
KNOWN = "WHERE seq >= $6 ORDER BY seq"
CLAIM = f"""
WITH ready AS MATERIALIZED (
    SELECT seq FROM holdfast.job {READY} LIMIT $2 FOR UPDATE SKIP LOCKED),
moved AS (
    UPDATE holdfast.job
    SET state = 'assigned', version = 2, transition_no = 2, fencing_token = 1, owner = 'w1',
        lease_expires_at = $3::timestamptz, due_at = $3, updated_at = $1, detail = $4
    FROM ready WHERE job.seq = ready.seq
    RETURNING job.seq),
events AS (
    INSERT INTO holdfast.event (log_id, place, job, event_offset, transition_no, event_type, event_class,
                                from_state, to_state, attempt, fencing_token, op_id, actor, occurred_at)
    SELECT nextval('holdfast.log_seq'), {PLACE}, seq, 2, 2, 'job_claimed', 'transition', 'queued',
           'assigned', 1, 1, $5::text, 'worker:w1', $1
    FROM moved),
held AS (
    SELECT array_agg(seq) AS seqs, count(*) AS many FROM moved HAVING count(*) > 0),
claims AS (
    INSERT INTO holdfast.claim (op_id, jobs, claimed_at) SELECT $5, seqs, $1 FROM held),
counts AS (
    INSERT INTO holdfast.queue_count (queue, state, jobs)
    SELECT 'default', state, sign * many
    FROM held, (VALUES ('assigned', 1), ('queued', -1)) AS change(state, sign))
SELECT seqs FROM held
"""
COMPLETE = f"""
WITH moved AS (
    UPDATE holdfast.job
    SET state = 'succeeded', version = 4, transition_no = 4, owner = NULL, lease_expires_at = NULL,
        due_at = NULL, updated_at = $2::timestamptz, ended_at = $2, detail = $3
    FROM unnest($1::bigint[]) WITH ORDINALITY AS held(seq, number)
    WHERE job.seq = held.seq AND job.version = 2
    RETURNING job.seq, $4::text || '.' || (number - 1) AS op_id),
events AS (
    INSERT INTO holdfast.event (log_id, place, job, event_offset, transition_no, event_type, event_class,
                                from_state, to_state, attempt, fencing_token, op_id, actor, occurred_at)
    SELECT nextval('holdfast.log_seq'), {PLACE}, seq, step, step, event_type, 'transition', from_state,
           to_state, 1, 1, op_id, 'worker:w1', $2
    FROM moved, (VALUES (3, 'job_started', 'assigned', 'running'),
                        (4, 'job_succeeded', 'running', 'succeeded'))
                    AS move(step, event_type, from_state, to_state)),
counts AS (
    INSERT INTO holdfast.queue_count (queue, state, jobs)
    SELECT 'default', state, sign * (SELECT count(*) FROM moved)
    FROM (VALUES ('succeeded', 1), ('assigned', -1)) AS change(state, sign))
SELECT count(*) FROM moved
"""


class Bare:
    """One connection that writes batches. The store has been opened before, so the tables are there."""

    def __init__(self, connection: "asyncpg.Connection[Any]", schema: str) -> None:
        self.connection = connection
        self._schema = schema
        self._ids = SystemIds()
        self._room = 0
        self._made = 0
        self._claim_op = ""
        self._enqueue, self._claim, self._complete = (
            sql.replace("holdfast.", f"{schema}.") for sql in (ENQUEUE, CLAIM, COMPLETE)
        )

    @classmethod
    async def open(cls, url: str) -> "Bare":
        address = address_of(url)
        connection = await asyncpg.connect(
            address.url, server_settings=SETTINGS, max_cacheable_statement_size=0
        )
        bare = cls(connection, address.schema)
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
        sql = self._enqueue.replace(MADE, TOLD) if tell else self._enqueue
        last = await self.connection.fetchval(sql, job_ids, specs, datetime.now(UTC))
        if last + JOBS_PER_PARTITION > self._room:
            await self._make_room()

    async def claim(self, batch: int, *known: int) -> list[int]:
        """Claim the jobs that have waited longest, or those from a known number on."""
        now = datetime.now(UTC)
        self._claim_op = self._ids.new()
        detail = (
            f'{{"lease":{{"owner":"w1","expires_at":"{iso(now + LEASE)}","ttl":"PT60S",'
            f'"granted_at":"{iso(now)}","heartbeat_at":"{iso(now)}"}},'
            f'"claim_op_id":"{self._claim_op}","submitted_by":"user:bench"}}'
        )
        seqs: list[int] | None = await self.connection.fetchval(
            self._claim.replace(READY, KNOWN) if known else self._claim,
            now,
            batch,
            now + LEASE,
            detail,
            self._claim_op,
            *known,
        )
        return seqs or []

    async def complete(self, held: list[int]) -> None:
        now = datetime.now(UTC)
        detail = f'{{"claim_op_id":"{self._claim_op}","started_at":"{iso(now)}","submitted_by":"user:bench"}}'
        done = await self.connection.fetchval(self._complete, held, now, detail, self._ids.new())
        assert done == len(held)


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
