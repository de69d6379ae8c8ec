"""Writing a document: read, decide, compare and swap; decide again when somebody was faster."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import takewhile
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from holdfast.core.errors import Unavailable
from holdfast.core.event import Event
from holdfast.core.job import Resource
from holdfast.failpoint import failpoint
from holdfast.ports import Clock, Decision, Ids
from holdfast.stores.cas import keys
from holdfast.stores.cas.dispatch import Dispatch, Parcel
from holdfast.stores.cas.documents import Document, Entry, Held, Recorded, Shelf, each
from holdfast.stores.cas.locks import Locks, Looked
from holdfast.stores.cas.revision import (
    Kept,
    Proposal,
    Step,
    Taking,
    new_markers,
    old_markers,
    play,
    revise,
)

ATTEMPTS = 10
BACKOFF_SECONDS = 0.1
SPILL_ITEMS = 64
SPILL_BYTES = 32 * 1024

Propose: TypeAlias = Callable[[Held, datetime], Awaitable[Proposal | None]]
Fits: TypeAlias = Callable[[Held, datetime], bool]


class Writer:
    """The one place that changes documents. `retries` counts the writes that others were faster with."""

    def __init__(
        self, shelf: Shelf, dispatch: Dispatch, locks: Locks, clock: Clock, ids: Ids
    ) -> None:
        self._shelf = shelf
        self._dispatch = dispatch
        self._locks = locks
        self._clock = clock
        self._ids = ids
        self._last_order = 0
        self.retries = 0

    async def settle(
        self,
        job_id: str,
        steps: Sequence[Step],
        parcel: Parcel,
        *,
        first: Held | None = None,
        fits: Fits | None = None,
    ) -> tuple[Decision, ...]:
        """Decide all steps and commit them in one write; nothing when the job does not fit.

        `first` is the document as the caller has just read it.
        """

        async def propose(held: Held, now: datetime) -> Proposal | None:
            return None if fits and not fits(held, now) else await self._decide(held, steps, now)

        proposal = await self.change(job_id, propose, parcel, first=first)
        return proposal.answers if proposal else ()

    async def change(
        self,
        job_id: str,
        propose: Propose,
        parcel: Parcel,
        *,
        first: Held | None = None,
    ) -> Proposal | None:
        """Write what is proposed for the document as it is; `Unavailable` after many conflicts."""
        # Taken before anything is awaited, so that jobs made by one call keep its order.
        order = self._order()
        for turn in range(ATTEMPTS):
            if turn > 1:
                wait = BACKOFF_SECONDS * 2 ** (turn - 2)
                await self._clock.sleep(wait * (1 + self._ids.chance()))
            held = first if first and not turn else await self._shelf.load(job_id)
            proposal = await propose(held, self._clock.now())
            if proposal is None or not proposal.writes(held):
                return proposal
            if await self._write(held, proposal, parcel, order):
                return proposal
            self.retries += 1
        raise Unavailable(f"Job {job_id} was changed by others {ATTEMPTS} times.", job_id=job_id)

    async def _decide(self, held: Held, steps: Sequence[Step], now: datetime) -> Proposal:
        looked: dict[str, Looked] = {}
        known: dict[str, Resource] = {}
        job = held.record
        if job is not None and job.leased and job.spec.lock is not None:
            # A leased job holds its lock: nothing to read, until somebody wants to take it again.
            known[job.spec.lock] = Resource(job.spec.lock, job.fencing_token, job.job_id)
        while True:
            played = play(job, steps, now, known)
            taken = played.taken
            wanted = played.missing or (taken.key if taken is not None else None)
            if wanted is None or wanted in looked:
                break
            looked[wanted] = await self._locks.look(wanted, held)
            known[wanted] = looked[wanted].resource
        return Proposal(
            record=played.record,
            answers=played.answers,
            events=await self.unknown(held, played.events),
            owed=played.owed,
            made=played.made,
            taking=Taking(looked[taken.key], taken) if taken is not None else None,
        )

    async def unknown(self, held: Held, events: Sequence[Event]) -> tuple[Event, ...]:
        """Those of the events that the job's log does not have; only ids of their own can repeat.

        An id leaves the outbox only after it was marked as done. So, looked up after the document
        was read, one that is neither in the outbox nor done was never committed.
        """
        document = held.document
        if document is None or all(event.given_id is None for event in events):
            return tuple(events)
        here = {entry.event.event_id for entry in document.outbox}
        doubtful = [
            event.event_id
            for event in events
            if event.given_id is not None and event.event_id not in here and document.spilled
        ]
        found = await each(lambda name: self._shelf.fetch(keys.recorded(name), Recorded), doubtful)
        done = {name for name, one in zip(doubtful, found, strict=True) if one and one[0].done}
        return tuple(e for e in events if e.given_id is None or e.event_id not in here | done)

    async def _write(self, held: Held, proposal: Proposal, parcel: Parcel, order: int) -> bool:
        if held.document is not None and held.indebted:
            await self._dispatch.pay(held.document)
        kept = await self._keep(held, proposal)
        nonce = self._ids.new()
        tag = parcel.tag(held.document.barred if held.document else ())
        document = revise(held, proposal, kept, parcel=tag, nonce=nonce, order=order)
        before: list[Callable[[], Awaitable[None]]] = [
            partial(self._shelf.mark, key) for key in new_markers(held.document, document)
        ]
        if proposal.events:
            before.append(partial(parcel.open, tag))
        await each(_call, before)
        failpoint("cas.markers_written")
        if not await self._land(held, document, proposal, parcel):
            # No other write will ever point to these. The index marker is the next try's, too.
            parcel.garbage += old_markers(document, held.document)
            return False
        if proposal.events:
            # With entries of others that may not be in the feed yet: a job's events come in order.
            parcel.entries += [entry for entry in document.outbox if entry.parcel]
        parcel.garbage += old_markers(held.document, document)
        return True

    def _order(self) -> int:
        """A place in the row that rises strictly, also while the clock stands still."""
        self._last_order = max(self._last_order + 1, keys.microseconds(self._clock.now()))
        return self._last_order

    async def _land(
        self, held: Held, document: Document, proposal: Proposal, parcel: Parcel
    ) -> bool:
        taking = proposal.taking
        if taking is not None:
            looked, taken = taking.looked, taking.taken
            if not await self._locks.take(looked, taken, held):
                return False
            failpoint("cas.lock_taken")
        own = _traces(document) - (_traces(held.document) if held.document else set())
        try:
            landed = await self._shelf.put(keys.state(held.job_id), document, held.version)
        except BaseException:
            parcel.landed = True
            raise
        failpoint("cas.document_put")
        if not landed:
            # A lost answer looks like a conflict. What only our write can have left tells them
            # apart, also when others have written over it since.
            found = (await self._shelf.load(held.job_id)).document
            landed = found is not None and bool(_traces(found) & own)
        parcel.landed |= landed
        return landed

    async def _keep(self, held: Held, proposal: Proposal) -> Kept:
        """The outbox without what the feed is known to have by now, and not too long."""
        document = held.document
        if document is None:
            return Kept()
        if not proposal.events:
            return Kept(document.outbox, document.spilled)
        parcels = {entry.parcel for entry in document.outbox if entry.parcel is not None}
        settled = {name for name in sorted(parcels) if await self._dispatch.settled(name)}
        entries = tuple(
            Entry(entry.event) if entry.parcel in settled else entry for entry in document.outbox
        )
        sent = tuple(takewhile(lambda entry: entry.parcel is None, entries))
        if len(sent) <= SPILL_ITEMS and len(msgspec.json.encode(sent)) <= SPILL_BYTES:
            return Kept(entries, document.spilled)
        await self._spill(held.job_id, [entry.event for entry in sent])
        return Kept(entries[len(sent) :], sent[-1].event.log_id or 0)

    async def _spill(self, job_id: str, events: Sequence[Event]) -> None:
        """Copy committed events into a segment; the next write may drop them from the outbox."""
        await each(self._mark_done, [event for event in events if event.given_id is not None])
        failpoint("cas.ids_marked_done")
        first, last = events[0].log_id or 0, events[-1].log_id or 0
        await self._shelf.create(keys.segment(job_id, first, last), events)
        failpoint("cas.spilled")

    async def _mark_done(self, event: Event) -> None:
        key = keys.recorded(event.event_id)
        while not await self._shelf.create(key, Recorded(event, done=True)):
            found = await self._shelf.fetch(key, Recorded)
            if found is None:
                continue
            if found[0].done or await self._shelf.put(key, replace(found[0], done=True), found[1]):
                return


async def _call(action: Callable[[], Awaitable[None]]) -> None:
    await action()


def _traces(document: Document) -> set[object]:
    """What a write leaves: its nonce, its markers, its claims, and its entries until the feed has
    them."""
    sent = {(e.parcel, e.event.log_id) for e in document.outbox if e.parcel is not None}
    markers = (key for key in (document.ready, document.due) if key)
    return {document.nonce, *sent, *markers, *document.claimed}
