"""The bare script: the rows our verbs write, in the same batches, as durably, and nothing else.

No rules, no checks, no asyncio: what this reaches is what SQLite on this disk allows. It uses our own
schema, and `sqlite_run.py` proves with `verify` that what it writes is what the verbs would have written.
"""

import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import apsw

Writes = list[tuple[str, list[tuple[Any, ...]]]]
STORE = Path(__file__).parents[1] / "src" / "holdfast" / "stores" / "sqlite"
SCHEMA = (STORE / "migrations" / "0001_initial.sql").read_text(encoding="utf-8")
MINUTE = 60_000_000
READY = """
SELECT seq FROM job
WHERE state = 'queued' AND queue = 'default' AND priority = 5 AND ready_at <= ?
ORDER BY ready_at, seq LIMIT ?
"""


INSERT_JOB = """
INSERT INTO job (seq, job_id, queue, kind, priority, created_at, spec, state, attempt, version,
                 transition_no, failures, crashes, fencing_token, ready_at, updated_at, detail)
VALUES (?, ?, 'default', 'echo', 5, ?, ?, 'queued', 1, 1, 1, 0, 0, 0, ?, ?, ?)
"""
UPDATE_JOB = """
UPDATE job
SET state = ?, version = ?, transition_no = ?, fencing_token = ?, owner = ?, lease_expires_at = ?,
    due_at = ?, updated_at = ?, ended_at = ?, detail = ?
WHERE seq = ? AND version = ?
"""
INSERT_EVENT = """
INSERT INTO event (log_id, job, event_offset, transition_no, event_type, event_class, from_state,
                   to_state, attempt, fencing_token, op_id, actor, occurred_at)
VALUES (?, ?, ?, ?, ?, 'transition', ?, ?, 1, ?, ?, ?, ?)
"""
COUNT = """
INSERT INTO queue_count (queue, state, jobs) VALUES ('default', ?, ?)
ON CONFLICT (queue, state) DO UPDATE SET jobs = jobs + excluded.jobs
"""


@dataclass(frozen=True)
class Rates:
    """Jobs per second of each step, and of claim and complete together."""

    enqueue: float
    drain: float


class Bare:
    """One connection that writes batches."""

    def __init__(self, path: Path) -> None:
        fresh = not path.exists()
        self.connection = apsw.Connection(str(path))
        self.connection.pragma("journal_mode", "WAL")
        self.connection.pragma("synchronous", "FULL")
        self.connection.pragma("cache_size", -16 * 1024)
        self.connection.pragma("wal_autocheckpoint", 4000)
        if fresh:
            self.connection.execute(SCHEMA).fetchall()
            self.connection.pragma("user_version", 1)
        [(jobs,)] = self.connection.execute("SELECT coalesce(max(seq), 0) FROM job")
        [(events,)] = self.connection.execute("SELECT coalesce(max(log_id), 0) FROM event")
        self._seqs, self._log_ids, self._ops = count(jobs + 1), count(events + 1), count(1)
        self._claim_op = ""

    def close(self) -> None:
        self.connection.close()

    def enqueue(self, batch: int) -> None:
        now, queued, events = time.time_ns() // 1000, [], []
        for seq in [next(self._seqs) for _ in range(batch)]:
            job_id = f"01a1df61-36e3-75b4-802c-{seq:012x}"
            spec = f'{{"kind":"echo","payload":{{"n":{seq},"argv":["echo","hello"]}}}}'
            detail = '{"submitted_by":"user:bench"}'
            queued.append((seq, job_id, now, spec, now, now, detail))
            events.append(self._event(seq, 1, "job_queued", None, "queued", None, job_id, now))
        self._commit([(INSERT_JOB, queued), (INSERT_EVENT, events)], [("queued", batch)])

    def claim(self, batch: int) -> list[int]:
        now, updates, events, held = time.time_ns() // 1000, [], [], []
        self._claim_op = op = f"01a1df61-3935-778c-80e6-{next(self._ops):012x}"
        end = now + 60 * MINUTE
        detail = (
            f'{{"lease":{{"owner":"w1","expires_at":"{iso(end)}","ttl":"PT3600S",'
            f'"granted_at":"{iso(now)}","heartbeat_at":"{iso(now)}"}},'
            f'"claim_op_id":"{op}","submitted_by":"user:bench"}}'
        )
        self.connection.execute("BEGIN IMMEDIATE").fetchall()
        ready: list[Any] = self.connection.execute(READY, (now, batch)).fetchall()
        for (seq,) in ready:
            updates.append(("assigned", 2, 2, 1, "w1", end, end, now, None, detail, seq, 1))
            events.append(self._event(seq, 2, "job_claimed", "queued", "assigned", 1, op, now))
            held.append(seq)
        moved = [("queued", -len(held)), ("assigned", len(held))]
        self._write([(UPDATE_JOB, updates), (INSERT_EVENT, events)], moved)
        return held

    def complete(self, held: list[int]) -> None:
        now, updates, events = time.time_ns() // 1000, [], []
        detail = f'{{"claim_op_id":"{self._claim_op}","started_at":"{iso(now)}","submitted_by":"user:bench"}}'
        call = f"01a1df61-4a35-778c-80e6-{next(self._ops):012x}"
        for number, seq in enumerate(held):
            op = f"{call}.{number}"
            updates.append(("succeeded", 4, 4, 1, None, None, None, now, now, detail, seq, 2))
            events.append(self._event(seq, 3, "job_started", "assigned", "running", 1, op, now))
            events.append(self._event(seq, 4, "job_succeeded", "running", "succeeded", 1, op, now))
        moved = [("assigned", -len(held)), ("succeeded", len(held))]
        self._commit([(UPDATE_JOB, updates), (INSERT_EVENT, events)], moved)

    def _event(
        self,
        seq: int,
        number: int,
        event_type: str,
        before: str | None,
        after: str,
        token: int | None,
        op: str,
        now: int,
    ) -> tuple[object, ...]:
        actor = "worker:w1" if token else "user:bench"
        log_id = next(self._log_ids)
        return (log_id, seq, number, number, event_type, before, after, token, op, actor, now)

    def _commit(self, writes: Writes, moved: list[tuple[str, int]]) -> None:
        self.connection.execute("BEGIN IMMEDIATE").fetchall()
        self._write(writes, moved)

    def _write(self, writes: Writes, moved: list[tuple[str, int]]) -> None:
        for statement, rows in writes:
            self.connection.executemany(statement, rows).fetchall()
        self.connection.executemany(COUNT, moved).fetchall()
        self.connection.execute("COMMIT").fetchall()


def iso(microseconds: int) -> str:
    seconds, rest = divmod(microseconds, 1_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:06d}Z"


def measure(path: Path, *, jobs: int, batch: int) -> Rates:
    """Enqueue and drain `jobs` jobs in batches, in a fresh file."""
    bare = Bare(path)
    started = time.perf_counter()
    for _ in range(jobs // batch):
        bare.enqueue(batch)
    enqueued = time.perf_counter()
    for _ in range(jobs // batch):
        bare.complete(bare.claim(batch))
    drained = time.perf_counter()
    bare.close()
    done = jobs // batch * batch
    return Rates(done / (enqueued - started), done / (drained - enqueued))


def fill(path: Path, *, queued: int = 0, ended: int = 0) -> None:
    """Put many jobs into a file quickly: first those that end, then those that wait."""
    bare = Bare(path)
    for _ in range(ended // 5_000):
        bare.enqueue(5_000)
        bare.complete(bare.claim(5_000))
    for _ in range(queued // 1_000):
        bare.enqueue(1_000)
    bare.close()
