"""One commit: read what the batch needs, let it decide, write what came of it in one statement."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.catalogue import EventType
from holdfast.core.event import Event
from holdfast.core.job import Job, Resource
from holdfast.core.lifecycle import Change
from holdfast.core.limits import PRIORITY_MAX
from holdfast.failpoint import failpoint
from holdfast.ports import Clock, Decision, Ready, Work
from holdfast.stores.batch import Batch
from holdfast.stores.postgres.rows import (
    batch_row,
    event_row,
    fact_row,
    insert_row,
    job_of,
    touch_row,
    update_row,
)
from holdfast.stores.postgres.statements import CHECKED, Row, commit_statement, statement

_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)
_CLAIMED = EventType.CLAIMED
WAIT_MAX = timedelta(milliseconds=500)


class Speaks(Protocol):
    """A connection of whatever driver, as far as a commit needs one."""

    async def fetch(self, sql: str, *parameters: object) -> Sequence[Row]: ...

    async def write(self, sql: str, *parameters: object) -> Sequence[Row]: ...


class Place(Struct, frozen=True):
    """Where a commit lands: the tables, the epoch they are in, and whose time counts."""

    schema: str
    epoch: int = 0
    clock: Clock | None = None


class Commit:
    """A batch on its way into the tables.

    `locked` says that this happens inside a transaction, so that rows are locked when they are read.
    Otherwise the one statement that writes is the transaction, and it undoes itself when a row is not
    as it was read.
    """

    def __init__(
        self,
        connection: Speaks,
        place: Place,
        works: Sequence[Work],
        *,
        locked: bool,
        channel: str = "",
    ) -> None:
        self._connection = connection
        self._place = place
        self._locked = locked
        self._channel = channel
        self._batch = Batch(works, _BEGINNING, self._look)
        self._seqs: dict[str, int] = {}
        self._rows: dict[str, int | None] = {}
        self._fresh_seqs: deque[int] = deque()
        self._resources: dict[str, Resource] = {}
        self._absent: set[str] = set()
        self._claimed: list[tuple[str, int]] = []
        self._choosing = False
        self.wrote = False
        self.counts = 0

    @property
    def last_seq(self) -> int:
        """The newest job this commit has to do with."""
        return max(self._seqs.values(), default=0)

    async def run(self) -> list[list[Decision]]:
        """Decide everything and write it."""
        batch = self._batch
        if batch.ones:
            await self._load_ones()
            batch.decide_ones()
            await self._write()
        if batch.due_limit:
            due = await self._load("lock_due", self._given_now(), batch.due_limit)
            batch.decide_due(job.job_id for job in due)
            await self._write()
        for lane in batch.lanes.values():
            self._choosing = True
            await self._claim(lane)
            await self._write()
        return batch.answers

    def _given_now(self) -> datetime | None:
        return self._place.clock.now() if self._place.clock else None

    def _learn(self, now: datetime, floor: int | None) -> None:
        """The store's time is read after the locks were had: a wait for one shortens no lease."""
        self._batch.now = self._given_now() or max(self._batch.now, now)
        self._batch.floor = floor or 0

    async def _ask(self, name: str, *parameters: object) -> Sequence[Row]:
        return await self._connection.fetch(statement(name, self._place.schema), *parameters)

    async def _load_ones(self) -> None:
        ones = [one for _, one in self._batch.ones]
        known = [one.job_id for one in ones if not one.fresh]
        if fresh := len(ones) - len(known):
            await self._draw(fresh)
        if known:
            await self._load("lock_jobs" if self._locked else "select_jobs", known)
            absent = set(known) - self._seqs.keys()
            if self._locked and absent:  # whoever removed one while we waited raised the floor
                await self._draw(len(absent))
        await self._load_resources(one.lock for one in ones)

    async def _draw(self, count: int) -> None:
        """Get enqueue sequences that nobody else has."""
        [(now, floor, seqs)] = await self._ask("begin_jobs", count)
        self._learn(now, floor)
        self._fresh_seqs += seqs

    async def _load(self, name: str, *parameters: object) -> list[Job]:
        """Read jobs and the locks they name into the batch."""
        jobs = []
        now: datetime = _BEGINNING
        floor: int | None = None
        for row in await self._ask(name, *parameters):
            now, floor, *found, row_version = row
            if found[0] is not None:
                seq, job = job_of(tuple(found))
                self._seqs[job.job_id] = seq
                self._rows[job.job_id] = row_version
                jobs.append(job)
        self._learn(now, floor)
        self._batch.load(jobs)
        await self._load_resources(job.spec.lock for job in jobs)
        failpoint("postgres.jobs_read")
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

    def _look(self, key: str) -> Resource:
        return self._resources[key]

    async def _claim(self, lane: list[tuple[int, Ready]]) -> None:
        claimed: dict[str, list[str]] = {}
        for op_id, job_id in await self._ask("select_claimed", [r.op_id for _, r in lane]):
            claimed.setdefault(op_id, []).append(job_id)
        fresh = []
        for n, ready in self._batch.fresh(lane):
            if known := claimed.get(ready.op_id):
                await self._load("lock_jobs", known)
                self._batch.repeat(n, ready.op_id, known)
            else:
                fresh.append((n, ready))
        if fresh:
            await self._share_out(fresh)
            for n, ready in fresh:
                self._claimed += [(ready.op_id, self._seqs[job_id]) for job_id in self._got(n)]
        self._batch.decide_again(lane)

    def _got(self, n: int) -> list[str]:
        return [d.after.job_id for d in self._batch.answers[n] if isinstance(d, Change)]

    async def _share_out(self, lane: list[tuple[int, Ready]]) -> None:
        """Give the claims of a lane what is ready: queue after queue, priority after priority,
        oldest first."""
        rows = [(q, p) for q in lane[0][1].queues for p in range(PRIORITY_MAX + 1)]
        start = (_BEGINNING, 0)
        while True:
            hungry = [(n, replace(r, limit=left)) for n, r in lane if (left := self._left(n, r))]
            wanted = sum(ready.limit for _, ready in hungry)
            if not wanted:
                return
            found = await self._ready(hungry[0][1], rows, start, wanted)
            self._batch.decide_ready(hungry, (job.job_id for job in found))
            if len(found) < wanted:
                return
            # If that was not enough, some were refused: their lock was taken in this very batch.
            # Written down, the next look passes over whatever else waits for it.
            if any(self._left(n, ready) for n, ready in lane):
                await self._write()
            last = found[-1]
            rows = rows[rows.index((last.spec.queue, last.spec.priority)) :]
            start = (last.ready_at, self._seqs[last.job_id])

    def _left(self, n: int, ready: Ready) -> int:
        return ready.limit - len(self._got(n))

    async def _ready(
        self, ready: Ready, rows: list[tuple[str, int]], start: tuple[datetime, int], wanted: int
    ) -> list[Job]:
        queues, priorities = zip(*rows, strict=True)
        beginnings = [start, *[(_BEGINNING, 0)] * (len(rows) - 1)]
        moments, seqs = zip(*beginnings, strict=True)
        return await self._load(
            "lock_ready",
            self._given_now(),
            queues,
            priorities,
            moments,
            seqs,
            ready.executor,
            ready.region,
            ready.kinds or None,
            wanted,
        )

    async def _write(self) -> None:
        batch = self._batch
        writes = _Writes()
        if batch.created:
            await self._number_the_new()
            created = sorted(batch.created.items())
            writes.add("insert_jobs", [insert_row(self._seqs[i], job) for i, job in created])
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
        if counts := self._counts():
            writes.add("insert_counts", counts)
            self.counts += len(counts)
        if writes.names:
            self.wrote = True
            failpoint("postgres.decided")
            await self._send(writes)
            self._claimed = []
            self._resources.update(batch.taken)
            self._absent.difference_update(batch.taken)
            batch.written()

    def _conditional(
        self, row: Callable[[int, Job, int | None, Job], Row], jobs: dict[str, Job]
    ) -> list[Row]:
        """The rows of changed jobs in the order of their ids: the order in which everybody locks."""
        stored, rows = self._batch.stored, self._rows
        ranked = sorted((self._seqs[job_id], job) for job_id, job in jobs.items())
        return [row(seq, stored[job.job_id], rows.get(job.job_id), job) for seq, job in ranked]

    async def _number_the_new(self) -> None:
        missing = len(self._batch.created) - len(self._fresh_seqs)
        if missing > 0:
            await self._draw(missing)
        for job_id in self._batch.created:
            self._seqs[job_id] = self._fresh_seqs.popleft()

    def _write_resources(self, writes: "_Writes") -> None:
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

    def _write_events(self, writes: "_Writes") -> None:
        batch, seqs = self._batch, self._seqs
        rows = [event_row(seqs[event.job_id or ""], event) for event in batch.events]
        rows += [batch_row(seqs[events[0].job_id or ""], events) for events in batch.published]
        if rows:
            writes.add("insert_events", rows)
        if batch.facts:
            writes.add("insert_facts", [fact_row(fact) for fact in batch.facts])

    def _counts(self) -> list[Row]:
        """How many jobs of each queue came into a state, and how many left one."""
        stored = self._batch.stored
        jobs = [*self._batch.created.values(), *self._batch.updated.values()]
        arrived = Counter([(job.spec.queue, job.state) for job in jobs])
        left = [(job.spec.queue, stored[job.job_id].state) for job in jobs if job.job_id in stored]
        arrived.subtract(left)
        return [(queue, state, n) for (queue, state), n in arrived.items() if n]

    async def record(self, events: Sequence[Event]) -> int:
        """Append events with ids of their own; answers how many were new."""
        writes = _Writes()
        writes.add("insert_facts", [fact_row(event) for event in events])
        return await self._send(writes)

    async def _send(self, writes: "_Writes") -> int:
        """Write everything in one statement; answers how many facts were new."""
        sql = commit_statement(tuple(writes.names), self._place.schema)
        parameters = (writes.expected, self._channel, self._at_latest(), *writes.parameters)
        [(_, _, facts)] = await self._connection.write(sql, *parameters)
        return int(facts)

    def _at_latest(self) -> datetime | None:
        """Until when the rows must be had: a wait for somebody else's lock would shorten a new lease."""
        batch = self._batch
        jobs = [*batch.created.values(), *batch.updated.values(), *batch.touched.values()]
        if self._locked or self._place.clock or not any(job.lease for job in jobs):
            return None
        return batch.now + WAIT_MAX


class _Writes:
    """What one statement will write."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.parameters: list[object] = []
        self.expected = 0

    def add(
        self, name: str, rows: Sequence[Row], *first: object, expected: int | None = None
    ) -> None:
        self.names.append(name)
        self.parameters += first
        self.parameters.append(rows)
        if name in CHECKED:
            self.expected += len(rows) if expected is None else expected
