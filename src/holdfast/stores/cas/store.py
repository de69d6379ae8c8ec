"""The compare-and-swap store: jobs as documents over any `VersionedStore`, with no server at all.

`jobs/{id}/state.json` is the truth: the record, the events of its outbox, and a nonce of the write.
One conditional write commits all of it. Everything else is a hint or a copy: written before the
commit where missing it would lose a job, and repaired by the next process that finds it stale.
"""

from collections.abc import Sequence
from datetime import datetime

from holdfast.core.access import Key
from holdfast.core.errors import Corrupt, Unavailable
from holdfast.core.event import Event
from holdfast.core.job import Job, ResourceLock
from holdfast.core.lifecycle import Change
from holdfast.core.lifecycle.draft import unchanged
from holdfast.core.state import State
from holdfast.core.workers import WorkerInfo
from holdfast.objects.memory import MemoryObjects
from holdfast.ports import (
    ById,
    Census,
    Clock,
    Decision,
    Due,
    EventPage,
    Finding,
    HistoryPage,
    Ids,
    JobFilter,
    JobPage,
    PruneResult,
    Ready,
    VersionedStore,
    Work,
)
from holdfast.stores.cas import keys
from holdfast.stores.cas.api_keys import all_keys, put_key
from holdfast.stores.cas.claims import ClaimInProgress, DocumentClaims
from holdfast.stores.cas.documents import Document, DocumentStore, LoadedDocument, each
from holdfast.stores.cas.event_recorder import EventRecorder
from holdfast.stores.cas.feed import Feed
from holdfast.stores.cas.hints import Hints, is_due
from holdfast.stores.cas.job_index import JobIndex
from holdfast.stores.cas.locks import LockDocuments
from holdfast.stores.cas.logs import LogDocuments
from holdfast.stores.cas.outbox import OutboxBatch, OutboxRelay
from holdfast.stores.cas.prune import Pruner
from holdfast.stores.cas.revision import DecidedStep, Proposal
from holdfast.stores.cas.workers import all_workers, put_worker
from holdfast.stores.cas.writer import DocumentWriter
from holdfast.stores.commit_signal import CommitSignal


