"""One commit: read what the batch needs, let it decide, and write the result in one statement."""

from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import count

from holdfast.core.catalogue import EventType
from holdfast.core.event import Event
from holdfast.core.job import Job, ResourceLock
from holdfast.core.lifecycle import Change
from holdfast.core.lifecycle.pattern import Template
from holdfast.core.state import State
from holdfast.failpoint import failpoint
from holdfast.ports import Decision, Work
from holdfast.stores.batch import Batch, Group
from holdfast.stores.leased_jobs import CachedJob
from holdfast.stores.postgres.commit_context import CommitContext, QueryConnection
from holdfast.stores.postgres.commit_way import Way
from holdfast.stores.postgres.notifications import NO_NOTICE, Notice
from holdfast.stores.postgres.rows import alike_jobs
from holdfast.stores.postgres.scan_starts import BEGINNING
from holdfast.stores.postgres.server_time import ClockStepped, ServerTime
from holdfast.stores.postgres.state_rows import ChangedGroup, ChangedJob
from holdfast.stores.postgres.statements import Row, statement
from holdfast.stores.postgres.writes import Writes

_CLAIMED = EventType.CLAIMED
_QUEUED = State.QUEUED
WAIT_MAX = timedelta(milliseconds=500)
NUMBERED_MAX = 16


class StaleCache(Exception):
    """A decision on cached jobs writes nothing, so no conflict would show that they are stale: read
    them."""


_SQL_WAYS = {Way.IDLE: 1, Way.EXTERNAL: 2, Way.LOCKED: 3, Way.AGAIN: 3}


