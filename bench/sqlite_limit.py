"""The bare script: the rows our verbs write, in the same batches, as durably, and nothing else.

No rules, no checks, no asyncio: what this reaches is what SQLite on this disk allows. It uses our own
schema, and `sqlite_run.py` proves with `verify` that what it writes is what the verbs would have written.
"""

import json
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import apsw

from holdfast.stores.sqlite.statements import migrations

MINUTE = 60_000_000
READY = """
SELECT ready_at, seq FROM ready
WHERE lane = 1 AND ready_at <= ? ORDER BY ready_at, seq LIMIT ?
"""
LANE = """
INSERT INTO lane (id, queue, priority, kind, locking) VALUES (1, 'default', 5, 'echo', 0)
ON CONFLICT DO NOTHING
"""
INSERT_JOB = """
INSERT INTO job (seq, job_id, lane, created_at, submitted_by, payload) VALUES (?, ?, 1, ?, 'user:bench', ?)
"""
INSERT_STATES = """
INSERT INTO state (seq, state, attempt, version, transition_no, failures, crashes, fencing_token, ready_at,
                   updated_at, log)
SELECT value, 'queued', 1, 1, 1, 0, 0, 0, ?2, ?2, ?3 FROM json_each(?1)
"""
UPDATE_STATES = """
UPDATE state
SET state = ?2, version = ?3, transition_no = ?3, fencing_token = 1, due_at = ?4, updated_at = ?5,
    started_at = ?6, ended_at = ?6, claim = coalesce(?7, claim), log = log || ?8
WHERE seq IN (SELECT value FROM json_each(?1)) AND version = ?9
"""
INSERT_READY = "INSERT INTO ready (lane, ready_at, seq) SELECT 1, ?2, value FROM json_each(?1)"
DELETE_READY = "DELETE FROM ready WHERE lane = 1 AND ready_at = ? AND seq = ?"
INSERT_CLAIM = "INSERT INTO claim (op_id, owner, lease, jobs) VALUES (?, 'w1', ?, ?) RETURNING id"
INSERT_ALARM = "INSERT INTO alarm (due_at, jobs) VALUES (?, ?)"
INSERT_SEGMENT = "INSERT INTO segment (number, event_type, occurred_at, events) VALUES (?, ?, ?, ?)"
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
            for script in migrations():
                self._run(script)
            self.connection.pragma("user_version", len(migrations()))
        self._run(LANE)
        [(jobs,)] = self.connection.execute("SELECT coalesce(max(seq), 0) FROM job")
        [(segments,)] = self.connection.execute("SELECT coalesce(max(number), 0) FROM segment")
        self._seqs, self._numbers, self._ops = count(jobs + 1), count(segments + 1), count(jobs + 1)

    def close(self) -> None:
        self.connection.close()

    def enqueue(self, batch: int) -> None:
        now, rows, ids = time.time_ns() // 1000, [], []
        seqs = [next(self._seqs) for _ in range(batch)]
        for seq in seqs:
            job_id = f"01a1df61-36e3-75b4-802c-{seq:012x}"
            rows.append((seq, job_id, now, f'{{"n":{seq},"argv":["echo","hello"]}}'))
            ids.append(job_id)
        self._run("BEGIN IMMEDIATE")
        number = self._segment("job_queued", seqs, now, 1, ids, to_state="queued")
        self.connection.executemany(INSERT_JOB, rows).fetchall()
        listed = as_json(seqs)
        self._run(INSERT_STATES, (listed, now, str(number)))
        self._run(INSERT_READY, (listed, now))
        self._commit([("queued", batch)])

    def claim(self, batch: int) -> list[int]:
        now, op = time.time_ns() // 1000, f"01a1df61-3935-778c-80e6-{next(self._ops):012x}"
        end = now + 60 * MINUTE
        lease = (
            f'{{"owner":"w1","expires_at":"{iso(end)}","ttl":"PT3600S",'
            f'"granted_at":"{iso(now)}","heartbeat_at":"{iso(now)}"}}'
        )
        self._run("BEGIN IMMEDIATE")
        ready = self.connection.execute(READY, (now, batch)).fetchall()
        held = [int(str(seq)) for _, seq in ready]
        listed = as_json(held)
        number = self._segment("job_claimed", held, now, 2, op, from_state="queued", to_state="assigned")
        [(claim,)] = self.connection.execute(INSERT_CLAIM, (op, lease, listed))
        values = ("assigned", 2, end, now, None, claim, f",{number}", 1)
        self._run(UPDATE_STATES, (listed, *values))
        self.connection.executemany(DELETE_READY, ready).fetchall()
        self._run(INSERT_ALARM, (end, listed))
        self._commit([("queued", -len(held)), ("assigned", len(held))])
        return held

    def complete(self, held: list[int]) -> None:
        now, call = time.time_ns() // 1000, f"01a1df61-4a35-778c-80e6-{next(self._ops):012x}"
        ops = [f"{call}.{number}" for number in range(len(held))]
        self._run("BEGIN IMMEDIATE")
        first = self._segment("job_started", held, now, 3, ops, from_state="assigned", to_state="running")
        last = self._segment(
            "job_succeeded", held, now, 4, ops, at=len(held), from_state="running", to_state="succeeded"
        )
        values = ("succeeded", 4, None, now, now, None, f",{first},{last}", 2)
        self._run(UPDATE_STATES, (as_json(held), *values))
        self._commit([("assigned", -len(held)), ("succeeded", len(held))])

    def _segment(
        self, event_type: str, seqs: list[int], now: int, offset: int, ops: str | list[str], **more: object
    ) -> int:
        """Write the events of one type as one value, and return its number."""
        number: int = next(self._numbers)
        start = ""
        if isinstance(ops, list):
            start = ops[0][
                : next((n for n, (a, b) in enumerate(zip(ops[0], ops[-1], strict=False)) if a != b), 0)
            ]
        events = {
            "n": len(seqs),
            "job": seqs,
            "event_type": event_type,
            "event_class": "transition",
            "occurred_at": now,
            "offset": offset,
            "transition_no": offset,
            "attempt": 1,
            "op_id": [op[len(start) :] for op in ops] if isinstance(ops, list) else ops,
            "actor": "user:bench" if offset == 1 else "worker:w1",
            **more,
        }
        if offset > 1:
            events["fencing_token"] = 1
        if start:
            events["op_start"] = start
        text = as_json(events)
        self._run(INSERT_SEGMENT, (number, event_type, now, text))
        return number

    def _commit(self, moved: list[tuple[str, int]]) -> None:
        self.connection.executemany(COUNT, moved).fetchall()
        self._run("COMMIT")

    def _run(self, sql: str, values: tuple[object, ...] = ()) -> None:
        self.connection.execute(sql, values).fetchall()


def as_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


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
