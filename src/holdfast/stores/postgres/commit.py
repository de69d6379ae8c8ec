"""One commit: read what the batch needs, let it decide, and write the result in one statement."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import count

from holdfast.core.catalogue import EventType
from holdfast.core.event import Event
from holdfast.core.job import Job, ResourceLock
from holdfast.core.lifecycle import Change
from holdfast.core.state import State
from holdfast.failpoint import failpoint
from holdfast.ports import Decision, Work
from holdfast.stores.batch import Batch
from holdfast.stores.leased_jobs import CachedJob
from holdfast.stores.postgres.commit_context import CommitContext, QueryConnection
from holdfast.stores.postgres.notifications import notification_payload
from holdfast.stores.postgres.rows import (
    batch_row,
    event_row,
    fact_row,
    insert_row,
    job_of,
    touch_row,
    update_row,
)
from holdfast.stores.postgres.scan_starts import BEGINNING
from holdfast.stores.postgres.server_time import ClockStepped
from holdfast.stores.postgres.statements import Row, commit_statement, statement
from holdfast.stores.postgres.writes import Writes

_CLAIMED = EventType.CLAIMED
_QUEUED = State.QUEUED
WAIT_MAX = timedelta(milliseconds=500)
NUMBERED_MAX = 16


class StaleCache(Exception):
    """A decision on cached jobs writes nothing, so no conflict would show that they are stale: read
    them."""


class PostgresCommit:
    """The commit of one batch.

    `locked`: it runs inside a transaction, and rows are locked when they are read. Otherwise the one
    statement that writes is the transaction, and it fails and undoes itself when a row is not as it was
    read. `optimistic`: this is the first try, which expects no conflict and may decide on cached jobs.
    `external`: the connection is in a transaction of the caller.
    """

    def __init__(
        self,
        connection: QueryConnection,
        context: CommitContext,
        works: Sequence[Work],
        *,
        locked: bool = False,
        optimistic: bool = False,
        external: bool = False,
        channel: str = "",
    ) -> None:
        self._connection = connection
        self._external = external
        self._context = context
        self._locked = locked
        self._optimistic = optimistic
        # Whether the batch decides on cached jobs. Settled in `_load_by_id`: only if all of them are cached.
        self._from_cache = optimistic and not locked
        self._channel = channel
        self._resources: dict[str, ResourceLock] = {}
        # Not a method of this object: the reference cycle would keep every commit until it is collected.
        self._batch = Batch(works, BEGINNING, self._resources.__getitem__)
        self._seqs: dict[str, int] = {}
        self._rows: dict[str, int | None] = {}  # the row version (xmin) each job was read at
        self._free_seqs: deque[int] = deque()  # allocated enqueue sequences that no job has yet
        # Locks that were never taken: they are inserted, not updated.
        self._absent: set[str] = set()
        self._claimed: list[tuple[str, int]] = []
        # The next three are modes of the write. `_claiming`: locks of resources are tried, not waited for,
        # and claims are new rows. `_numbers_in_statement`: the statement that inserts new jobs also numbers
        # them. `_skip_locked`: it writes nothing when one of its rows is locked or was changed.
        self._claiming = False
        self._numbers_in_statement = False
        self._skip_locked = False
        self._written: dict[str, Job] = {}
        self._row_version = 0
        self._last_allocated = 0
        self._asked = 0.0  # our own clock when the last statement was sent
        self.wrote = False
        self.made_ready = False
        self.counts = 0

    @property
    def decisions(self) -> list[list[Decision]]:
        return self._batch.decisions

    @property
    def last_seq(self) -> int:
        """The highest enqueue sequence among the jobs of this commit."""
        return max(self._last_allocated, *self._seqs.values(), 0)

    async def run(self) -> list[list[Decision]]:
        """Decide on the jobs that are named, and write the result."""
        batch = self._batch
        if batch.by_id:
            await self._load_by_id()
            batch.decide_by_id()
            if self._from_cache and not all(map(_changes, batch.decisions)):
                raise StaleCache
            await self._write()
        return batch.decisions

    def _given_now(self) -> datetime | None:
        return self._context.clock.now() if self._context.clock else None

    def _accept_time(self, now: datetime, floor: int | None) -> None:
        """Decide by this server time and token floor. The time is read once the locks are held, so that
        waiting for them shortens no lease. Raise `ClockStepped` when the server's clock was set."""
        if not self._observe(now):
            raise ClockStepped
        self._batch.now = self._given_now() or max(self._batch.now, now)
        self._batch.floor = floor or 0

    def _observe(self, now: datetime) -> bool:
        """Record the server's time; return whether it is consistent with earlier ones."""
        # A session of the caller may have its own settings for times, and a test has its own clock.
        if self._external or self._context.clock:
            return True
        return self._context.time.observe(now, self._asked)

    async def _fetch(self, name: str, *parameters: object) -> Sequence[Row]:
        self._asked = self._context.time.begin_reading()
        return await self._connection.fetch(statement(name, self._context.schema), *parameters)

    async def _load_by_id(self) -> None:
        selected = [one for _, one in self._batch.by_id]
        # A second try also reads the jobs with fresh ids: the first try may have inserted them.
        again = self._locked and not self._optimistic
        known = [one.job_id for one in selected if again or not one.fresh]
        copies = self._context.leased_jobs.all_of(known) if self._from_cache and known else None
        self._from_cache = copies is not None
        fresh = len(selected) - len(known)
        # The statement that allocates also returns the time, so it is sent for cached jobs too (0 numbers).
        if (fresh or copies) and not self._fits_one_trip(fresh):
            await self._allocate_numbers(fresh)
        if copies:
            self._batch.load(copy.job for copy in copies)
            self._seqs.update((copy.job.job_id, copy.seq) for copy in copies)
            self._rows.update((copy.job.job_id, copy.row_version) for copy in copies)
            await self._load_resources(copy.job.spec.lock for copy in copies)
        elif known:
            await self._load("lock_jobs" if self._locked else "select_jobs", known)
            absent = set(known) - self._seqs.keys()
            # An absent job may have been pruned while we waited for its row, which raised the token floor.
            # Allocating numbers reads the floor again.
            if self._locked and absent:
                await self._allocate_numbers(len(absent))
        await self._load_resources(one.lock for one in selected)

    def _fits_one_trip(self, fresh: int) -> bool:
        """Whether the statement that writes is the only one: it can number up to `NUMBERED_MAX` new jobs
        without locks itself, if the server's time can be estimated. If so, prepare for that."""
        now = self._given_now() or self._context.time.estimate()
        selected = self._batch.by_id
        # All works must be new jobs: a job that exists would have to be read first.
        if now is None or self._locked or self._external or not 0 < len(selected) == fresh <= NUMBERED_MAX:
            return False
        if any(one.lock for _, one in selected):
            return False
        self._batch.now = now
        self._numbers_in_statement = True
        return True

    async def _allocate_numbers(self, count: int) -> None:
        """Get unused enqueue sequences, with the server's time and the token floor."""
        [(now, floor, seqs)] = await self._fetch("allocate_job_numbers", count)
        self._accept_time(now, floor)
        self._free_seqs += seqs

    async def _load(self, name: str, *parameters: object) -> list[Job]:
        """Read jobs and the locks they name into the batch."""
        rows = await self._fetch(name, *parameters)
        jobs = self._add_rows([row[2:] for row in rows if row[2] is not None])
        self._accept_time(*rows[-1][:2])
        await self._load_resources(job.spec.lock for job in jobs)
        failpoint("postgres.jobs_read")
        return jobs

    def _add_rows(self, rows: Iterable[Row]) -> list[Job]:
        """Add the jobs of these rows to the batch; the last column of each is its row version."""
        jobs = []
        for row in rows:
            seq, job = job_of(row[:-1])
            self._seqs[job.job_id] = seq
            self._rows[job.job_id] = row[-1]
            jobs.append(job)
        self._batch.load(jobs)
        return jobs

    async def _load_resources(self, keys: Iterable[str | None]) -> None:
        if wanted := sorted({key for key in keys if key and key not in self._resources}):
            name = "lock_resources" if self._locked else "select_resources"
            if self._claiming:  # a claim can choose other jobs, so it does not wait for a lock
                name = "lock_available_resources"
            for key in wanted:
                self._resources[key] = ResourceLock(key, self._batch.floor)
            self._absent.update(wanted)
            for key, token, holder in await self._fetch(name, wanted):
                self._resources[key] = ResourceLock(key, token, holder)
                self._absent.discard(key)

    async def _write(self) -> None:
        batch = self._batch
        writes = Writes()
        if batch.created:
            await self._number_created()
            created = batch.created.items() if self._numbers_in_statement else sorted(batch.created.items())
            rows = [insert_row(self._seqs[job_id], job) for job_id, job in created]
            writes.add("insert_unnumbered_jobs" if self._numbers_in_statement else "insert_jobs", rows)
        # A job that is queued again may become ready before the place where the next scan would start.
        if any(job.state is _QUEUED for job in batch.updated.values()):
            self._context.ready_scan.forget()
        # One update for changed and touched jobs, so that all rows are locked in one order.
        if batch.updated:
            changed = {**batch.updated, **batch.touched}
            writes.add("update_jobs", self._conditional(update_row, changed))
        elif batch.touched:
            writes.add("touch_jobs", self._conditional(touch_row, batch.touched))
        self._write_resources(writes)
        # A claim from a queue inserts its op_id once, and fails if it is there: it was made before.
        if self._claimed:
            ops = len({op_id for op_id, _ in self._claimed})
            writes.add("insert_claims", self._claimed, batch.now, expected=ops)
        # A claim of a named job appends to its op_id: several of them may share one.
        if acquired := [e for e in batch.events if e.event_type == _CLAIMED and not self._claiming]:
            rows = [(event.op_id, self._seqs[event.job_id or ""]) for event in acquired]
            writes.add("append_claims", rows, batch.now)
        self._write_events(writes)
        if counts := batch.count_changes():
            writes.add("insert_counts", counts)
            self.counts += len(counts)
        if writes.names:
            failpoint("postgres.decided")
            await self._send(writes)
            self._claimed = []
            self._resources.update(batch.taken)
            self._absent.difference_update(batch.taken)
            self._written |= batch.created | batch.updated | batch.touched
            batch.mark_written()

    def update_cache(self) -> None:
        """Update the cache of leased jobs with what was written, once it is committed."""
        seqs, row_version = self._seqs, self._row_version
        written = self._written.items()
        self._context.leased_jobs.keep(CachedJob(seqs[job_id], job, row_version) for job_id, job in written)

    def _conditional(
        self, row: Callable[[int, Job, int | None, Job], Row], jobs: dict[str, Job]
    ) -> list[Row]:
        """Return the rows of changed jobs by enqueue sequence: all commits lock rows in this order."""
        stored, rows = self._batch.stored, self._rows
        ranked = sorted((self._seqs[job_id], job) for job_id, job in jobs.items())
        return [row(seq, stored[job.job_id], rows.get(job.job_id), job) for seq, job in ranked]

    async def _number_created(self) -> None:
        if self._numbers_in_statement:
            # 1, 2, 3 … stand for the numbers that the statement will give.
            self._seqs = dict(zip(self._batch.created, count(1), strict=False))
            return
        missing = len(self._batch.created) - len(self._free_seqs)
        if missing > 0:
            await self._allocate_numbers(missing)
        for job_id in self._batch.created:
            self._seqs[job_id] = self._free_seqs.popleft()

    def _write_resources(self, writes: Writes) -> None:
        new, changed = [], []
        for key, resource in self._batch.taken.items():
            before = self._resources[key]
            if key in self._absent:
                new.append((key, resource.token, resource.holder))
            else:
                changed.append((key, resource.token, resource.holder, before.token, before.holder))
        if new:
            writes.add("insert_resources", sorted(new))
        if changed:
            writes.add("update_resources", sorted(changed))

    def _write_events(self, writes: Writes) -> None:
        batch, seqs = self._batch, self._seqs
        rows = [event_row(seqs[event.job_id or ""], event) for event in batch.events]
        rows += [batch_row(seqs[events[0].job_id or ""], events) for events in batch.published]
        if rows:
            writes.add("insert_unnumbered_events" if self._numbers_in_statement else "insert_events", rows)
        if batch.facts:
            writes.add("insert_facts", [fact_row(fact) for fact in batch.facts])

    async def record(self, events: Sequence[Event]) -> int:
        """Append events with ids of their own; return how many were new."""
        writes = Writes()
        writes.add("insert_facts", [fact_row(event) for event in events])
        return await self._send(writes, measured=False)

    async def _send(self, writes: Writes, *, measured: bool = True) -> int:
        """Write everything in one statement; return how many facts were new. A write that is `measured` by
        the server's clock fails when that clock was set since."""
        sql = commit_statement(tuple(writes.names), self._context.schema, skip_locked=self._skip_locked)
        self.made_ready |= self._batch.makes_ready
        steps = self._context.time.steps if measured and not self._context.clock else None
        payload = notification_payload(ready=self.made_ready)
        given = (writes.expected, self._channel, self._lock_deadline(), payload, steps)
        self._asked = self._context.time.begin_reading()
        [(self.wrote, _, facts, self._row_version, now, last_seq)] = await self._connection.write(
            sql, *given, *writes.parameters
        )
        self._observe(now)  # a step of the clock is found again, and handled, by the next decision
        self._last_allocated = last_seq or 0
        return int(facts)

    def _lock_deadline(self) -> datetime | None:
        """Return until when the statement must have its row locks, or None: a wait for another transaction
        would shorten a new lease, and an estimate of the time that is too far behind would shorten the life
        of a new job."""
        if self._locked or self._context.clock:
            return None
        batch = self._batch
        if self._numbers_in_statement:
            self._context.time.stop_estimating()  # if the estimate was good, the result brings the time anew
            return batch.now + WAIT_MAX
        written = (batch.created, batch.updated, batch.touched)
        leased = any(job.lease for jobs in written for job in jobs.values())
        return batch.now + WAIT_MAX if leased else None


def _changes(answers: list[Decision]) -> bool:
    return all(isinstance(d, Change) and d.after is not d.before for d in answers)
