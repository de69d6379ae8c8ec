"""The memory store: the simplest store, and the model that the others are checked against.

It forgets everything when its process ends; use it for tests and for trying things out.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from holdfast.core.access import Key
from holdfast.core.catalogue import EventClass, EventType
from holdfast.core.eligibility import claimable
from holdfast.core.event import Event
from holdfast.core.job import Job, ResourceLock, job_bytes
from holdfast.core.state import State
from holdfast.core.workers import WorkerInfo, last_seen_first
from holdfast.ports import (
    Census,
    Clock,
    Decision,
    EventPage,
    Finding,
    HistoryPage,
    Ids,
    JobFilter,
    JobPage,
    PruneResult,
    Ready,
    Work,
)
from holdfast.stores.batch import Batch
from holdfast.stores.census import CensusBuilder
from holdfast.stores.commit_signal import CommitSignal
from holdfast.stores.filters import HistoryBuilder, PageBuilder, cursor_number, is_stale, page_start, place_of


class MemoryStore:
    """Dictionaries behind the port. Single-threaded, so every call is atomic by itself."""

    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._clock = clock
        self._secret = ids.secret()
        self._jobs: dict[str, Job] = {}
        self._resources: dict[str, ResourceLock] = {}
        self._keys: dict[str, Key] = {}
        self._workers: dict[tuple[str, str], WorkerInfo] = {}
        self._log: list[Event] = []
        self._known: set[str] = set()
        self._order: dict[str, int] = {}
        self._last_order = 0
        self._last_log_id = 0
        self._floor = 0
        self._signal = CommitSignal(clock)

    async def transact(self, works: Sequence[Work]) -> list[list[Decision]]:
        batch = Batch(works, self._clock.now(), self._lock_of, self._floor)
        batch.load(self._jobs[one.job_id] for _, one in batch.by_id if one.job_id in self._jobs)
        batch.decide_by_id()
        if batch.due_limit:
            due = [job for job in self._current(batch) if job.due_at and job.due_at <= batch.now]
            due.sort(key=lambda job: (job.due_at, self._place(job)))
            batch.load(due)
            batch.decide_due([job.job_id for job in due[: batch.due_limit]])
        for lane in batch.lanes.values():
            self._decide_lane(batch, lane)
        self._write(batch)
        return batch.decisions

    def _lock_of(self, key: str) -> ResourceLock:
        return self._resources.get(key, ResourceLock(key, self._floor))

    def _place(self, job: Job) -> int:
        """Return the enqueue sequence; a job made in this batch comes last."""
        return self._order.get(job.job_id, self._last_order + 1)

    def _current(self, batch: Batch) -> list[Job]:
        """Return all jobs, as the batch has them now."""
        seen = {**self._jobs, **{k: v for k, v in batch.jobs.items() if v is not None}}
        return list(seen.values())

    def _decide_lane(self, batch: Batch, lane: list[tuple[int, Ready]]) -> None:
        jobs = self._current(batch)
        batch.load(jobs)
        fresh = []
        for n, ready in batch.first_claims(lane):
            known = self._claimed_under(ready.op_id)
            batch.decide_repeated(n, ready.op_id, known)
            if not known:
                fresh.append((n, ready))
        if fresh:
            ready = fresh[0][1]
            ranked = sorted(
                (job for job in jobs if self._claimable(job, ready, batch)),
                key=lambda job: (
                    ready.queues.index(job.spec.queue),
                    job.spec.priority,
                    job.ready_at,
                    self._place(job),
                ),
            )
            batch.decide_ready(fresh, [job.job_id for job in ranked])
        batch.decide_duplicates(lane)

    def _claimed_under(self, op_id: str) -> list[str]:
        return [
            event.job_id
            for event in self._log
            if event.op_id == op_id and event.event_type == EventType.CLAIMED and event.job_id
        ]

    def _claimable(self, job: Job, ready: Ready, batch: Batch) -> bool:
        lock = job.spec.lock
        free = not lock or batch.resources.get(lock, self._lock_of(lock)).holder is None
        return free and claimable(job, ready, batch.now)

    def _write(self, batch: Batch) -> None:
        for job_id, job in batch.created.items():
            self._last_order += 1
            self._order[job_id] = self._last_order
            self._jobs[job_id] = job
        for job in (*batch.updated.values(), *batch.touched.values()):
            self._jobs[job.job_id] = job
        self._resources.update(batch.taken)
        self._append(batch.events)
        for events in batch.published:
            self._append(events)
        self._append(batch.facts)
        if batch.created or batch.updated or batch.touched or batch.facts:
            self._signal.set(ready=batch.makes_ready)

    def _append(self, events: Sequence[Event]) -> int:
        before = self._last_log_id
        for event in events:
            if event.event_id not in self._known:
                self._known.add(event.event_id)
                self._last_log_id += 1
                self._log.append(replace(event, log_id=self._last_log_id))
        return self._last_log_id - before

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        return [self._jobs.get(job_id) for job_id in job_ids]

    async def list_jobs(
        self, which: JobFilter, *, after: str | None, limit: int, newest: bool = False
    ) -> JobPage:
        start = page_start(after, newest=newest)
        page = PageBuilder(which, limit)
        for job in reversed(list(self._jobs.values())) if newest else self._jobs.values():
            place = self._place(job)
            if (place < start if newest else place > start) and not page.take(
                str(place), job, job_bytes(job)
            ):
                return page.cut()
        return page.end(None)

    async def counts(self, queue: str | None = None) -> dict[State, int]:
        counts: dict[State, int] = {}
        for job in self._jobs.values():
            if queue is None or job.spec.queue == queue:
                counts[job.state] = counts.get(job.state, 0) + 1
        return counts

    async def count_ready(
        self, queue: str, *, ahead_of: Job | None = None, delayed: bool = False, limit: int
    ) -> int:
        now = self._clock.now()
        queued = (job for job in self._jobs.values() if job.state is State.QUEUED and job.spec.queue == queue)
        found = [job for job in queued if (job.ready_at > now) is delayed]
        if ahead_of is not None:
            found = [job for job in found if self._ready_order(job) < self._ready_order(ahead_of)]
        return min(len(found), limit)

    def _ready_order(self, job: Job) -> tuple[int, datetime, int]:
        return job.spec.priority, job.ready_at, self._place(job)

    async def census(self, limit: int) -> Census:
        counting = CensusBuilder()
        counting.add(self._jobs.values())
        return counting.census(limit)

    async def histories(self, job_ids: Sequence[str]) -> list[list[Event]]:
        chains: dict[str, list[Event]] = {job_id: [] for job_id in job_ids}
        for event in self._log:
            if event.offset is not None and event.job_id in chains:
                chains[event.job_id].append(event)
        return [chains[job_id] for job_id in job_ids]

    async def facts(self, job_ids: Sequence[str], event_type: str) -> list[list[Event]]:
        found: dict[str, list[Event]] = {job_id: [] for job_id in job_ids}
        for event in self._log:
            if event.event_type == event_type and event.given_id is not None and event.job_id in found:
                found[event.job_id].append(event)
        return [found[job_id] for job_id in job_ids]

    async def history(self, job_id: str, *, after: str | None, limit: int) -> HistoryPage:
        start, page = cursor_number(after) if after is not None else 0, HistoryBuilder(limit)
        for event in self._log:
            if event.job_id == job_id and (event.offset or 0) > start:
                size = len(msgspec.json.encode(event))
                if not page.take(event.offset, event, size):
                    return page.cut()
        return page.end()

    async def published(self, job_id: str, token: int, *, first: int) -> list[int]:
        return [
            event.sequence
            for event in self._log
            if event.job_id == job_id
            and event.fencing_token == token
            and event.sequence is not None
            and event.sequence >= first
        ]

    async def published_before(self, job_id: str, before: tuple[int, int], *, limit: int) -> list[Event]:
        mine = [event for event in self._log if event.job_id == job_id and event.sequence is not None]
        return sorted((e for e in mine if place_of(e) < before), key=place_of, reverse=True)[:limit]

    def log_cursor(self, log_id: int) -> str:
        return str(log_id - 1)

    async def logs(self, job_id: str, *, after: str | None, limit: int, output: bool = True) -> EventPage:
        mine = (
            event
            for event in self._log
            if event.job_id == job_id and (output or event.event_class is not EventClass.WORKER)
        )
        return self._page(mine, after, limit)

    async def events(self, *, after: str | None, limit: int) -> EventPage:
        return self._page(iter(self._log), after, limit)

    async def tail(self) -> str:
        return str(self._last_log_id)

    def _page(self, events: Iterator[Event], after: str | None, limit: int) -> EventPage:
        start = cursor_number(after) if after else 0
        found = tuple(
            event
            for event, _ in zip((e for e in events if (e.log_id or 0) > start), range(limit), strict=False)
        )
        return EventPage(found, str(found[-1].log_id) if found else str(start))

    async def record(self, events: Sequence[Event]) -> int:
        new = self._append(events)
        if new:
            self._signal.set(ready=False)
        return new

    async def locks(self, key: str) -> ResourceLock:
        return self._resources.get(key, ResourceLock(key))

    async def list_keys(self) -> list[Key]:
        return sorted(self._keys.values(), key=lambda key: (key.created_at, key.key_id))

    async def put_key(self, key: Key) -> None:
        self._keys[key.key_id] = key
        self._signal.set(ready=False)

    async def prunable(self, *, ended_before: datetime, output_before: datetime) -> PruneResult:
        old = {j.job_id for j in self._jobs.values() if j.ended_at and j.ended_at < ended_before}
        rest = [event for event in self._log if event.job_id not in old and is_stale(event, output_before)]
        return PruneResult(len(old), len(rest))

    async def list_workers(self) -> list[WorkerInfo]:
        return last_seen_first(self._workers.values())

    async def put_worker(self, worker: WorkerInfo, *, forget_before: datetime) -> None:
        self._workers[worker.name, worker.instance] = worker
        kept = self._workers.items()
        self._workers = {key: one for key, one in kept if one.seen_at >= forget_before}

    async def prune(self, *, ended_before: datetime, output_before: datetime, limit: int) -> PruneResult:
        old = [j.job_id for j in self._jobs.values() if j.ended_at and j.ended_at < ended_before]
        gone = set(old[:limit])
        kept = [
            event for event in self._log if event.job_id not in gone and not is_stale(event, output_before)
        ]
        pruned = PruneResult(len(gone), len(self._log) - len(kept))
        for job_id in gone:
            self._floor = max(self._floor, self._jobs[job_id].fencing_token)
            del self._jobs[job_id], self._order[job_id]
        self._log = kept
        self._known = {event.event_id for event in kept}
        return pruned

    async def now(self) -> datetime:
        return self._clock.now()

    async def secret(self) -> bytes:
        return self._secret

    def change_mark(self, *, ready: bool = False) -> int:
        return self._signal.change_mark(ready=ready)

    async def wait(self, mark: int, timeout: float, *, ready: bool = False) -> None:  # noqa: ASYNC109
        await self._signal.wait(mark, timeout, ready=ready)

    def describe(self) -> str:
        return "memory: everything is lost when this process ends"

    async def doctor(self) -> list[Finding]:
        keep = "Keep jobs in a file: --store sqlite:///jobs.db"
        return [
            Finding("store", "good", f"Jobs in the memory of this process: {len(self._jobs):,}."),
            Finding("durability", "warning", "Everything is lost when this process ends.", keep),
            Finding("sharing", "note", "No other process can see these jobs.", keep),
        ]

    async def close(self) -> None:
        """There is nothing to close."""
