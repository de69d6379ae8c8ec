"""Choosing: a commit whose jobs are found on the way, ready ones for claims and those that are due."""

from collections.abc import Hashable, Sequence
from datetime import datetime
from enum import Enum, auto

from msgspec.structs import replace

from holdfast.core.job import Job
from holdfast.core.lifecycle import Change
from holdfast.core.limits import PRIORITY_MAX
from holdfast.ports import Decision, Ready
from holdfast.stores.postgres.committing import Commit
from holdfast.stores.postgres.statements import Row

IDLE_LANES_MAX = 1_000
SEIZED_MAX = 16


class Seen(Enum):
    """What a glance has shown: nothing, a few jobs that can be claimed at once, or more than that."""

    NOTHING = auto()
    FEW = auto()
    MORE = auto()


class Choice(Commit):
    """A batch that may hold claims and sweeps. They lock what they choose, so it runs in a transaction.

    Unless it is `hopeful`, it asks first which claims were made before.
    """

    _few: Sequence[Row] = ()

    async def run(self) -> list[list[Decision]]:
        """Decide everything and write it: what is named, what is due, what is ready."""
        await super().run()
        batch = self._batch
        if batch.due_limit and not self._quiet:
            batch.decide_due(job.job_id for job in await self._due(batch.due_limit))
            await self._write()
        for lane in batch.lanes.values():
            self._choosing = True
            await self._claim(lane)
            await self._write()
        return batch.answers

    async def glance(self) -> Seen:
        """What there is to choose from, as far as a look without locks can tell. A claim in an idle lane
        asks first, with a single statement and outside a transaction; everybody else just goes and
        chooses."""
        lanes = self._batch.lanes
        if self._batch.ones or len(lanes) != 1 or not self._hopeful:
            return Seen.MORE
        [(lane, claims)] = lanes.items()
        return Seen.MORE if lane not in self._place.idle else await self._glance(claims)

    async def _glance(self, lane: list[tuple[int, Ready]]) -> Seen:
        """Whether anything is ready for these claims or due, or was claimed by one of them before."""
        batch, place, ready = self._batch, self._place, lane[0][1]
        queues, priorities = zip(*_rows(ready), strict=True)
        rows: list[Hashable] = [(*row, ready.lane) for row in _rows(ready)]
        starts = place.ready.begin(rows)
        sweeping = batch.due_limit and not self._quiet
        [due_start] = place.due.begin([None]) if sweeping else [None]
        wanted = sum(claim.limit for _, claim in lane)
        found = await self._ask(
            "glance",
            self._given_now(),
            queues,
            priorities,
            starts,
            ready.executor,
            ready.region,
            ready.kinds or None,
            due_start,
            [claim.op_id for _, claim in lane],
            min(wanted, SEIZED_MAX + 1),
        )
        now, is_due, is_claimed = found[0][:3]
        self._learn(now, None)
        jobs = [row[3:] for row in found if row[4] is not None]
        place.ready.end({} if jobs else dict.fromkeys(rows, batch.now), len(jobs))
        if sweeping:
            place.due.end({} if is_due else {None: batch.now}, is_due)
        if is_due or is_claimed or len(jobs) > SEIZED_MAX or any(lock for lock, *_ in jobs):
            return Seen.MORE
        self._few = [row[1:] for row in jobs]
        if len(jobs) == wanted:  # there may be more
            place.idle.discard(ready.lane)
        return Seen.FEW if jobs else Seen.NOTHING

    async def seize(self) -> bool:
        """Claim the few jobs that a glance has shown, without locking them first; answers whether nobody
        was quicker. Two trips to the server, where a lock, a write and their transaction would be six."""
        self._locked, self._choosing, self._yielding = False, True, True
        [lane] = self._batch.lanes.values()
        fresh = self._batch.fresh(lane)
        self._batch.decide_ready(fresh, [job.job_id for job in self._take_in(self._few)])
        self._note_claimed(fresh)
        self._batch.decide_again(lane)
        await self._write()
        return self.wrote

    def _note_claimed(self, lane: list[tuple[int, Ready]]) -> None:
        for n, ready in lane:
            self._claimed += [(ready.op_id, self._seqs[job_id]) for job_id in self._got(n)]

    @property
    def _quiet(self) -> bool:
        """Whether a claim need not look for due jobs, since one just did."""
        return bool(self._batch.lanes) and self._place.due.quiet

    async def _due(self, limit: int) -> list[Job]:
        marks = self._place.due
        [start] = marks.begin([None])
        due = await self._load("lock_due", self._given_now(), limit, start)
        first = due[0].due_at if due else None
        marks.end({None: first or self._batch.now}, len(due))
        return due

    async def _claim(self, lane: list[tuple[int, Ready]]) -> None:
        """Share out what is ready. Whether a claim was made before is asked for one that got nothing;
        one that got something cannot be written twice, and then everybody is asked first."""
        fresh = self._batch.fresh(lane)
        if not self._hopeful:
            fresh = await self._repeat(fresh)
        if fresh:
            await self._share_out(fresh)
            self._note_claimed(fresh)
            await self._repeat([(n, ready) for n, ready in fresh if not self._got(n)])
        self._batch.decide_again(lane)

    async def _repeat(self, lane: list[tuple[int, Ready]]) -> list[tuple[int, Ready]]:
        """Meet the claims that were made before with what they got; answers the others."""
        claimed: dict[str, list[str]] = {}
        if lane:
            for op_id, job_id in await self._ask("select_claimed", [r.op_id for _, r in lane]):
                claimed.setdefault(op_id, []).append(job_id)
        for n, ready in lane:
            if known := claimed.get(ready.op_id):
                await self._load("lock_jobs", known)
                self._batch.repeat(n, ready.op_id, known)
        return [(n, ready) for n, ready in lane if ready.op_id not in claimed]

    def _got(self, n: int) -> list[str]:
        return [d.after.job_id for d in self._batch.answers[n] if isinstance(d, Change)]

    async def _share_out(self, lane: list[tuple[int, Ready]]) -> None:
        """Give the claims of a lane what is ready: queue after queue, priority after priority,
        oldest first."""
        ready, marks = lane[0][1], self._place.ready
        rows = _rows(ready)
        starts = [(m, 0) for m in marks.begin((*row, ready.lane) for row in rows)]
        first = True
        while True:
            hungry = [(n, replace(r, limit=left)) for n, r in lane if (left := self._left(n, r))]
            wanted = sum(claim.limit for _, claim in hungry)
            if not wanted:
                return
            found = await self._ready(ready, rows, starts, wanted)
            if first:
                marks.end(self._firsts(ready, rows, found, wanted), len(found))
                self._note(ready.lane, len(found))
            first = False
            self._batch.decide_ready(hungry, (job.job_id for job in found))
            if len(found) < wanted:
                return
            # If that was not enough, some were refused: their lock was taken in this very batch.
            # Written down, the next look passes over whatever else waits for it.
            if any(self._left(n, claim) for n, claim in lane):
                await self._write()
            last = found[-1]
            passed = rows.index((last.spec.queue, last.spec.priority))
            rows, starts = rows[passed:], starts[passed:]
            starts[0] = (last.ready_at, self._seqs[last.job_id])

    def _note(self, lane: Hashable, jobs: int) -> None:
        """Remember in which lanes the last look found nothing."""
        idle = self._place.idle
        idle.discard(lane)
        if not jobs:
            if len(idle) >= IDLE_LANES_MAX:
                idle.clear()
            idle.add(lane)

    def _firsts(
        self, ready: Ready, rows: list[tuple[str, int]], found: list[Job], wanted: int
    ) -> dict[Hashable, datetime]:
        """The first ready moment in each row that a look went through: now, where there is none."""
        firsts: dict[tuple[str, int], datetime] = {}
        for job in found:
            firsts.setdefault((job.spec.queue, job.spec.priority), job.ready_at)
        if len(found) == wanted:
            last = found[-1].spec
            rows = rows[: rows.index((last.queue, last.priority)) + 1]
        return {(*row, ready.lane): firsts.get(row, self._batch.now) for row in rows}

    def _left(self, n: int, ready: Ready) -> int:
        return ready.limit - len(self._got(n))

    async def _ready(
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
    """The rows of jobs in a lane, by queue and priority, in the order in which claims take from them."""
    return [(queue, p) for queue in ready.queues for p in range(PRIORITY_MAX + 1)]
