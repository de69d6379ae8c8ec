"""A commit that finds its jobs itself: ready jobs for claims, and jobs that are due."""

from collections.abc import Hashable, Sequence
from datetime import datetime
from enum import Enum, auto

from msgspec.structs import replace

from holdfast.core.job import Job
from holdfast.core.lifecycle import Change
from holdfast.ports import Decision, Ready
from holdfast.stores.postgres.commit import PostgresCommit
from holdfast.stores.postgres.commit_way import Way
from holdfast.stores.postgres.statements import Row
from holdfast.stores.postgres.writes import Writes, lane_key

IDLE_LANES_MAX = 1_000
CLAIM_UNLOCKED_MAX = 16


class Peek(Enum):
    """What a peek found: nothing, a few jobs that can be claimed without locking them, or more than
    that."""

    NOTHING = auto()
    FEW = auto()
    MORE = auto()


class ClaimCommit(PostgresCommit):
    """A commit of a batch that may hold claims and sweeps. They lock the jobs they choose, so it runs in a
    transaction.

    On the first try it does not ask which of its claims were made before, but for those that get nothing.
    """

    _peeked_rows: Sequence[Row] = ()
    _marks: Sequence[tuple[int, datetime, int]] = ()

    async def run(self) -> list[list[Decision]]:
        """Decide and write everything: the jobs that are named, those that are due, those that are
        ready."""
        await super().run()
        batch = self._batch
        if batch.due_limit and not self._just_swept:
            batch.decide_due([job.job_id for job in await self._due(batch.due_limit)])
            await self._write()
        for lane in batch.lanes.values():
            # From here on, locks that another transaction changes are passed over.
            await self._claim(lane)
            await self._write(acquiring=False)
        await self._put_back()
        return batch.decisions

    async def peek(self) -> Peek:
        """Return what there is to claim, as far as a read without locks can tell. Only a claim in an idle
        lane peeks, with a single statement outside a transaction; any other claim chooses at once."""
        lanes = self._batch.lanes
        if self._batch.by_id or len(lanes) != 1 or not self._way.first:
            return Peek.MORE
        [(lane, claims)] = lanes.items()
        return Peek.MORE if lane not in self._context.idle else await self._peek(claims)

    async def _peek(self, lane: list[tuple[int, Ready]]) -> Peek:
        """Read whether a job is ready for these claims, or due, or was claimed by one of them before."""
        batch, context, ready = self._batch, self._context, lane[0][1]
        sweeping = batch.due_limit and not self._just_swept
        [due_start] = context.due_scan.begin([None]) if sweeping else [None]
        wanted = sum(claim.limit for _, claim in lane)
        found = await self._fetch(
            "peek_ready",
            *self._wanted(ready),
            *self._begin_at_marks(),
            due_start,
            [claim.op_id for _, claim in lane],
            min(wanted, CLAIM_UNLOCKED_MAX + 1),
        )
        now, is_due, is_claimed = found[0][:3]
        self._accept_time(now, None)
        rows = [row[3:] for row in found if row[5] is not None]
        context.ready_marks.read()
        if sweeping:
            context.due_scan.end({} if is_due else {None: batch.now}, is_due)
        if is_due or is_claimed or len(rows) > CLAIM_UNLOCKED_MAX or any(lock for lock, *_ in rows):
            return Peek.MORE
        self._peeked_rows = rows
        return Peek.FEW if rows else Peek.NOTHING

    async def claim_unlocked(self) -> bool:
        """Claim the few jobs that a peek found, without locking them first; return False when another
        process changed one of them meanwhile. Two trips to the server, where a lock, a write and their
        transaction would be six."""
        # The one statement that writes is the transaction.
        self._way = Way.IDLE
        [lane] = self._batch.lanes.values()
        fresh = self._batch.first_claims(lane)
        jobs = self._add_rows([row[2:] for row in self._peeked_rows])
        self._learn_lanes(jobs, [row[1] for row in self._peeked_rows])
        self._batch.decide_ready(fresh, [job.job_id for job in jobs])
        self._record_claims(fresh)
        self._batch.decide_duplicates(lane)
        await self._write(acquiring=False)
        if self.wrote and len(jobs) == sum(claim.limit for _, claim in lane):
            # More may be ready: the next claim need not peek.
            self._context.idle.discard(lane[0][1].candidate_key)
        return self.wrote

    def _wanted(self, ready: Ready) -> tuple[object, ...]:
        return (
            self._given_now(),
            ready.queues,
            ready.kinds or None,
            ready.executor or "",
            ready.region or "",
        )

    def _begin_at_marks(self) -> tuple[list[int], list[datetime], list[int]]:
        # With a clock of its own, a test may enqueue at any time.
        return ([], [], []) if self._context.clock else self._context.ready_marks.begin()

    def _learn_lanes(self, jobs: Sequence[Job], lanes: Sequence[int]) -> None:
        for job, lane in zip(jobs, lanes, strict=True):
            self._context.lanes[lane_key(job)] = lane

    def _record_claims(self, lane: list[tuple[int, Ready]]) -> None:
        for n, ready in lane:
            self._claimed += [(ready.op_id, self._seqs[job_id]) for job_id in self._got(n)]

    @property
    def _just_swept(self) -> bool:
        """Whether a claim need not read due jobs, since another claim just found none."""
        return bool(self._batch.lanes) and self._context.due_scan.quiet

    async def _due(self, limit: int) -> list[Job]:
        """Take the alarms that have gone off, and read the jobs that are due."""
        scan = self._context.due_scan
        [start] = scan.begin([None])
        rows = await self._fetch("take_due", self._given_now(), limit, start)
        now, floor, first, alarms = rows[-1][:4]
        jobs = self._add_rows([(*row[4:], None) for row in rows if row[4] is not None])
        self._accept_time(now, floor)
        await self._load_resources(job.spec.lock for job in jobs)
        self._alarmed = [job.job_id for job in jobs]
        scan.end({None: first or self._batch.now}, alarms or 0)
        return jobs

    async def _claim(self, lane: list[tuple[int, Ready]]) -> None:
        """Claim what is ready. Whether a claim was made before is read only for a claim that got nothing: a
        claim that got something cannot be written twice (its op_id is in the store), and then the whole
        batch is tried again, and this is read first."""
        fresh = self._batch.first_claims(lane)
        if not self._way.first:
            fresh = await self._repeat(fresh)
        if fresh:
            await self._claim_ready(fresh)
            self._record_claims(fresh)
            await self._repeat([(n, ready) for n, ready in fresh if not self._got(n)])
        self._batch.decide_duplicates(lane)

    async def _repeat(self, lane: list[tuple[int, Ready]]) -> list[tuple[int, Ready]]:
        """Decide on the claims that were made before with the jobs they got; return the other claims."""
        claimed: dict[str, list[str]] = {}
        if lane:
            for op_id, job_id in await self._fetch("select_claimed", [r.op_id for _, r in lane]):
                claimed.setdefault(op_id, []).append(job_id)
        for n, ready in lane:
            if known := claimed.get(ready.op_id):
                await self._load("lock_jobs", known)
                self._batch.decide_repeated(n, ready.op_id, known)
        return [(n, ready) for n, ready in lane if ready.op_id not in claimed]

    def _got(self, n: int) -> list[str]:
        return [d.after.job_id for d in self._batch.decisions[n] if isinstance(d, Change)]

    async def _claim_ready(self, lane: list[tuple[int, Ready]]) -> None:
        """Claim ready jobs for the claims of a lane: queue by queue, priority by priority, oldest first."""
        ready, first = lane[0][1], True
        while True:
            unsatisfied = [(n, replace(r, limit=left)) for n, r in lane if (left := self._left(n, r))]
            wanted = sum(claim.limit for _, claim in unsatisfied)
            if not wanted:
                return
            found = await self._take_ready(ready, wanted)
            if first:
                self._record_idle(ready.candidate_key, len(found))
            first = False
            self._batch.decide_ready(unsatisfied, (job.job_id for job in found))
            if len(found) < wanted:
                return
            # If that was not enough, some jobs were refused: their lock was taken within this batch.
            # Once that is written, the next query passes over all other jobs that need the lock.
            if any(self._left(n, claim) for n, claim in lane):
                await self._write(acquiring=False)

    def _record_idle(self, lane: Hashable, jobs: int) -> None:
        """Remember whether the last query found nothing in this lane."""
        idle = self._context.idle
        idle.discard(lane)
        if not jobs:
            if len(idle) >= IDLE_LANES_MAX:
                idle.clear()
            idle.add(lane)

    def _left(self, n: int, ready: Ready) -> int:
        return ready.limit - len(self._got(n))

    async def _take_ready(self, ready: Ready, wanted: int) -> list[Job]:
        """Take ready jobs out of the queue."""
        rows = await self._fetch("take_ready", *self._wanted(ready), wanted, *self._begin_at_marks())
        jobs = self._add_rows([(*row[6:], None) for row in rows if row[6] is not None])
        self._accept_time(*rows[0][:2])
        self._learn_lanes(jobs, [row[5] for row in rows if row[6] is not None])
        self._marks = [*self._marks, *zip(*(column or () for column in rows[0][2:5]), strict=True)]
        self._dequeued |= {job.job_id: job for job in jobs}
        await self._load_resources((job.spec.lock for job in jobs), claiming=True)
        return jobs

    async def _put_back(self) -> None:
        """Put the jobs that were taken out of the queue, and not claimed, into it again."""
        if jobs := list(self._dequeued.values()):
            self._dequeued.clear()
            await self._send(Writes(put=jobs))

    def move_marks(self) -> None:
        """Begin the next claims after the jobs that this one took, once it is committed."""
        self._context.ready_marks.read()
        self._context.ready_marks.move(self._marks)
