"""A commit that finds its jobs itself: ready jobs for claims, and jobs that are due."""

from collections.abc import Hashable, Sequence
from datetime import datetime
from enum import Enum, auto

from msgspec.structs import replace

from holdfast.core.job import Job
from holdfast.core.lifecycle import Change
from holdfast.core.limits import PRIORITY_MAX
from holdfast.ports import Decision, Ready
from holdfast.stores.postgres.commit import PostgresCommit
from holdfast.stores.postgres.statements import Row

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

    Unless it is `optimistic`, it first reads which of its claims were made before.
    """

    _peeked_rows: Sequence[Row] = ()

    async def run(self) -> list[list[Decision]]:
        """Decide and write everything: the jobs that are named, those that are due, those that are
        ready."""
        await super().run()
        batch = self._batch
        if batch.due_limit and not self._just_swept:
            batch.decide_due(job.job_id for job in await self._due(batch.due_limit))
            await self._write()
        for lane in batch.lanes.values():
            # From here on, locks that another transaction changes are passed over.
            self._claiming = True
            await self._claim(lane)
            await self._write()
        return batch.decisions

    async def peek(self) -> Peek:
        """Return what there is to claim, as far as a read without locks can tell. Only a claim in an idle
        lane peeks, with a single statement outside a transaction; any other claim chooses at once."""
        lanes = self._batch.lanes
        if self._batch.by_id or len(lanes) != 1 or not self._optimistic:
            return Peek.MORE
        [(lane, claims)] = lanes.items()
        return Peek.MORE if lane not in self._context.idle else await self._peek(claims)

    async def _peek(self, lane: list[tuple[int, Ready]]) -> Peek:
        """Read whether a job is ready for these claims, or due, or was claimed by one of them before."""
        batch, context, ready = self._batch, self._context, lane[0][1]
        queues, priorities = zip(*_rows(ready), strict=True)
        rows: list[Hashable] = [(*row, ready.candidate_key) for row in _rows(ready)]
        starts = context.ready_scan.begin(rows)
        sweeping = batch.due_limit and not self._just_swept
        [due_start] = context.due_scan.begin([None]) if sweeping else [None]
        wanted = sum(claim.limit for _, claim in lane)
        found = await self._fetch(
            "peek_ready",
            self._given_now(),
            queues,
            priorities,
            starts,
            ready.executor,
            ready.region,
            ready.kinds or None,
            due_start,
            [claim.op_id for _, claim in lane],
            min(wanted, CLAIM_UNLOCKED_MAX + 1),
        )
        now, is_due, is_claimed = found[0][:3]
        self._accept_time(now, None)
        jobs = [row[3:] for row in found if row[4] is not None]
        context.ready_scan.end({} if jobs else dict.fromkeys(rows, batch.now), len(jobs))
        if sweeping:
            context.due_scan.end({} if is_due else {None: batch.now}, is_due)
        if is_due or is_claimed or len(jobs) > CLAIM_UNLOCKED_MAX or any(lock for lock, *_ in jobs):
            return Peek.MORE
        self._peeked_rows = [row[1:] for row in jobs]
        if len(jobs) == wanted:  # more may be ready: the next claim need not peek
            context.idle.discard(ready.candidate_key)
        return Peek.FEW if jobs else Peek.NOTHING

    async def claim_unlocked(self) -> bool:
        """Claim the few jobs that a peek found, without locking them first; return False when another
        process changed one of them meanwhile. Two trips to the server, where a lock, a write and their
        transaction would be six."""
        # The one statement that writes is the transaction. It writes nothing, and does not wait, when one
        # of its rows is locked or was changed since the peek.
        self._locked, self._claiming, self._skip_locked = False, True, True
        [lane] = self._batch.lanes.values()
        fresh = self._batch.first_claims(lane)
        self._batch.decide_ready(fresh, [job.job_id for job in self._add_rows(self._peeked_rows)])
        self._record_claims(fresh)
        self._batch.decide_duplicates(lane)
        await self._write()
        return self.wrote

    def _record_claims(self, lane: list[tuple[int, Ready]]) -> None:
        for n, ready in lane:
            self._claimed += [(ready.op_id, self._seqs[job_id]) for job_id in self._got(n)]

    @property
    def _just_swept(self) -> bool:
        """Whether a claim need not read due jobs, since another claim just found none."""
        return bool(self._batch.lanes) and self._context.due_scan.quiet

    async def _due(self, limit: int) -> list[Job]:
        marks = self._context.due_scan
        [start] = marks.begin([None])
        due = await self._load("lock_due", self._given_now(), limit, start)
        first = due[0].due_at if due else None
        marks.end({None: first or self._batch.now}, len(due))
        return due

    async def _claim(self, lane: list[tuple[int, Ready]]) -> None:
        """Claim what is ready. Whether a claim was made before is read only for a claim that got nothing: a
        claim that got something cannot be written twice (`insert_claims` fails), and then the whole batch
        is tried again, not optimistic, so that this is read first."""
        fresh = self._batch.first_claims(lane)
        if not self._optimistic:
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
        ready, marks = lane[0][1], self._context.ready_scan
        rows = _rows(ready)
        starts = [(m, 0) for m in marks.begin((*row, ready.candidate_key) for row in rows)]
        first = True
        while True:
            unsatisfied = [(n, replace(r, limit=left)) for n, r in lane if (left := self._left(n, r))]
            wanted = sum(claim.limit for _, claim in unsatisfied)
            if not wanted:
                return
            found = await self._lock_ready(ready, rows, starts, wanted)
            if first:
                marks.end(self._firsts(ready, rows, found, wanted), len(found))
                self._record_idle(ready.candidate_key, len(found))
            first = False
            self._batch.decide_ready(unsatisfied, (job.job_id for job in found))
            if len(found) < wanted:
                return
            # If that was not enough, some jobs were refused: their lock was taken within this batch.
            # Once that is written, the next query passes over all other jobs that need the lock.
            if any(self._left(n, claim) for n, claim in lane):
                await self._write()
            last = found[-1]
            passed = rows.index((last.spec.queue, last.spec.priority))
            rows, starts = rows[passed:], starts[passed:]
            starts[0] = (last.ready_at, self._seqs[last.job_id])

    def _record_idle(self, lane: Hashable, jobs: int) -> None:
        """Remember whether the last query found nothing in this lane."""
        idle = self._context.idle
        idle.discard(lane)
        if not jobs:
            if len(idle) >= IDLE_LANES_MAX:
                idle.clear()
            idle.add(lane)

    def _firsts(
        self, ready: Ready, rows: list[tuple[str, int]], found: list[Job], wanted: int
    ) -> dict[Hashable, datetime]:
        """Return the time of the first ready job in each row that a query read; now, where it found
        none."""
        firsts: dict[tuple[str, int], datetime] = {}
        for job in found:
            firsts.setdefault((job.spec.queue, job.spec.priority), job.ready_at)
        if len(found) == wanted:
            last = found[-1].spec
            rows = rows[: rows.index((last.queue, last.priority)) + 1]
        return {(*row, ready.candidate_key): firsts.get(row, self._batch.now) for row in rows}

    def _left(self, n: int, ready: Ready) -> int:
        return ready.limit - len(self._got(n))

    async def _lock_ready(
        self,
        ready: Ready,
        rows: list[tuple[str, int]],
        starts: list[tuple[datetime, int]],
        wanted: int,
    ) -> list[Job]:
        queues, priorities = zip(*rows, strict=True)
        moments, seqs = zip(*starts, strict=True)
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


def _rows(ready: Ready) -> list[tuple[str, int]]:
    """Return the rows of jobs in a lane, by queue and priority, in the order in which they are claimed."""
    return [(queue, p) for queue in ready.queues for p in range(PRIORITY_MAX + 1)]
