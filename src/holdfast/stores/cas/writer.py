"""The writer of documents: read, decide, compare and swap; decide again after a conflict."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import takewhile
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from holdfast.core.errors import Unavailable
from holdfast.core.event import Event
from holdfast.core.job import ResourceLock
from holdfast.failpoint import failpoint
from holdfast.ports import Clock, Decision, Ids
from holdfast.stores.cas import keys
from holdfast.stores.cas.documents import (
    Document,
    DocumentStore,
    LoadedDocument,
    OutboxEntry,
    Recorded,
    each,
)
from holdfast.stores.cas.locks import LockDocuments, LockState
from holdfast.stores.cas.outbox import OutboxBatch, OutboxRelay
from holdfast.stores.cas.revision import (
    DecidedStep,
    LockToTake,
    Proposal,
    RemainingOutbox,
    decide_steps,
    new_markers,
    old_markers,
    revise,
)

ATTEMPTS = 10
BACKOFF_SECONDS = 0.1
SPILL_ITEMS = 64
SPILL_BYTES = 32 * 1024

Propose: TypeAlias = Callable[[LoadedDocument, datetime], Awaitable[Proposal | None]]
Fits: TypeAlias = Callable[[LoadedDocument, datetime], bool]


class DocumentWriter:
    """The one place that changes documents. `retries` counts the writes that failed by a conflict."""

    def __init__(
        self,
        documents: DocumentStore,
        relay: OutboxRelay,
        locks: LockDocuments,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._documents = documents
        self._relay = relay
        self._locks = locks
        self._clock = clock
        self._ids = ids
        self._last_order = 0
        self.retries = 0

    async def commit(
        self,
        job_id: str,
        steps: Sequence[DecidedStep],
        batch: OutboxBatch,
        *,
        first: LoadedDocument | None = None,
        fits: Fits | None = None,
    ) -> tuple[Decision, ...]:
        """Decide all steps and commit them in one write; do nothing when the job does not fit.

        `first` is the document as the caller has just read it.
        """

        async def propose(loaded: LoadedDocument, now: datetime) -> Proposal | None:
            return None if fits and not fits(loaded, now) else await self._decide(loaded, steps, now)

        proposal = await self.change(job_id, propose, batch, first=first)
        return proposal.answers if proposal else ()

    async def change(
        self,
        job_id: str,
        propose: Propose,
        batch: OutboxBatch,
        *,
        first: LoadedDocument | None = None,
    ) -> Proposal | None:
        """Write what is proposed for the document as it is; raise `Unavailable` after many conflicts."""
        # Taken before anything is awaited, so that jobs made by one call keep its order.
        order = self._order()
        for turn in range(ATTEMPTS):
            if turn > 1:
                wait = BACKOFF_SECONDS * 2 ** (turn - 2)
                await self._clock.sleep(wait * (1 + self._ids.chance()))
            loaded = first if first and not turn else await self._documents.load(job_id)
            proposal = await propose(loaded, self._clock.now())
            if proposal is None or not proposal.writes(loaded):
                return proposal
            if await self._write(loaded, proposal, batch, order):
                return proposal
            self.retries += 1
        raise Unavailable(f"Job {job_id} was changed by others {ATTEMPTS} times.", job_id=job_id)

    async def _decide(self, loaded: LoadedDocument, steps: Sequence[DecidedStep], now: datetime) -> Proposal:
        states: dict[str, LockState] = {}
        known: dict[str, ResourceLock] = {}
        job = loaded.record
        if job is not None and job.leased and job.spec.lock is not None:
            # A leased job holds its lock: there is nothing to read, unless a decision takes it again.
            known[job.spec.lock] = ResourceLock(job.spec.lock, job.fencing_token, job.job_id)
        while True:
            decided = decide_steps(job, steps, now, known)
            taken = decided.taken
            wanted = decided.missing or (taken.key if taken is not None else None)
            if wanted is None or wanted in states:
                break
            states[wanted] = await self._locks.read(wanted, loaded)
            known[wanted] = states[wanted].resource
        return Proposal(
            record=decided.record,
            answers=decided.answers,
            events=await self.unknown(loaded, decided.events),
            pending_facts=decided.pending_facts,
            made=decided.made,
            taking=LockToTake(states[taken.key], taken) if taken is not None else None,
        )

    async def unknown(self, loaded: LoadedDocument, events: Sequence[Event]) -> tuple[Event, ...]:
        """Return the events that the job's log does not have; only events with ids of their own can repeat.

        An id leaves the outbox only after it was marked as done. So an id that is read after the document,
        and is neither in the outbox nor done, was never committed.
        """
        document = loaded.document
        if document is None or all(event.given_id is None for event in events):
            return tuple(events)
        here = {entry.event.event_id for entry in document.outbox}
        doubtful = [
            event.event_id
            for event in events
            if event.given_id is not None and event.event_id not in here and document.spilled
        ]
        found = await each(lambda name: self._documents.fetch(keys.recorded(name), Recorded), doubtful)
        done = {name for name, one in zip(doubtful, found, strict=True) if one and one[0].done}
        return tuple(e for e in events if e.given_id is None or e.event_id not in here | done)

    async def _write(
        self, loaded: LoadedDocument, proposal: Proposal, batch: OutboxBatch, order: int
    ) -> bool:
        if loaded.document is not None and loaded.has_pending:
            await self._relay.deliver_pending(loaded.document)
        kept = await self._keep(loaded, proposal)
        nonce = self._ids.new()
        tag = batch.tag(loaded.document.closed_tags if loaded.document else ())
        document = revise(loaded, proposal, kept, tag=tag, nonce=nonce, order=order)
        before: list[Callable[[], Awaitable[None]]] = [
            partial(self._documents.mark, key) for key in new_markers(loaded.document, document)
        ]
        if proposal.events:
            before.append(partial(batch.open, tag))
        await each(_call, before)
        failpoint("cas.markers_written")
        if not await self._land(loaded, document, proposal, batch):
            # No other write will ever point to these. The index marker is used by the next try, too.
            batch.garbage += old_markers(document, loaded.document)
            return False
        if proposal.events:
            # With entries of other batches that may not be in the feed yet: a job's events come in order.
            batch.entries += [entry for entry in document.outbox if entry.tag]
        batch.garbage += old_markers(loaded.document, document)
        return True

    def _order(self) -> int:
        """Return the place of a new job in creation order; it rises even while the clock stands still."""
        self._last_order = max(self._last_order + 1, keys.microseconds(self._clock.now()))
        return self._last_order

    async def _land(
        self, loaded: LoadedDocument, document: Document, proposal: Proposal, batch: OutboxBatch
    ) -> bool:
        taking = proposal.taking
        if taking is not None:
            state, taken = taking.state, taking.taken
            if not await self._locks.take(state, taken, loaded):
                return False
            failpoint("cas.lock_taken")
        own = _traces(document) - (_traces(loaded.document) if loaded.document else set())
        try:
            landed = await self._documents.put(keys.state(loaded.job_id), document, loaded.version)
        except BaseException:
            batch.landed = True
            raise
        failpoint("cas.document_put")
        if not landed:
            # A lost response looks like a conflict. Traces that only our write can have left tell them
            # apart, even when other processes have written over it since.
            found = (await self._documents.load(loaded.job_id)).document
            landed = found is not None and bool(_traces(found) & own)
        batch.landed |= landed
        return landed

    async def _keep(self, loaded: LoadedDocument, proposal: Proposal) -> RemainingOutbox:
        """Return what stays in the outbox: the tags of delivered entries are removed, and when there are
        many delivered entries they are moved to a segment."""
        document = loaded.document
        if document is None:
            return RemainingOutbox()
        if not proposal.events:
            return RemainingOutbox(document.outbox, document.spilled)
        tags = {entry.tag for entry in document.outbox if entry.tag is not None}
        delivered = {name for name in sorted(tags) if await self._relay.is_delivered(name)}
        entries = tuple(
            OutboxEntry(entry.event) if entry.tag in delivered else entry for entry in document.outbox
        )
        sent = tuple(takewhile(lambda entry: entry.tag is None, entries))
        if len(sent) <= SPILL_ITEMS and len(msgspec.json.encode(sent)) <= SPILL_BYTES:
            return RemainingOutbox(entries, document.spilled)
        await self._spill(loaded.job_id, [entry.event for entry in sent])
        return RemainingOutbox(entries[len(sent) :], sent[-1].event.log_id or 0)

    async def _spill(self, job_id: str, events: Sequence[Event]) -> None:
        """Copy committed events into a segment; then the write may drop them from the outbox."""
        await each(self._mark_done, [event for event in events if event.given_id is not None])
        failpoint("cas.ids_marked_done")
        first, last = events[0].log_id or 0, events[-1].log_id or 0
        await self._documents.create(keys.segment(job_id, first, last), events)
        failpoint("cas.spilled")

    async def _mark_done(self, event: Event) -> None:
        key = keys.recorded(event.event_id)
        while not await self._documents.create(key, Recorded(event, done=True)):
            found = await self._documents.fetch(key, Recorded)
            if found is None:
                continue
            if found[0].done or await self._documents.put(key, replace(found[0], done=True), found[1]):
                return


async def _call(action: Callable[[], Awaitable[None]]) -> None:
    await action()


def _traces(document: Document) -> set[object]:
    """Return what a write leaves: its nonce, markers, claims, and its entries until the feed has them."""
    sent = {(e.tag, e.event.log_id) for e in document.outbox if e.tag is not None}
    markers = (key for key in (document.ready, document.due) if key)
    return {document.nonce, *sent, *markers, *document.claimed}
