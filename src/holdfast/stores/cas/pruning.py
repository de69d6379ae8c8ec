"""Pruning: whole jobs that ended long ago, and worker events that nobody reads any more."""

from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime

from msgspec.structs import replace

from holdfast.core.catalogue import EventClass, EventType
from holdfast.core.event import Event
from holdfast.failpoint import failpoint
from holdfast.ports import Pruned
from holdfast.stores.cas import keys
from holdfast.stores.cas.dispatch import Dispatch
from holdfast.stores.cas.documents import ClaimHint, Held, Segment, Shelf, each
from holdfast.stores.cas.feed import Feed
from holdfast.stores.cas.listing import Listing
from holdfast.stores.cas.locks import Locks
from holdfast.stores.cas.logs import Logs
from holdfast.stores.cas.revision import Proposal
from holdfast.stores.cas.writing import Writer


class Pruning:
    """Reads every record, every segment and the whole feed: run it rarely."""

    def __init__(
        self,
        shelf: Shelf,
        listing: Listing,
        logs: Logs,
        locks: Locks,
        feed: Feed,
        dispatch: Dispatch,
        writer: Writer,
    ) -> None:
        self._shelf = shelf
        self._listing = listing
        self._logs = logs
        self._locks = locks
        self._feed = feed
        self._dispatch = dispatch
        self._writer = writer

    async def prune(self, *, ended_before: datetime, output_before: datetime, limit: int) -> Pruned:
        gone: set[str] = set()
        events = 0

        def keep(event: Event) -> bool:
            return event.job_id not in gone and not _stale(event, output_before)

        async with aclosing(self._listing.walk()) as rows:
            async for key, held in rows:
                job = held.record
                if job is None:
                    continue
                if job.ended_at and job.ended_at < ended_before and len(gone) < limit:
                    removed = await self._remove(key, held)
                    if removed is not None:
                        gone.add(job.job_id)
                        events += removed
                else:
                    events += await self._thin(held, output_before)
        if events:
            await self._feed.prune(keep)
        return Pruned(len(gone), events)

    async def _remove(self, index_key: str, held: Held) -> int | None:
        """Delete a job and all that belongs to it, the document first: what a crash leaves behind
        is never a job without its history. None when the job was changed meanwhile."""
        job, version = held.record, held.version
        assert job is not None  # the caller has just seen it
        assert version is not None
        events = await self._logs.whole(held)
        await self._settle_debts(held, events)
        if job.spec.lock is not None:
            await self._locks.clear(job.spec.lock, job.job_id)
        if not await self._shelf.objects.delete(keys.state(job.job_id), version):
            return None
        failpoint("cas.document_deleted")
        segments = await self._shelf.segments(job.job_id, after=0)
        known = [keys.recorded(e.event_id) for e in events if e.given_id is not None]
        await each(self._shelf.discard, [*segments, *known])
        failpoint("cas.log_deleted")
        for event in events:
            if event.event_type == EventType.CLAIMED and event.op_id is not None:
                await self._forget_claim(event.op_id)
        await self._shelf.discard(index_key)
        failpoint("cas.job_pruned")
        return len(events)

    async def _settle_debts(self, held: Held, events: Sequence[Event]) -> None:
        """A job that made others goes when they are there. One that was made goes when its maker owes
        it no more: else it would be made again. It still is by a process that has read the debt and
        then sleeps until the job has ended and is pruned: keep jobs longer than a process can sleep."""
        if held.indebted and held.document is not None:
            await self._dispatch.pay(held.document)
        made_by = next((event.cause for event in events if event.offset == 1), None)
        if made_by is not None:
            maker, _, _ = made_by.rpartition("/")
            async with self._dispatch.parcel([maker]) as parcel:
                await self._writer.change(maker, _pay, parcel)

    async def _forget_claim(self, op_id: str) -> None:
        """Delete the hint of a claim once none of its jobs is left."""
        found = await self._shelf.fetch(keys.claim(op_id), ClaimHint)
        if found is None:
            return
        held = await self._shelf.load_many(found[0].jobs)
        if all(one.record is None for one in held):
            await self._shelf.objects.delete(keys.claim(op_id), found[1])

    async def _thin(self, held: Held, before: datetime) -> int:
        """Take old worker events out of a job's log; its numbers keep their gaps."""
        document = held.document
        assert document is not None  # it came from the index
        removed: set[int | None] = set()
        if document.spilled:
            for key in await self._shelf.segments(held.job_id, after=0):
                found = await self._shelf.fetch(key, Segment)
                if found is None:
                    continue
                kept = tuple(event for event in found[0] if not _stale(event, before))
                if len(kept) < len(found[0]) and await self._shelf.put(key, kept, found[1]):
                    removed |= {event.log_id for event in found[0] if _stale(event, before)}
        parcels = {e.parcel for e in document.outbox if e.parcel and _stale(e.event, before)}
        unsent = {name for name in sorted(parcels) if not await self._dispatch.settled(name)}
        outbox = tuple(
            e for e in document.outbox if e.parcel in unsent or not _stale(e.event, before)
        )
        if len(outbox) < len(document.outbox):
            thin = replace(
                document, outbox=outbox, serial=document.serial + 1, nonce=self._dispatch.ids.new()
            )
            if await self._shelf.put(keys.state(held.job_id), thin, held.version):
                removed |= {e.event.log_id for e in document.outbox} - {
                    e.event.log_id for e in outbox
                }
        failpoint("cas.log_thinned")
        return len(removed)


async def _pay(held: Held, _: datetime) -> Proposal | None:
    return Proposal(record=held.record, pay=True) if held.indebted else None


def _stale(event: Event, before: datetime) -> bool:
    return (
        event.event_class is EventClass.WORKER
        and event.received_at is not None
        and event.received_at < before
    )
