"""One commit: read what the batch needs, let it decide, write the result. Runs in the writer thread."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cached_property, partial
from itertools import count

import apsw
import msgspec

from holdfast.core.access import Key
from holdfast.core.errors import Corrupt
from holdfast.core.event import Event
from holdfast.core.job import Job, ResourceLock
from holdfast.core.limits import PRIORITY_MAX
from holdfast.failpoint import failpoint
from holdfast.ports import Decision, Ready, Work
from holdfast.stores.batch import Batch
from holdfast.stores.leased_jobs import CachedJob, LeasedJobCache
from holdfast.stores.records import key_text
from holdfast.stores.sqlite.connection import read_meta
from holdfast.stores.sqlite.event_rows import batch_row, event_row, fact_row
from holdfast.stores.sqlite.job_rows import insert_row, job_of, touch_row, update_row
from holdfast.stores.sqlite.statements import Row, Value, statement
from holdfast.stores.sqlite.timestamps import to_microseconds


class SqliteCommit:
    """A batch inside an open write transaction. The caller clears the `cache` if the transaction does
    not commit."""

    def __init__(
        self,
        connection: apsw.Connection,
        works: Sequence[Work],
        now: datetime,
        cache: LeasedJobCache | None = None,
    ) -> None:
        self._connection = connection
        self._cache = LeasedJobCache() if cache is None else cache
        floor = read_meta(connection, "token_floor") if works else 0
        self._floor = floor if isinstance(floor, int) else 0
        # Not a method of this object: the reference cycle would keep every commit until it is collected.
        self._batch = Batch(works, now, partial(_lock, connection, self._floor), self._floor)
        self._now = to_microseconds(now)
        self._seqs: dict[str, int] = {}

    def run(self) -> list[list[Decision]]:
        """Decide everything and write it; the caller commits."""
        batch = self._batch
        selected = batch.by_id
        if selected:
            self._load_known([one.job_id for _, one in selected if not one.fresh])
            batch.decide_by_id()
            self._write()
        if batch.due_limit:
            due = self._load(statement("select_due"), (self._now, batch.due_limit))
            batch.decide_due(job.job_id for job in due)
            self._write()
        for lane in batch.lanes.values():
            self._claim(lane)
            self._write()
        return batch.decisions

    def _load_known(self, job_ids: list[str]) -> None:
        """Add the jobs of these ids to the batch, from the cache or from the file."""
        copies = self._cache.known(job_ids)
        self._seqs |= {copy.job.job_id: copy.seq for copy in copies}
        self._batch.load(copy.job for copy in copies)
        if len(copies) < len(job_ids):
            absent = [job_id for job_id in job_ids if job_id not in self._seqs]
            self._load(statement("select_jobs_by_id"), (json_list(absent),))

    def _load(self, sql: str, parameters: Row | dict[str, Value]) -> list[Job]:
        """Read jobs and the locks they name into the batch."""
        jobs = []
        for row in self._connection.execute(sql, parameters):
            seq, job = job_of(row)
            self._seqs[job.job_id] = seq
            jobs.append(job)
        self._batch.load(jobs)
        failpoint("sqlite.jobs_read")
        return jobs

    def _claim(self, lane: list[tuple[int, Ready]]) -> None:
        op_ids = json_list(ready.op_id for _, ready in lane)
        claimed: dict[str, list[str]] = {}
        for op_id, job_id in self._connection.execute(statement("select_claimed"), (op_ids,)):
            claimed.setdefault(op_id, []).append(job_id)
        fresh = []
        for n, ready in self._batch.first_claims(lane):
            if known := claimed.get(ready.op_id):
                self._load_known(known)
                self._batch.decide_repeated(n, ready.op_id, known)
            else:
                fresh.append((n, ready))
        if fresh:
            wanted = sum(ready.limit for _, ready in fresh)
            self._batch.decide_ready(fresh, self._ready(fresh[0][1], wanted))
        self._batch.decide_duplicates(lane)

    def _ready(self, ready: Ready, wanted: int) -> Iterator[str]:
        """Yield the ids of claimable jobs: queue by queue, priority by priority, oldest first. The caller
        stops when it has enough."""
        for queue in ready.queues:
            for priority in range(PRIORITY_MAX + 1):
                yield from self._ready_at(ready, queue, priority, wanted)

    def _ready_at(self, ready: Ready, queue: str, priority: int, wanted: int) -> Iterator[str]:
        after = (-1, 0)
        while True:
            found = self._load(
                statement("select_ready"),
                {
                    "queue": queue,
                    "priority": priority,
                    "now": self._now,
                    "after_ready_at": after[0],
                    "after_seq": after[1],
                    "executor": ready.executor,
                    "region": ready.region,
                    "kinds": json_list(ready.kinds) if ready.kinds else None,
                    "limit": wanted,
                },
            )
            yield from [job.job_id for job in found]
            if len(found) < wanted:
                return
            # Not enough yet, so some were refused: their lock was taken within this batch. Once that is
            # written, the next query passes over all other jobs that need the lock.
            self._write()
            after = (to_microseconds(found[-1].ready_at), self._seqs[found[-1].job_id])

    def _write(self) -> None:
        batch = self._batch
        if batch.created:
            new = dict(zip(batch.created, self._new_numbers[0], strict=False))
            self._seqs.update(new)
            self._many(
                "insert_job",
                [insert_row(new[job_id], job) for job_id, job in batch.created.items()],
            )
            failpoint("sqlite.jobs_inserted")
        if batch.updated:
            self._many(
                "update_job",
                [
                    update_row(self._seqs[job_id], job, batch.stored[job_id].version)
                    for job_id, job in batch.updated.items()
                ],
            )
            failpoint("sqlite.jobs_updated")
        if batch.touched:
            self._many(
                "touch_job",
                [touch_row(self._seqs[job_id], job) for job_id, job in batch.touched.items()],
            )
            failpoint("sqlite.jobs_touched")
        if batch.taken:
            self._many("put_resource", [(r.key, r.token, r.holder) for r in batch.taken.values()])
            failpoint("sqlite.locks_written")
        if batch.events or batch.published or batch.facts:
            self._write_events()
        if moves := batch.count_changes():
            self._connection.executemany(statement("add_queue_count"), moves).fetchall()
            failpoint("sqlite.jobs_counted")
        seqs = self._seqs
        for written in (batch.created, batch.updated, batch.touched):
            if written:
                self._cache.keep(CachedJob(seqs[job_id], job) for job_id, job in written.items())
        batch.mark_written()

    def _write_events(self) -> None:
        batch, seqs, log_ids = self._batch, self._seqs, self._new_numbers[1]
        if batch.events:
            rows = [event_row(next(log_ids), seqs[e.job_id or ""], e) for e in batch.events]
            self._many("insert_event", rows)
            failpoint("sqlite.events_inserted")
        if batch.published:
            rows = [
                batch_row(next(log_ids), seqs[events[0].job_id or ""], events) for events in batch.published
            ]
            self._many("insert_batch", rows)
            failpoint("sqlite.output_inserted")
        if batch.facts:
            self.record(batch.facts)

    def record(self, events: Sequence[Event]) -> int:
        """Append events with ids of their own; return how many were new."""
        before = self._connection.total_changes()
        log_ids = self._new_numbers[1]
        rows = [fact_row(next(log_ids), event) for event in events]
        self._connection.executemany(statement("insert_fact"), rows).fetchall()
        failpoint("sqlite.facts_inserted")
        return self._connection.total_changes() - before

    def _many(self, name: str, rows: list[Row]) -> None:
        """Run a statement for every row; each must change exactly one."""
        before = self._connection.total_changes()
        self._connection.executemany(statement(name), rows).fetchall()
        changed = self._connection.total_changes() - before
        if changed != len(rows):
            raise Corrupt(f"{name} changed {changed} rows of {len(rows)}; nothing was written.")

    @cached_property
    def _new_numbers(self) -> tuple[Iterator[int], Iterator[int]]:
        """The unused enqueue sequences and log ids."""
        seq, log_id = next_numbers(self._connection)
        return count(seq + 1), count(log_id + 1)


def _lock(connection: apsw.Connection, floor: int, key: str) -> ResourceLock:
    sql = "SELECT token, holder FROM resource WHERE key = ?"
    row = connection.execute(sql, (key,)).fetchone()
    return ResourceLock(key, *row) if row else ResourceLock(key, floor)


def put_key(connection: apsw.Connection, key: Key) -> None:
    """Store the key; it replaces the one with its id."""
    row = (key.key_id, to_microseconds(key.created_at), key_text(key))
    connection.execute(statement("put_api_key"), row).fetchall()


def next_numbers(connection: apsw.Connection) -> tuple[int, int]:
    """Return the last enqueue sequence and the last log id that were ever used."""
    [(seq, log_id)] = connection.execute(statement("select_last_numbers"))
    return seq, log_id


def json_list(values: Iterable[str | int]) -> str:
    return msgspec.json.encode(list(values)).decode()