class PostgresCommit:
    """The commit of one batch."""

    def __init__(
        self,
        connection: QueryConnection,
        context: CommitContext,
        works: Sequence[Work],
        way: Way,
        notice: Notice = NO_NOTICE,
    ) -> None:
        self._connection = connection
        self._context = context
        self._way = way
        self._notice = notice
        self._resources: dict[str, ResourceLock] = {}
        # Not a method of this object: the reference cycle would keep every commit until it is collected.
        self._batch = Batch(works, BEGINNING, self._resources.__getitem__)
        self._seqs: dict[str, int] = {}
        self._rows: dict[str, int | None] = {}  # the row version (xmin) each job was read at
        self._free_seqs: deque[int] = deque()  # allocated enqueue sequences that no job has yet
        # Locks that were never taken: they are inserted, not updated.
        self._absent: set[str] = set()
        self._claimed: list[tuple[str, int]] = []
        # Jobs that a claim has taken out of the queue, and jobs whose alarm has gone off.
        self._dequeued: dict[str, Job] = {}
        self._alarmed: list[str] = []
        self._unnumbered = False
        self._estimated = False  # whether the batch decides by an estimate of the time
        self._cached = False  # whether the jobs to decide on now are from the cache
        self._written: dict[str, Job] = {}
        self._templates: dict[str, Template] = {}  # those that written jobs share with others
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
    def _locks_rows(self) -> bool:
        """Whether what is read is locked. Jobs from the cache are not, and then nothing else is before
        they are written: all commits lock the rows of jobs before those of locks."""
        return self._way.locks and not self._cached

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
            if self._cached and not all(map(_changes, batch.decisions)):
                raise StaleCache
            await self._write()
            self._cached = False
        return batch.decisions

    def _given_now(self) -> datetime | None:
        return self._context.clock.now() if self._context.clock else None

    def _accept_time(self, now: datetime, floor: int | None) -> None:
        """Decide by this server time and token floor. The time is read once the locks are held, so that
        waiting for them shortens no lease. Raise `ClockStepped` when the server's clock was set."""
        if not self._observe(now):
            raise ClockStepped
        if not (
            self._batch.events or self._batch.groups
        ):  # all events of a commit have one time, by which their segments are found
            self._batch.now = self._given_now() or max(self._batch.now, now)
        self._batch.floor = floor or 0

    def _observe(self, now: datetime) -> bool:
        """Record the server's time; return whether it is consistent with earlier ones."""
        # A session of the caller may have its own settings for times, and a test has its own clock.
        if self._way is Way.EXTERNAL or self._context.clock:
            return True
        return self._context.time.observe(now, self._asked)

    async def _fetch(self, name: str, *parameters: object) -> Sequence[Row]:
        self._asked = self._context.time.begin_reading()
        return await self._connection.fetch(statement(name, self._context.schema), *parameters)

    async def _load_by_id(self) -> None:
        """Get the jobs that are named, from the cache if it has them all."""
        selected = [one for _, one in self._batch.by_id]
        # A second try also reads the jobs with fresh ids: the first try may have inserted them.
        known = [one.job_id for one in selected if self._way is Way.AGAIN or not one.fresh]
        cached = self._way.first and known
        copies = self._context.leased_jobs.all_of(known) if cached else None
        self._cached = copies is not None
        fresh = len(selected) - len(known)
        # The statement that allocates also returns the time, so it is sent for cached jobs too (0 numbers).
        if (fresh or copies) and not self._fits_one_trip(fresh):
            await self._allocate_numbers(fresh)
        if copies:
            self._batch.load([copy.job for copy in copies], [copy.template for copy in copies])
            self._seqs.update((copy.job.job_id, copy.seq) for copy in copies)
            self._rows.update((copy.job.job_id, copy.row_version) for copy in copies)
            await self._load_resources(copy.job.spec.lock for copy in copies)
        elif known:
            await self._load("lock_jobs" if self._locks_rows else "select_jobs", known)
            absent = set(known) - self._seqs.keys()
            # An absent job may have been pruned while we waited for its row, which raised the token floor.
            # Allocating numbers reads the floor again.
            if self._way.locks and absent:
                await self._allocate_numbers(len(absent))
        await self._load_resources(one.lock for one in selected)

    def _fits_one_trip(self, fresh: int) -> bool:
        """Whether the statement that writes is the only one: it can number up to `NUMBERED_MAX` new jobs
        without locks itself, if the server's time can be estimated. If so, prepare for that."""
        now = self._given_now() or self._context.time.estimate()
        selected = self._batch.by_id
        # All works must be new jobs: a job that exists would have to be read first.
        if now is None or self._way is not Way.CACHED or not 0 < len(selected) == fresh <= NUMBERED_MAX:
            return False
        if any(one.lock for _, one in selected):
            return False
        self._batch.now = now
        self._unnumbered = self._estimated = True
        return True

    async def _allocate_numbers(self, wanted: int) -> None:
        """Get unused enqueue sequences, with the server's time and the token floor."""
        [(now, floor, seqs)] = await self._fetch("allocate_job_numbers", wanted)
        self._accept_time(now, floor)
        self._free_seqs += seqs

    async def _load(self, name: str, *parameters: object) -> list[Job]:
        """Read jobs and the locks they name into the batch."""
        rows = await self._fetch(name, *parameters)
        jobs = self._add_rows([row[2:] for row in rows if row[2] is not None])
        self._accept_time(*rows[-1][:2])
        await self._load_resources(job.spec.lock for job in jobs)
        return jobs

    def _add_rows(self, rows: Iterable[Row]) -> list[Job]:
        """Add the jobs of these rows to the batch; the last column of each is its row version."""
        rows = list(rows)
        found = list(alike_jobs(rows))
        jobs = [job for _, job, _ in found]
        self._seqs.update((job.job_id, seq) for seq, job, _ in found)
        self._rows.update((job.job_id, row[-1]) for job, row in zip(jobs, rows, strict=True))
        self._batch.load(jobs, [template for _, _, template in found])
        failpoint("postgres.jobs_read")
        return jobs

    async def _load_resources(self, keys: Iterable[str | None], *, claiming: bool = False) -> None:
        """Read the locks. A claim can choose other jobs, so it does not wait for one."""
        if wanted := sorted({key for key in keys if key and key not in self._resources}):
            name = "lock_resources" if self._locks_rows else "select_resources"
            if claiming:
                name = "lock_available_resources"
            for key in wanted:
                self._resources[key] = ResourceLock(key, self._batch.floor)
            self._absent.update(wanted)
            for key, token, holder in await self._fetch(
                "lock_available_resources" if claiming else name, wanted
            ):
                self._resources[key] = ResourceLock(key, token, holder)
                self._absent.discard(key)

    async def _write(self, *, acquiring: bool = True) -> None:
        """Write what was decided so far. `acquiring`: claims are of jobs that were named."""
        batch = self._batch
        await self._number_created()
        writes = self._writes(acquiring=acquiring)
        if not writes.anything:
            return
        await self._send(writes)
        if not self.wrote:
            return
        self.counts += len(writes.counts)
        self._claimed = []
        self._alarmed = []
        self._resources.update(batch.taken)
        self._absent.difference_update(batch.taken)
        for written in (batch.created, batch.updated, batch.touched):
            self._written |= written
            for job_id in written:
                self._templates.pop(job_id, None)
        for group in batch.groups:
            self._written |= {job.job_id: job for job in group.after}
            self._templates |= dict.fromkeys([job.job_id for job in group.after], group.pattern.after)
        batch.mark_written()

    def _writes(self, *, acquiring: bool) -> Writes:
        batch = self._batch
        batch.split_small_groups()
        put, taken = batch.queue_changes()
        taken = [job for job in taken if self._dequeued.pop(job.job_id, None) is None]
        alarm_at, timed = self._alarm()
        claimed = self._claimed
        if acquiring:
            # A claim of a named job appends to its op_id: several of them may share one.
            claimed = [
                (event.op_id or "", self._seqs[event.job_id or ""])
                for event in batch.events
                if event.event_type == _CLAIMED
            ] + [
                (op_id, self._seqs[job.job_id])
                for group in batch.groups
                if group.pattern.claims
                for op_id, job in zip(group.op_ids, group.after, strict=True)
            ]
        # One update for changed and touched jobs, so that all rows are locked in one order.
        new = batch.created.items() if self._unnumbered else sorted(batch.created.items())
        jobs = [ChangedJob(self._seqs[job_id], None, None, job) for job_id, job in new]
        jobs += self._changed({**batch.updated, **batch.touched})
        new_locks, locks = self._locks()
        return Writes(
            jobs=jobs,
            groups=[self._changed_group(group) for group in batch.groups],
            alike=batch.alike_events(),
            put=put,
            taken=taken,
            alarm_at=alarm_at,
            timed=timed,
            events=batch.events,
            published=batch.published,
            facts=batch.facts,
            counts=batch.count_changes(),
            claimed=claimed,
            appending=acquiring,
            new_locks=new_locks,
            locks=locks,
            unnumbered=self._unnumbered,
        )

    def _changed_group(self, group: Group) -> ChangedGroup:
        job_ids = [job.job_id for job in group.after]
        return ChangedGroup(group, [self._seqs[i] for i in job_ids], [self._rows.get(i) for i in job_ids])

    def update_cache(self) -> None:
        """Update the cache of leased jobs with what was written, once it is committed."""
        seqs, row_version, template = self._seqs, self._row_version, self._templates.get
        self._context.leased_jobs.keep(
            CachedJob(seqs[job_id], job, row_version, template(job_id))
            for job_id, job in self._written.items()
        )

    def _changed(self, jobs: dict[str, Job]) -> list[ChangedJob]:
        """Return changed jobs by enqueue sequence: all commits lock rows in this order."""
        stored, rows, seqs = self._batch.stored, self._rows, self._seqs
        changed = [
            ChangedJob(seqs[job_id], stored[job_id], rows.get(job_id), job) for job_id, job in jobs.items()
        ]
        changed.sort(key=lambda job: job.seq)
        return changed

    def _alarm(self) -> tuple[datetime | None, list[int]]:
        """Return when the alarm of this commit goes off, and the jobs that have to be looked at then."""
        batch = self._batch
        due: dict[str, datetime | None] = {job.job_id: at for job, at in batch.untimed()}
        for job_id in self._alarmed:
            job = batch.jobs[job_id]
            if job is not None:
                due[job_id] = job.due_at
        timed = {self._seqs[job_id]: at for job_id, at in due.items() if at is not None}
        return min(timed.values(), default=None), list(timed)

    async def _number_created(self) -> None:
        batch = self._batch
        if self._unnumbered:
            # The statement numbers jobs that are simply queued: each has one event.
            events = {event.event_type for event in batch.events}
            simple = len(batch.created) == len(batch.events) and len(events) == 1
            simple = simple and not (
                batch.updated or batch.touched or batch.published or batch.facts or batch.taken
            )
            if simple and all(job.state is _QUEUED for job in batch.created.values()):
                # 1, 2, 3 … stand for the numbers that the statement will give.
                self._seqs = dict(zip(batch.created, count(1), strict=False))
                return
            self._unnumbered = False
        missing = len(batch.created) - len(self._free_seqs)
        if missing > 0:
            await self._allocate_numbers(missing)
        for job_id in batch.created:
            self._seqs[job_id] = self._free_seqs.popleft()

    def _locks(self) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
        new, changed = [], []
        for key, resource in sorted(self._batch.taken.items()):
            row: dict[str, object] = {"key": key, "token": resource.token, "holder": resource.holder}
            if key in self._absent:
                new.append(row)
            else:
                before = self._resources[key]
                changed.append(row | {"read_token": before.token, "read_holder": before.holder})
        return new, changed

    async def record(self, events: Sequence[Event]) -> int:
        """Append events with ids of their own; return how many were new."""
        return await self._send(Writes(facts=events), measured=False)

    async def _send(self, writes: Writes, *, measured: bool = True) -> int:
        """Write everything in one statement; return how many facts were new. A write that is `measured` by
        the server's clock fails when that clock was set since."""
        context, batch = self._context, self._batch
        self.made_ready |= batch.makes_ready
        given: tuple[object, ...] = (
            0 if self._cached else _SQL_WAYS.get(self._way, 0),
            batch.now,
            self._lock_deadline(),
            BEGINNING if context.clock else None,
            context.time.steps if measured and not context.clock else None,
            self._notice.channel,
            self._notice.payload(ready=self.made_ready),
        )
        parameters = writes.parameters(self._seqs, context.lanes)
        if measured:
            failpoint("postgres.decided")
        self._asked = context.time.begin_reading()
        [(self.wrote, facts, self._row_version, now, last_seq)] = await self._connection.write(
            statement("write_commit", context.schema), *given, *parameters
        )
        if now is not None:
            self._observe(now)  # a step of the clock is found again, and handled, by the next decision
        self._last_allocated = last_seq or 0
        return int(facts)

    def _lock_deadline(self) -> datetime | None:
        """Return until when the statement must have its row locks, or None: a wait for another transaction
        would shorten a new lease, and an estimate of the time that is too far behind would shorten the life
        of a new job."""
        if self._locks_rows or self._context.clock:
            return None
        batch = self._batch
        if self._estimated:
            return estimate_deadline(self._context.time, batch.now)
        written = (batch.created, batch.updated, batch.touched)
        leased = any(job.lease for jobs in written for job in jobs.values())
        leased = leased or any(group.pattern.after.job.lease for group in batch.groups)
        return batch.now + WAIT_MAX if leased else None


def estimate_deadline(time: ServerTime, now: datetime) -> datetime:
    """Return until when a statement must have its row locks that goes by this estimate of the time."""
    time.stop_estimating()  # if the estimate was good, the result brings the time anew
    return now + WAIT_MAX


def _changes(answers: list[Decision]) -> bool:
    return all(isinstance(d, Change) and d.after is not d.before for d in answers)
