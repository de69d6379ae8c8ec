"""One commit: read what the batch needs, let it decide, write the result. Runs in the writer thread."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cached_property, partial
from itertools import count, groupby
from operator import itemgetter

import apsw
import msgspec

from holdfast.core.access import Key
from holdfast.core.event import Event
from holdfast.core.job import Job, ResourceLock
from holdfast.core.lifecycle.pattern import Template
from holdfast.core.segment import Segment, encode, encode_alike, log_id
from holdfast.core.workers import WorkerInfo
from holdfast.failpoint import failpoint
from holdfast.ports import ById, Decision, Ready, Work
from holdfast.stores.batch import Batch, Group
from holdfast.stores.filters import RARE_STATES
from holdfast.stores.leased_jobs import CachedJob, LeasedJobCache
from holdfast.stores.new_jobs import runs
from holdfast.stores.records import key_text, worker_text
from holdfast.stores.sqlite.alarms import set_alarm, take_due
from holdfast.stores.sqlite.connection import read_number
from holdfast.stores.sqlite.event_rows import batch_row, batches, fact_row
from holdfast.stores.sqlite.job_rows import alike_jobs
from holdfast.stores.sqlite.job_writes import Claims, JobWriter, number_list
from holdfast.stores.sqlite.ready_jobs import FIRST, Place, ready_places
from holdfast.stores.sqlite.statements import Row, Value, statement
from holdfast.stores.sqlite.timestamps import to_microseconds

SMALL_COMMIT = 8
"""How many jobs a commit in the thread of the event loop may have."""


def is_small(works: Sequence[Work]) -> bool:
    """Whether a commit of these works is small enough to hold up an event loop."""
    return len(works) <= SMALL_COMMIT and all(isinstance(work.selection, ById) for work in works)


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
        self._floor = read_number(connection, "token_floor") if works else 0
        # Not a method of this object: the reference cycle would keep every commit until it is collected.
        self._batch = Batch(works, now, partial(_lock, connection, self._floor), self._floor)
        self._now = to_microseconds(now)
        self._seqs: dict[str, int] = {}
        self._writer = JobWriter(connection, self._seqs)
        self.made_ready = False

    def run(self) -> list[list[Decision]]:
        """Decide everything and write it; the caller commits."""
        batch = self._batch
        selected = batch.by_id
        if selected:
            self._load_known([one.job_id for _, one in selected if not one.fresh])
            batch.decide_by_id()
            self._write()
        if batch.due_limit:
            self._expire()
        for lane in batch.lanes.values():
            self._claim(lane)
            self._write()
        return batch.decisions

    def _load_known(self, job_ids: list[str]) -> None:
        """Add the jobs of these ids to the batch, from the cache or from the file."""
        copies = self._cache.known(job_ids)
        self._seqs.update((copy.job.job_id, copy.seq) for copy in copies)
        self._batch.load([copy.job for copy in copies], [copy.template for copy in copies])
        if len(copies) < len(job_ids):
            absent = [job_id for job_id in job_ids if job_id not in self._seqs]
            self._load(statement("select_jobs_by_id"), (json_list(absent),))

    def _load(self, sql: str, parameters: Row | dict[str, Value]) -> list[Job]:
        """Read jobs and the locks they name into the batch."""
        jobs: list[Job] = []
        templates: list[Template | None] = []
        for seq, job, template in alike_jobs(self._connection.execute(sql, parameters)):
            self._seqs[job.job_id] = seq
            jobs.append(job)
            templates.append(template)
        self._batch.load(jobs, templates)
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
            asked = {
                "queue": queue,
                "executor": ready.executor,
                "region": ready.region,
                "kinds": json_list(ready.kinds) if ready.kinds else None,
                "now": self._now,
            }
            lanes: list[tuple[int, int, int]]
            lanes = list(self._connection.execute(statement("select_lanes"), asked))
            for _, some in groupby(lanes, key=itemgetter(0)):
                yield from self._ready_in([(lane, bool(locking)) for _, lane, locking in some], wanted)

    def _ready_in(self, lanes: list[tuple[int, bool]], wanted: int) -> Iterator[str]:
        """Yield the ids of claimable jobs of lanes of one queue and priority, oldest first. A lane comes with
        whether its jobs need a lock."""
        after = FIRST
        while True:
            places: list[Place] = []
            for lane, locking in lanes:
                found_here = ready_places(
                    self._connection, lane, locking=locking, now=self._now, after=after, wanted=wanted
                )
                self._writer.places.update((seq, (lane, ready_at)) for ready_at, seq in found_here)
                places += found_here
            if len(lanes) > 1:
                places = sorted(places)[:wanted]
            seqs = number_list(seq for _, seq in places)
            found = self._load(statement("select_jobs_by_seq"), (seqs,)) if places else []
            yield from [job.job_id for job in found]
            if len(places) < wanted:
                return
            # Not enough yet, so some were refused: their lock was taken within this batch. Once that is
            # written, the next query passes over all other jobs that need the lock.
            self._write()
            after = places[-1]

    def _expire(self) -> None:
        """Decide on the jobs that are due, and set alarms for all others that were looked at."""
        batch, due = self._batch, take_due(self._connection, self._now, self._batch.due_limit)
        if not due.times:
            return
        found = self._load(statement("select_jobs_by_seq"), (number_list(due.chosen),)) if due.chosen else []
        batch.decide_due(job.job_id for job in found)
        times = dict(due.times)
        for job in found:
            left, seq = batch.jobs[job.job_id], self._seqs[job.job_id]
            del times[seq]
            if left is not None and left.due_at is not None:
                times[seq] = to_microseconds(left.due_at)
        self._write()
        set_alarm(self._connection, {seq: at for seq, at in times.items() if at <= self._now})
        set_alarm(self._connection, {seq: at for seq, at in times.items() if at > self._now})

    def _write(self) -> None:
        batch, seqs, writer = self._batch, self._seqs, self._writer
        self.made_ready |= batch.makes_ready
        new = runs(batch.created.values())
        if new:
            seqs.update(zip(batch.created, self._new_numbers[0], strict=False))
        batch.split_small_groups()
        group_logs = self._write_alike_events()
        logs = self._write_events() if batch.events or batch.published or batch.facts else {}
        updated = [(batch.stored[job_id], job) for job_id, job in batch.updated.items()]
        claims = Claims(self._connection, seqs)
        claims.grant(
            [job for job in batch.created.values() if job.claim_op_id is not None]
            + [job for before, job in updated if job.claim_op_id not in (before.claim_op_id, None)]
            + [job for group in batch.groups if group.pattern.claims for job in group.after]
        )
        if new:
            writer.insert(new, logs, claims)
            failpoint("sqlite.jobs_inserted")
        for log, groups in group_logs:
            for group in groups:
                writer.update_alike(group, log, claims)
        writer.update(updated, logs, claims)
        if updated or batch.groups:
            failpoint("sqlite.jobs_updated")
        if batch.touched:
            writer.touch(batch.touched.values())
            failpoint("sqlite.jobs_touched")
        writer.enqueue(*batch.queue_changes())
        if timed := batch.untimed():
            set_alarm(self._connection, {seqs[job.job_id]: to_microseconds(due) for job, due in timed})
        rare = [job for run in new if run[0].state in RARE_STATES for job in run]
        writer.note_rare([*((None, job) for job in rare), *updated])
        if batch.taken:
            writer.many("put_resource", [(r.key, r.token, r.holder) for r in batch.taken.values()])
            failpoint("sqlite.locks_written")
        if moves := batch.count_changes():
            self._connection.executemany(statement("add_queue_count"), moves).fetchall()
            failpoint("sqlite.jobs_counted")
        for written in (batch.created, batch.updated, batch.touched):
            self._cache.drop(written)
            self._cache.keep(CachedJob(seqs[i], job) for i, job in written.items() if job.lease is not None)
        for group in batch.groups:
            self._cache.drop([job.job_id for job in group.after])
            if (template := group.pattern.after).job.lease is not None:
                self._cache.keep(CachedJob(seqs[job.job_id], job, 0, template) for job in group.after)
        batch.mark_written()

    def _write_alike_events(self) -> list[tuple[str, list[Group]]]:
        """Write the events of the groups; return the numbers of their segments."""
        seqs, written = self._seqs, []
        for events, groups in self._batch.alike_events():
            jobs = [seqs[job.job_id] for group in groups for job in group.after]
            ops = [op_id for group in groups for op_id in group.op_ids]
            numbers = self._write_segments(encode_alike(events, jobs, ops))
            written.append((",".join(map(str, numbers)), groups))
        return written

    def _write_segments(self, segments: Sequence[Segment]) -> list[int]:
        """Write segments, and return their numbers."""
        numbers = [next(self._new_numbers[1]) for _ in segments]
        rows = [
            (number, one.event_type, to_microseconds(one.occurred_at), one.text)
            for number, one in zip(numbers, segments, strict=True)
        ]
        self._writer.many("insert_segment", rows)
        failpoint("sqlite.events_inserted")
        return numbers

    def _write_events(self) -> dict[int, str]:
        """Write the events, and return the numbers of each job's new segments."""
        batch, seqs, numbers = self._batch, self._seqs, self._new_numbers[1]
        logs: dict[int, str] = {}
        if batch.events:
            segments = encode(batch.events, lambda job_id: seqs[job_id or ""])
            for number, one in zip(self._write_segments(segments), segments, strict=True):
                for seq in dict.fromkeys(one.jobs):
                    logs[seq] = f"{logs[seq]},{number}" if seq in logs else str(number)  # type: ignore[index]
        if batch.published:
            rows: list[Row] = []
            for events in batch.published:
                number, place = next(numbers), 0
                for alike in batches(events):
                    rows.append(batch_row(log_id(number, place), seqs[events[0].job_id or ""], alike))
                    place += len(alike)
            self._writer.many("insert_batch", rows)
            failpoint("sqlite.output_inserted")
        if batch.facts:
            self.record(batch.facts)
        return logs

    def record(self, events: Sequence[Event]) -> int:
        """Append events with ids of their own; return how many were new."""
        before = self._connection.total_changes()
        number = next(self._new_numbers[1])
        rows = [fact_row(log_id(number, place), event) for place, event in enumerate(events)]
        self._connection.executemany(statement("insert_fact"), rows).fetchall()
        failpoint("sqlite.facts_inserted")
        return self._connection.total_changes() - before

    @cached_property
    def _new_numbers(self) -> tuple[Iterator[int], Iterator[int]]:
        """The unused enqueue sequences and numbers of the log."""
        seq, number = next_numbers(self._connection)
        return count(seq + 1), count(number + 1)


def _lock(connection: apsw.Connection, floor: int, key: str) -> ResourceLock:
    row = connection.execute(statement("select_resource"), (key,)).fetchone()
    return ResourceLock(key, *row) if row else ResourceLock(key, floor)


def put_key(connection: apsw.Connection, key: Key) -> None:
    """Store the key; it replaces the one with its id."""
    row = (key.key_id, to_microseconds(key.created_at), key_text(key))
    connection.execute(statement("put_api_key"), row).fetchall()


def put_worker(connection: apsw.Connection, worker: WorkerInfo, forget_before: datetime) -> None:
    """Store the worker, and forget those that were last seen before the instant."""
    row = (worker.name, worker.instance, to_microseconds(worker.seen_at), worker_text(worker))
    connection.execute(statement("put_worker"), row).fetchall()
    connection.execute(statement("forget_workers"), (to_microseconds(forget_before),)).fetchall()


def next_numbers(connection: apsw.Connection) -> tuple[int, int]:
    """Return the last enqueue sequence and the last number of the log that were ever used."""
    [(seq, number)] = connection.execute(statement("select_last_numbers"))
    return seq, number


def json_list(values: Iterable[str | int]) -> str:
    return msgspec.json.encode(list(values)).decode()