class CasStore:
    """Documents behind the port. Any number of processes may share the objects."""

    def __init__(self, objects: VersionedStore, clock: Clock, ids: Ids) -> None:
        self._clock = clock
        self._ids = ids
        self._signal = CommitSignal(clock)
        self._documents = documents = DocumentStore(objects)
        self._feed = Feed(documents, ids)
        self._relay = OutboxRelay(documents, self._feed, clock, ids)
        self._locks = LockDocuments(documents, ids)
        self._writer = DocumentWriter(documents, self._relay, self._locks, clock, ids)
        self._hints = Hints(documents, self._locks, clock)
        self._logs = LogDocuments(documents)
        self._claims = DocumentClaims(documents, self._writer, self._relay, self._hints)
        self._recorder = EventRecorder(documents, self._writer, self._relay)
        self._relay.deliver_pending = self._deliver_pending
        self._index = JobIndex(documents)
        self._pruner = Pruner(
            documents, self._index, self._logs, self._locks, self._feed, self._relay, self._writer
        )

    async def transact(self, works: Sequence[Work]) -> list[list[Decision]]:
        answers: list[list[Decision]] = [[] for _ in works]
        batches: list[OutboxBatch] = []
        try:
            await self._ones(works, answers, batches)
            await self._due(works, answers, batches)
            await self._ready(works, answers, batches)
        except Unavailable as error:
            if any(batch.landed for batch in batches):
                raise _maybe_applied(error) from error
            raise
        finally:
            if any(batch.landed for batch in batches):
                self._signal.set()
        return answers

    async def _deliver_to_other_jobs(self, answers: list[list[Decision]]) -> None:
        """Record facts about other jobs than the one that changed in the documents of those jobs, and make
        the jobs that a change made. If the process dies before this they stay pending, and the next process
        that changes the document delivers them first."""
        changes = [d for decisions in answers for d in decisions if isinstance(d, Change)]
        facts = [f for change in changes for f in change.facts if f.job_id != change.after.job_id]
        if facts:
            await self.record(facts)
        await self._make([made for change in changes for made in change.made])

    async def _deliver_pending(self, document: Document) -> None:
        """Record the pending facts about other jobs that still exist, and make the jobs that do not exist
        yet. A job that was pruned is not made again: see `Pruner`."""
        known = await self._documents.load_many(fact.job_id or "" for fact in document.pending_facts)
        pending_facts = zip(document.pending_facts, known, strict=True)
        facts = [fact for fact, loaded in pending_facts if loaded.record is not None]
        if facts:
            await self.record(facts)
        await self._make(document.made)

    async def _make(self, made: Sequence[Change]) -> None:
        """Make the jobs that a change made. One that exists stays as it is."""
        if not made:
            return
        async with self._relay.batch(change.after.job_id for change in made) as batch:

            async def commit(change: Change) -> None:
                step = DecidedStep(lambda job, *_: change if job is None else unchanged(job))
                await self._writer.commit(change.after.job_id, [step], batch)

            await each(commit, made)

    async def _ones(
        self, works: Sequence[Work], answers: list[list[Decision]], batches: list[OutboxBatch]
    ) -> None:
        """Decide on works that name a job; those of one job are committed in one write, in their order."""
        by_job: dict[str, list[tuple[int, DecidedStep]]] = {}
        for n, work in enumerate(works):
            if isinstance(work.selection, ById):
                one = work.selection
                by_job.setdefault(one.job_id, []).append((n, DecidedStep(work.decide, one.lock)))
        if not by_job:
            return
        async with self._relay.batch(by_job) as batch:
            batches.append(batch)

            async def commit(job_id: str) -> None:
                steps = by_job[job_id]
                decisions = await self._writer.commit(job_id, [step for _, step in steps], batch)
                for (n, _), decision in zip(steps, decisions, strict=True):
                    answers[n].append(decision)

            await each(commit, by_job)
            await self._deliver_to_other_jobs(answers)

    async def _due(
        self, works: Sequence[Work], answers: list[list[Decision]], batches: list[OutboxBatch]
    ) -> None:
        """Decide on due jobs for the works that select them, and move the markers that are too early."""
        wanted = [(n, w) for n, w in enumerate(works) for _ in range(_due_limit(w))]
        if not wanted:
            return
        await self._relay.repair_now_and_then()
        found = await self._hints.due(len(wanted))
        shares = list(zip(wanted, found.due, strict=False))
        async with self._relay.batch(loaded.job_id for loaded in found.due) as batch:
            batches.append(batch)

            async def commit(
                share: tuple[tuple[int, Work], LoadedDocument],
            ) -> tuple[Decision, ...]:
                (_, work), loaded = share
                steps = [DecidedStep(work.decide)]
                return await self._writer.commit(loaded.job_id, steps, batch, first=loaded, fits=is_due)

            async def move(loaded: LoadedDocument) -> None:
                await self._writer.change(loaded.job_id, _move_due, batch, first=loaded)

            await each(move, found.early)
            for ((n, _), _), decisions in zip(shares, await each(commit, shares), strict=True):
                answers[n] += decisions

    async def _ready(
        self, works: Sequence[Work], answers: list[list[Decision]], batches: list[OutboxBatch]
    ) -> None:
        lanes: dict[tuple[object, ...], list[ClaimInProgress]] = {}
        claims: list[tuple[int, ClaimInProgress]] = []
        for n, work in enumerate(works):
            if isinstance(work.selection, Ready):
                claims.append((n, ClaimInProgress(work.selection, work)))
                lanes.setdefault(work.selection.candidate_key, []).append(claims[-1][1])
        for lane in lanes.values():
            await self._claims.serve(lane, batches)
        for n, claim in claims:
            answers[n] += claim.decisions

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        return [loaded.record for loaded in await self._documents.load_many(job_ids)]

    async def list_jobs(
        self, which: JobFilter, *, after: str | None, limit: int, newest: bool = False
    ) -> JobPage:
        return await self._index.page(which, after=after, limit=limit, newest=newest)

    async def counts(self, queue: str | None = None) -> dict[State, int]:
        """Count by reading every record: fine for thousands of jobs."""
        return await self._index.counts(queue)

    async def count_ready(
        self, queue: str, *, ahead_of: Job | None = None, delayed: bool = False, limit: int
    ) -> int:
        return await self._hints.count(queue, ahead_of, delayed=delayed, limit=limit)

    async def census(self, limit: int) -> Census:
        """Read every record, as `counts` does."""
        return await self._index.census(limit, self._writer.retries)

    async def histories(self, job_ids: Sequence[str]) -> list[list[Event]]:
        return await self._logs.histories(job_ids)

    async def facts(self, job_ids: Sequence[str], event_type: str) -> list[list[Event]]:
        return await self._logs.facts(job_ids, event_type)

    async def history(self, job_id: str, *, after: str | None, limit: int) -> HistoryPage:
        return await self._logs.history(job_id, after=after, limit=limit)

    async def published(self, job_id: str, token: int, *, first: int) -> list[int]:
        return await self._logs.published(job_id, token, first=first)

    async def published_before(self, job_id: str, before: tuple[int, int], *, limit: int) -> list[Event]:
        return await self._logs.published_before(job_id, before, limit=limit)

    def log_cursor(self, log_id: int) -> str:
        return str(log_id - 1)

    async def logs(self, job_id: str, *, after: str | None, limit: int, output: bool = True) -> EventPage:
        return await self._logs.read(job_id, after=after, limit=limit, output=output)

    async def events(self, *, after: str | None, limit: int) -> EventPage:
        """Repair, then read. A dead writer's events come 10 seconds late (`REPAIR_AFTER`), and may come
        twice. Its pending facts and follow-ups are delivered then too, unless a sweep or a change of its
        job has done so before."""
        await self._relay.repair()
        return await self._feed.read(after=after, limit=limit)

    async def tail(self) -> str:
        return await self._feed.tail()

    async def record(self, events: Sequence[Event]) -> int:
        batches: list[OutboxBatch] = []
        try:
            return await self._recorder.record(events, batches)
        except Unavailable as error:
            if any(batch.landed for batch in batches):
                raise _maybe_applied(error) from error
            raise
        finally:
            self._signal.set()

    async def locks(self, key: str) -> ResourceLock:
        return (await self._locks.read(key)).resource

    async def prunable(self, *, ended_before: datetime, output_before: datetime) -> PruneResult:
        return await self._pruner.count(ended_before=ended_before, output_before=output_before)

    async def prune(self, *, ended_before: datetime, output_before: datetime, limit: int) -> PruneResult:
        try:
            return await self._pruner.prune(
                ended_before=ended_before, output_before=output_before, limit=limit
            )
        except Unavailable as error:
            raise _maybe_applied(error) from error  # some jobs may be removed already

    async def list_keys(self) -> list[Key]:
        return await all_keys(self._documents)

    async def put_key(self, key: Key) -> None:
        await put_key(self._documents, key)
        self._signal.set(ready=False)

    async def list_workers(self) -> list[WorkerInfo]:
        return await all_workers(self._documents)

    async def put_worker(self, worker: WorkerInfo, *, forget_before: datetime) -> None:
        await put_worker(self._documents, worker, forget_before)

    async def now(self) -> datetime:
        return self._clock.now()

    async def secret(self) -> bytes:
        objects = self._documents.objects
        found = await objects.get(keys.SECRET)
        if found is None:
            await objects.create_if_absent(keys.SECRET, self._ids.secret())
            found = await objects.get(keys.SECRET)
        if found is None:
            raise Corrupt("The secret was deleted just after it was made.")
        return found[0]

    def change_mark(self, *, ready: bool = False) -> int:
        return self._signal.change_mark(ready=ready)

    async def wait(self, mark: int, timeout: float, *, ready: bool = False) -> None:  # noqa: ASYNC109
        await self._signal.wait(mark, timeout, ready=ready)

    def describe(self) -> str:
        return "documents: survives whatever its object store survives"

    async def doctor(self) -> list[Finding]:
        objects = self._documents.objects
        name = type(objects).__name__
        try:
            await objects.get(keys.SECRET)
        except Unavailable as error:
            return [Finding("store", "fault", f"{name} does not answer: {error.message}")]
        found = [Finding("store", "good", f"Jobs as documents over {name}, which answers.")]
        if isinstance(objects, MemoryObjects):
            words = "Everything is lost when this process ends: its objects are in memory."
            keep = "Keep jobs in a file: --store sqlite:///jobs.db"
            return [*found, Finding("durability", "warning", words, keep)]
        return [
            *found,
            Finding("durability", "note", f"It survives what {name} survives: see its documentation."),
            Finding(
                "clock",
                "note",
                "Every process judges leases by its own clock.",
                "Keep the clocks of all machines together (NTP), well within one lease.",
            ),
        ]

    async def close(self) -> None:
        """There is nothing to close."""


def _maybe_applied(error: Unavailable) -> Unavailable:
    """Return the error for the whole call: the write that failed was not applied, but an earlier one
    was."""
    return Unavailable(error.message, applied="unknown", job_id=error.job_id)


def _due_limit(work: Work) -> int:
    return work.selection.limit if isinstance(work.selection, Due) else 0


async def _move_due(loaded: LoadedDocument, now: datetime) -> Proposal | None:
    """Propose a marker at the real time for a job that is not due yet; nothing when it has become due."""
    job = loaded.record
    if job is None or job.due_at is None or is_due(loaded, now):
        return None
    return Proposal(record=job, move_due=True)
