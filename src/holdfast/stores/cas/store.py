"""The compare-and-swap store: jobs as documents over any `VersionedStore`, with no server at all.

`jobs/{id}/state.json` is the truth: the record, the events of its outbox, and a nonce of the write.
One conditional write commits all of it. Everything else is a hint or a copy: written before the
commit where missing it would lose a job, and repaired by whoever finds it stale.
"""

from collections.abc import Sequence
from datetime import datetime

from holdfast.core.access import Key
from holdfast.core.errors import Corrupt, Unavailable
from holdfast.core.event import Event
from holdfast.core.job import Job, Resource
from holdfast.core.lifecycle import Change
from holdfast.core.lifecycle.draft import same
from holdfast.core.state import State
from holdfast.objects.memory import MemoryObjects
from holdfast.ports import (
    Census,
    Clock,
    Decision,
    Due,
    Filter,
    Finding,
    HistoryPage,
    Ids,
    One,
    Page,
    Pruned,
    Ready,
    Slice,
    VersionedStore,
    Work,
)
from holdfast.stores.cas import keys
from holdfast.stores.cas.api_keys import all_keys, put_key
from holdfast.stores.cas.claiming import Claim, Claiming
from holdfast.stores.cas.dispatch import Dispatch, Parcel
from holdfast.stores.cas.documents import Document, Held, Shelf, each
from holdfast.stores.cas.feed import Feed
from holdfast.stores.cas.hints import Hints, is_due
from holdfast.stores.cas.listing import Listing
from holdfast.stores.cas.locks import Locks
from holdfast.stores.cas.logs import Logs
from holdfast.stores.cas.pruning import Pruning
from holdfast.stores.cas.recording import Recording
from holdfast.stores.cas.revision import Proposal, Step
from holdfast.stores.cas.writing import Writer
from holdfast.stores.signal import Signal


