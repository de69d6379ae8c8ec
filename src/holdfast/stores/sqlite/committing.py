"""One commit: read what the batch needs, let it decide, write what came of it. Runs in the writer."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cached_property, partial
from itertools import count

import apsw
import msgspec

from holdfast.core.access import Key
from holdfast.core.errors import Corrupt
from holdfast.core.event import Event
from holdfast.core.job import Job, Resource
from holdfast.core.limits import PRIORITY_MAX
from holdfast.failpoint import failpoint
from holdfast.ports import Decision, Ready, Work
from holdfast.stores.batch import Batch
from holdfast.stores.held import Copy, Held
from holdfast.stores.records import key_text
from holdfast.stores.sqlite.connection import read_meta
from holdfast.stores.sqlite.event_rows import batch_row, event_row, fact_row
from holdfast.stores.sqlite.job_rows import insert_row, job_of, touch_row, update_row
from holdfast.stores.sqlite.statements import Row, Value, statement
from holdfast.stores.sqlite.values import stamp


class Commit:
    """A batch inside an open write transaction. `held` are copies of jobs that are as stored; whoever
    gave them forgets them if this does not land."""

    def __init__(
        self,
        connection: apsw.Connection,
        works: Sequence[Work],
        now: datetime,
        held: Held | None = None,
    ) -> None:
        self._connection = connection
        self._held = Held() if held is None else held
        floor = read_meta(connection, "token_floor") if works else 0
        self._floor = floor if isinstance(floor, int) else 0
        # No method of ours: a ring of references would keep every commit until somebody collects it.
        self._batch = Batch(works, now, partial(_look, connection, self._floor), self._floor)
        self._now = stamp(now)
        self._seqs: dict[str, int] = {}

    def run(self) -> list[list[Decision]]:
        """Decide everything and write it; the caller commits."""
        batch = self._batch
        ones = batch.ones
        if ones:
            self._load_known([one.job_id for _, one in ones if not one.fresh])
            batch.decide_ones()
            self._write()
        if batch.due_limit:
            due = self._load(statement("select_due"), (self._now, batch.due_limit))
            batch.decide_due(job.job_id for job in due)
            self._write()
        for lane in batch.lanes.values():
            self._claim(lane)
            self._write()
        return batch.answers

    def _load_known(self, job_ids: list[str]) -> None:
        """Have the jobs of these ids in the batch: read, but for those that are in hand."""
        copies = self._held.known(job_ids)
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
        for n, ready in self._batch.fresh(lane):
            if known := claimed.get(ready.op_id):
                self._load_known(known)
                self._batch.repeat(n, ready.op_id, known)
            else:
                fresh.append((n, ready))
        if fresh:
            wanted = sum(ready.limit for _, ready in fresh)
            self._batch.decide_ready(fresh, self._ready(fresh[0][1], wanted))
        self._batch.decide_again(lane)

    def _ready(self, ready: Ready, wanted: int) -> Iterator[str]:
        """Ids of claimable jobs: queue after queue, priority after priority, oldest first. Whoever
        iterates stops when it has enough."""
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
            # Not enough yet, so some were refused: their lock was taken in this very batch. Written
            # down, the next look passes over whatever else waits for it.
            self._write()
            after = (stamp(found[-1].ready_at), self._seqs[found[-1].job_id])

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
        if moves := batch.moves():
            self._connection.executemany(statement("add_queue_count"), moves).fetchall()
            failpoint("sqlite.jobs_counted")
        seqs = self._seqs
        for written in (batch.created, batch.updated, batch.touched):
            if written:
                self._held.keep(Copy(seqs[job_id], job) for job_id, job in written.items())
        batch.written()

    def _write_events(self) -> None:
        batch, seqs, log_ids = self._batch, self._seqs, self._new_numbers[1]
        if batch.events:
            rows = [event_row(next(log_ids), seqs[e.job_id or ""], e) for e in batch.events]
            self._many("insert_event", rows)
            failpoint("sqlite.events_inserted")
        if batch.published:
            rows = [
                batch_row(next(log_ids), seqs[events[0].job_id or ""], events)
                for events in batch.published
            ]
            self._many("insert_batch", rows)
            failpoint("sqlite.output_inserted")
        if batch.facts:
            self.record(batch.facts)

    def record(self, events: Sequence[Event]) -> int:
        """Append events with ids of their own; answers how many were new."""
        before = self._connection.total_changes()
        log_ids = self._new_numbers[1]
        rows = [fact_row(next(log_ids), event) for event in events]
        self._connection.executemany(statement("record_event"), rows).fetchall()
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
        """The enqueue sequences and the log ids that nobody has used yet."""
        seq, log_id = next_numbers(self._connection)
        return count(seq + 1), count(log_id + 1)


def _look(connection: apsw.Connection, floor: int, key: str) -> Resource:
    """The lock of this key, as it is."""
    sql = "SELECT token, holder FROM resource WHERE key = ?"
    row = connection.execute(sql, (key,)).fetchone()
    return Resource(key, *row) if row else Resource(key, floor)


def put_key(connection: apsw.Connection, key: Key) -> None:
    """Keep the key, in the place of the one with its id."""
    row = (key.key_id, stamp(key.created_at), key_text(key))
    connection.execute(statement("put_api_key"), row).fetchall()


def next_numbers(connection: apsw.Connection) -> tuple[int, int]:
    """The last enqueue sequence and the last log id that were ever given out."""
    [(seq, log_id)] = connection.execute(statement("next_numbers"))
    return seq, log_id


def json_list(values: Iterable[str | int]) -> str:
    return msgspec.json.encode(list(values)).decode()
