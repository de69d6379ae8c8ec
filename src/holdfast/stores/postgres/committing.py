"""One commit: read what the batch needs, let it decide, write what came of it in one statement."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import count

from holdfast.core.catalogue import EventType
from holdfast.core.event import Event
from holdfast.core.job import Job, Resource
from holdfast.core.lifecycle import Change
from holdfast.core.state import State
from holdfast.failpoint import failpoint
from holdfast.ports import Decision, Work
from holdfast.stores.batch import Batch
from holdfast.stores.held import Copy
from holdfast.stores.postgres.listening import words
from holdfast.stores.postgres.marks import BEGINNING
from holdfast.stores.postgres.place import Place, Speaks
from holdfast.stores.postgres.rows import (
    batch_row,
    event_row,
    fact_row,
    insert_row,
    job_of,
    touch_row,
    update_row,
)
from holdfast.stores.postgres.server_time import Stepped
from holdfast.stores.postgres.statements import Row, commit_statement, statement
from holdfast.stores.postgres.writes import Writes

_CLAIMED = EventType.CLAIMED
_QUEUED = State.QUEUED
WAIT_MAX = timedelta(milliseconds=500)
DRAWN_MAX = 16


class Misguessed(Exception):
    """What was decided on a copy may be wrong, and no commit would show it: read the jobs."""


class Commit:
    """A batch on its way into the tables.

    `locked` says that this happens inside a transaction, so that rows are locked when they are read.
    Otherwise the one statement that writes is the transaction, and it undoes itself when a row is not
    as it was read. Who is `hopeful` expects nothing unusual, and then decides on the copies of jobs that
    were leased out here.
    """

    def __init__(
        self,
        connection: Speaks,
        place: Place,
        works: Sequence[Work],
        *,
        locked: bool,
        hopeful: bool = False,
        ours: bool = True,
        channel: str = "",
    ) -> None:
        self._connection = connection
        self._ours = ours
        self._place = place
        self._locked = locked
        self._hopeful = hopeful
        self._guessing = hopeful and not locked
        self._channel = channel
        self._resources: dict[str, Resource] = {}
        # No method of ours: a ring of references would keep every commit until somebody collects it.
        self._batch = Batch(works, BEGINNING, self._resources.__getitem__)
        self._seqs: dict[str, int] = {}
        self._rows: dict[str, int | None] = {}
        self._fresh_seqs: deque[int] = deque()
        self._absent: set[str] = set()
        self._claimed: list[tuple[str, int]] = []
        self._choosing = False
        self._drawing = False
        self._yielding = False
        self._written: dict[str, Job] = {}
        self._row_version = 0
        self._last_drawn = 0
        self._asked = 0.0
        self.wrote = False
        self.readied = False
        self.counts = 0

    @property
    def answers(self) -> list[list[Decision]]:
        return self._batch.answers

    @property
    def last_seq(self) -> int:
        """The newest job this commit has to do with."""
        return max(self._last_drawn, *self._seqs.values(), 0)

    async def run(self) -> list[list[Decision]]:
        """Decide on the jobs that are named, and write what came of it."""
        batch = self._batch
        if batch.ones:
            await self._load_ones()
            batch.decide_ones()
            if self._guessing and not all(map(_changes, batch.answers)):
                raise Misguessed
            await self._write()
        return batch.answers

    def _given_now(self) -> datetime | None:
        return self._place.clock.now() if self._place.clock else None

    def _learn(self, now: datetime, floor: int | None) -> None:
        """The store's time is read after the locks were had: a wait for one shortens no lease. Raise
        `Stepped` when it is not what it should be: nothing is decided on it."""
        if not self._hear(now):
            raise Stepped
        self._batch.now = self._given_now() or max(self._batch.now, now)
        self._batch.floor = floor or 0

    def _hear(self, now: datetime) -> bool:
        """Take in the server's time; returns whether it fits what it told before."""
        if (
            not self._ours or self._place.clock
        ):  # another's session may tell the time in its own way
            return True
        return self._place.time.hear(now, self._asked)

    async def _ask(self, name: str, *parameters: object) -> Sequence[Row]:
        self._asked = self._place.time.ask()
        return await self._connection.fetch(statement(name, self._place.schema), *parameters)

    async def _load_ones(self) -> None:
        ones = [one for _, one in self._batch.ones]
        # Whoever tries again also looks for the new ones: they may have landed the first time.
        again = self._locked and not self._hopeful
        known = [one.job_id for one in ones if again or not one.fresh]
        copies = self._place.held.all_of(known) if self._guessing and known else None
        self._guessing = copies is not None
        fresh = len(ones) - len(known)
        if (fresh or copies) and not self._in_one_trip(fresh):
            await self._draw(fresh)
        if copies:
            self._batch.load(copy.job for copy in copies)
            self._seqs.update((copy.job.job_id, copy.seq) for copy in copies)
            self._rows.update((copy.job.job_id, copy.row_version) for copy in copies)
            await self._load_resources(copy.job.spec.lock for copy in copies)
        elif known:
            await self._load("lock_jobs" if self._locked else "select_jobs", known)
            absent = set(known) - self._seqs.keys()
            if self._locked and absent:  # whoever removed one while we waited raised the floor
                await self._draw(len(absent))
        await self._load_resources(one.lock for one in ones)

    def _in_one_trip(self, fresh: int) -> bool:
        """Whether the statement that writes is all that the server need be asked: a few new jobs, without
        locks, can draw their numbers where they are written, if it is known what time it is there."""
        now = self._given_now() or self._place.time.guess()
        ones = self._batch.ones
        if now is None or self._locked or not self._ours or not 0 < len(ones) == fresh <= DRAWN_MAX:
            return False
        if any(one.lock for _, one in ones):
            return False
        self._batch.now = now
        self._drawing = True
        return True

    async def _draw(self, count: int) -> None:
        """Get enqueue sequences that nobody else has."""
        [(now, floor, seqs)] = await self._ask("begin_jobs", count)
        self._learn(now, floor)
        self._fresh_seqs += seqs

    async def _load(self, name: str, *parameters: object) -> list[Job]:
        """Read jobs and the locks they name into the batch."""
        rows = await self._ask(name, *parameters)
        jobs = self._take_in([row[2:] for row in rows if row[2] is not None])
        self._learn(*rows[-1][:2])
        await self._load_resources(job.spec.lock for job in jobs)
        failpoint("postgres.jobs_read")
        return jobs

    def _take_in(self, rows: Iterable[Row]) -> list[Job]:
        """Have the jobs of these rows in the batch."""
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
            if self._choosing:  # who may choose passes over what somebody else is about to change
                name = "try_resources"
            for key in wanted:
                self._resources[key] = Resource(key, self._batch.floor)
            self._absent.update(wanted)
            for key, token, holder in await self._ask(name, wanted):
                self._resources[key] = Resource(key, token, holder)
                self._absent.discard(key)

    async def _write(self) -> None:
        batch = self._batch
        writes = Writes()
        if batch.created:
            await self._number_the_new()
            created = batch.created.items() if self._drawing else sorted(batch.created.items())
            rows = [insert_row(self._seqs[job_id], job) for job_id, job in created]
            writes.add("insert_drawn_jobs" if self._drawing else "insert_jobs", rows)
        if any(job.state is _QUEUED for job in batch.updated.values()):
            self._place.ready.forget()
        if batch.updated:  # with what is only touched, so that all rows are locked in one order
            changed = {**batch.updated, **batch.touched}
            writes.add("update_jobs", self._conditional(update_row, changed))
        elif batch.touched:
            writes.add("touch_jobs", self._conditional(touch_row, batch.touched))
        self._write_resources(writes)
        if self._claimed:
            ops = len({op_id for op_id, _ in self._claimed})
            writes.add("insert_claims", self._claimed, batch.now, expected=ops)
        if acquired := [e for e in batch.events if e.event_type == _CLAIMED and not self._choosing]:
            rows = [(event.op_id, self._seqs[event.job_id or ""]) for event in acquired]
            writes.add("note_claims", rows, batch.now)
        self._write_events(writes)
        if counts := batch.moves():
            writes.add("insert_counts", counts)
            self.counts += len(counts)
        if writes.names:
            failpoint("postgres.decided")
            await self._send(writes)
            self._claimed = []
            self._resources.update(batch.taken)
            self._absent.difference_update(batch.taken)
            self._written |= batch.created | batch.updated | batch.touched
            batch.written()

    def remember(self) -> None:
        """Keep a copy of what is leased out, once it is committed, and none of what is not."""
        seqs, row_version = self._seqs, self._row_version
        written = self._written.items()
        self._place.held.keep(Copy(seqs[job_id], job, row_version) for job_id, job in written)

    def _conditional(
        self, row: Callable[[int, Job, int | None, Job], Row], jobs: dict[str, Job]
    ) -> list[Row]:
        """The rows of changed jobs in the order of their ids: the order in which everybody locks."""
        stored, rows = self._batch.stored, self._rows
        ranked = sorted((self._seqs[job_id], job) for job_id, job in jobs.items())
        return [row(seq, stored[job.job_id], rows.get(job.job_id), job) for seq, job in ranked]

    async def _number_the_new(self) -> None:
        if self._drawing:  # by place, until they have numbers
            self._seqs = dict(zip(self._batch.created, count(1), strict=False))
            return
        missing = len(self._batch.created) - len(self._fresh_seqs)
        if missing > 0:
            await self._draw(missing)
        for job_id in self._batch.created:
            self._seqs[job_id] = self._fresh_seqs.popleft()

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
            writes.add("insert_drawn_events" if self._drawing else "insert_events", rows)
        if batch.facts:
            writes.add("insert_facts", [fact_row(fact) for fact in batch.facts])

    async def record(self, events: Sequence[Event]) -> int:
        """Append events with ids of their own; answers how many were new."""
        writes = Writes()
        writes.add("insert_facts", [fact_row(event) for event in events])
        return await self._send(writes, measured=False)

    async def _send(self, writes: Writes, *, measured: bool = True) -> int:
        """Write everything in one statement; answers how many facts were new. What is `measured` by the
        server's clock is refused when that was set since."""
        sql = commit_statement(tuple(writes.names), self._place.schema, yielding=self._yielding)
        self.readied |= self._batch.readies
        steps = self._place.time.steps if measured and not self._place.clock else None
        told = words(ready=self.readied)
        given = (writes.expected, self._channel, self._at_latest(), told, steps)
        self._asked = self._place.time.ask()
        [(self.wrote, _, facts, self._row_version, now, last_seq)] = await self._connection.write(
            sql, *given, *writes.parameters
        )
        self._hear(now)  # what does not fit is met again, and dealt with, by the next decision
        self._last_drawn = last_seq or 0
        return int(facts)

    def _at_latest(self) -> datetime | None:
        """Until when the rows must be had: a wait for somebody else's lock would shorten a new lease, and a
        guess of the time that is behind, since we were kept from hearing it, a new job's whole life."""
        if self._locked or self._place.clock:
            return None
        batch = self._batch
        if self._drawing:
            self._place.time.forget()  # heard anew with the answer, if it was right
            return batch.now + WAIT_MAX
        written = (batch.created, batch.updated, batch.touched)
        leased = any(job.lease for jobs in written for job in jobs.values())
        return batch.now + WAIT_MAX if leased else None


def _changes(answers: list[Decision]) -> bool:
    return all(isinstance(d, Change) and d.after is not d.before for d in answers)