class CasStore:
    """Documents behind the port. Any number of processes may share the objects."""

    def __init__(self, objects: VersionedStore, clock: Clock, ids: Ids) -> None:
        self._clock = clock
        self._ids = ids
        self._signal = Signal(clock)
        self._shelf = shelf = Shelf(objects)
        self._feed = Feed(shelf, ids)
        self._dispatch = Dispatch(shelf, self._feed, clock, ids)
        self._locks = Locks(shelf, ids)
        self._writer = Writer(shelf, self._dispatch, self._locks, clock, ids)
        self._hints = Hints(shelf, self._locks, clock)
        self._logs = Logs(shelf)
        self._claiming = Claiming(shelf, self._writer, self._dispatch, self._hints)
        self._recording = Recording(shelf, self._writer, self._dispatch)
        self._dispatch.pay = self._pay
        self._listing = Listing(shelf)
        self._pruning = Pruning(
            shelf, self._listing, self._logs, self._locks, self._feed, self._dispatch, self._writer
        )

    async def transact(self, works: Sequence[Work]) -> list[list[Decision]]:
        answers: list[list[Decision]] = [[] for _ in works]
        parcels: list[Parcel] = []
        try:
            await self._ones(works, answers, parcels)
            await self._due(works, answers, parcels)
            await self._ready(works, answers, parcels)
        except Unavailable as error:
            if any(parcel.landed for parcel in parcels):
                raise _maybe_applied(error) from error
            raise
        finally:
            if any(parcel.landed for parcel in parcels):
                self._signal.set()
        return answers

    async def _tell_others(self, answers: list[list[Decision]]) -> None:
        """Facts about another job than the one that changed belong into that other job's document, and
        a job that it made into one of its own. Whoever dies before this leaves them owed, and whoever
        comes next pays first."""
        changes = [d for decisions in answers for d in decisions if isinstance(d, Change)]
        facts = [f for change in changes for f in change.facts if f.job_id != change.after.job_id]
        if facts:
            await self.record(facts)
        await self._make([made for change in changes for made in change.made])

    async def _pay(self, document: Document) -> None:
        """Tell facts about other jobs that are still there, and make the jobs that are not there yet.
        A job that was pruned stays forgotten: see `Pruning`."""
        known = await self._shelf.load_many(fact.job_id or "" for fact in document.owed)
        owed = zip(document.owed, known, strict=True)
        facts = [fact for fact, held in owed if held.record is not None]
        if facts:
            await self.record(facts)
        await self._make(document.made)

    async def _make(self, made: Sequence[Change]) -> None:
        """Make the jobs that a change came with. One whose id is taken stays as it is."""
        if not made:
            return
        async with self._dispatch.parcel(change.after.job_id for change in made) as parcel:

            async def settle(change: Change) -> None:
                step = Step(lambda job, *_: change if job is None else same(job))
                await self._writer.settle(change.after.job_id, [step], parcel)

            await each(settle, made)

    async def _ones(
        self, works: Sequence[Work], answers: list[list[Decision]], parcels: list[Parcel]
    ) -> None:
        """Works on one job are decided in their order and committed in one write."""
        by_job: dict[str, list[tuple[int, Step]]] = {}
        for n, work in enumerate(works):
            if isinstance(work.selection, One):
                one = work.selection
                by_job.setdefault(one.job_id, []).append((n, Step(work.decide, one.lock)))
        if not by_job:
            return
        async with self._dispatch.parcel(by_job) as parcel:
            parcels.append(parcel)

            async def settle(job_id: str) -> None:
                steps = by_job[job_id]
                decisions = await self._writer.settle(job_id, [step for _, step in steps], parcel)
                for (n, _), decision in zip(steps, decisions, strict=True):
                    answers[n].append(decision)

            await each(settle, by_job)
            await self._tell_others(answers)

    async def _due(
        self, works: Sequence[Work], answers: list[list[Decision]], parcels: list[Parcel]
    ) -> None:
        """Hand due jobs to the works that asked for some; move the markers that came too early."""
        wanted = [(n, w) for n, w in enumerate(works) for _ in range(_due_limit(w))]
        if not wanted:
            return
        await self._dispatch.repair_now_and_then()
        found = await self._hints.due(len(wanted))
        shares = list(zip(wanted, found.due, strict=False))
        async with self._dispatch.parcel(held.job_id for held in found.due) as parcel:
            parcels.append(parcel)

            async def settle(share: tuple[tuple[int, Work], Held]) -> tuple[Decision, ...]:
                (_, work), held = share
                steps = [Step(work.decide)]
                return await self._writer.settle(
                    held.job_id, steps, parcel, first=held, fits=is_due
                )

            async def move(held: Held) -> None:
                await self._writer.change(held.job_id, _move_due, parcel, first=held)

            await each(move, found.early)
            for ((n, _), _), decisions in zip(shares, await each(settle, shares), strict=True):
                answers[n] += decisions

    async def _ready(
        self, works: Sequence[Work], answers: list[list[Decision]], parcels: list[Parcel]
    ) -> None:
        lanes: dict[tuple[object, ...], list[Claim]] = {}
        claims: list[tuple[int, Claim]] = []
        for n, work in enumerate(works):
            if isinstance(work.selection, Ready):
                claims.append((n, Claim(work.selection, work)))
                lanes.setdefault(work.selection.lane, []).append(claims[-1][1])
        for lane in lanes.values():
            await self._claiming.serve(lane, parcels)
        for n, claim in claims:
            answers[n] += claim.decisions

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        return [held.record for held in await self._shelf.load_many(job_ids)]

    async def list_jobs(
        self, which: Filter, *, after: str | None, limit: int, newest: bool = False
    ) -> Page:
        return await self._listing.page(which, after=after, limit=limit, newest=newest)

    async def counts(self, queue: str | None = None) -> dict[State, int]:
        """Reads every record: fine for thousands of jobs."""
        return await self._listing.counts(queue)

    async def census(self, limit: int) -> Census:
        """Reads every record, as `counts` does."""
        return await self._listing.census(limit, self._writer.retries)

    async def histories(self, job_ids: Sequence[str]) -> list[list[Event]]:
        return await self._logs.histories(job_ids)

    async def history(self, job_id: str, *, after: str | None, limit: int) -> HistoryPage:
        return await self._logs.history(job_id, after=after, limit=limit)

    async def published(self, job_id: str, token: int, *, first: int) -> list[int]:
        return await self._logs.published(job_id, token, first=first)

    async def log(
        self, job_id: str, *, after: str | None, limit: int, output: bool = True
    ) -> Slice:
        return await self._logs.read(job_id, after=after, limit=limit, output=output)

    async def feed(self, *, after: str | None, limit: int) -> Slice:
        """A dead writer's events come 10 seconds late (`REPAIR_AFTER`), and may come twice. This is
        also when other jobs are told what it owed them and its follow-ups are made, unless somebody
        has swept since, or changed its job."""
        await self._dispatch.repair()
        return await self._feed.read(after=after, limit=limit)

    async def tail(self) -> str:
        return await self._feed.tail()

    async def record(self, events: Sequence[Event]) -> int:
        parcels: list[Parcel] = []
        try:
            return await self._recording.record(events, parcels)
        except Unavailable as error:
            if any(parcel.landed for parcel in parcels):
                raise _maybe_applied(error) from error
            raise
        finally:
            self._signal.set()

    async def resource(self, key: str) -> Resource:
        return (await self._locks.look(key)).resource

    async def prune(self, *, ended_before: datetime, output_before: datetime, limit: int) -> Pruned:
        try:
            return await self._pruning.prune(
                ended_before=ended_before, output_before=output_before, limit=limit
            )
        except Unavailable as error:
            raise _maybe_applied(error) from error  # some jobs may be gone by then

    async def keys(self) -> list[Key]:
        return await all_keys(self._shelf)

    async def put_key(self, key: Key) -> None:
        await put_key(self._shelf, key)
        self._signal.set(ready=False)

    async def now(self) -> datetime:
        return self._clock.now()

    async def secret(self) -> bytes:
        objects = self._shelf.objects
        found = await objects.get(keys.SECRET)
        if found is None:
            await objects.create_if_absent(keys.SECRET, self._ids.secret())
            found = await objects.get(keys.SECRET)
        if found is None:
            raise Corrupt("The secret was deleted just after it was made.")
        return found[0]

    def mark(self, *, ready: bool = False) -> int:
        return self._signal.mark(ready=ready)

    async def wait(self, mark: int, timeout: float, *, ready: bool = False) -> None:  # noqa: ASYNC109
        await self._signal.wait(mark, timeout, ready=ready)

    def describe(self) -> str:
        return "documents: survives whatever its object store survives"

    async def examine(self) -> list[Finding]:
        objects = self._shelf.objects
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
            Finding("durability", "note", f"It survives whatever {name} survives: look there."),
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
    """The error for the whole call: what failed was not applied, but something before it was."""
    return Unavailable(error.message, applied="unknown", job_id=error.job_id)


def _due_limit(work: Work) -> int:
    return work.selection.limit if isinstance(work.selection, Due) else 0


async def _move_due(held: Held, now: datetime) -> Proposal | None:
    """A marker at the real time, for a job that is not due yet; nothing when it has become so."""
    job = held.record
    if job is None or job.due_at is None or is_due(held, now):
        return None
    return Proposal(record=job, move_due=True)
