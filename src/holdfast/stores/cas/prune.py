"""Prune: whole jobs that ended long ago, and old worker output."""

from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime

from msgspec.structs import replace

from holdfast.core.catalogue import EventType
from holdfast.core.event import Event
from holdfast.failpoint import failpoint
from holdfast.ports import PruneResult
from holdfast.stores.cas import keys
from holdfast.stores.cas.documents import ClaimHint, DocumentStore, LoadedDocument, Segment, each
from holdfast.stores.cas.feed import Feed
from holdfast.stores.cas.job_index import JobIndex
from holdfast.stores.cas.locks import LockDocuments
from holdfast.stores.cas.logs import LogDocuments
from holdfast.stores.cas.outbox import OutboxRelay
from holdfast.stores.cas.revision import Proposal
from holdfast.stores.cas.writer import DocumentWriter
from holdfast.stores.filters import is_stale


class Pruner:
    """Reads every record, every segment and the whole feed: run it rarely."""

    def __init__(
        self,
        documents: DocumentStore,
        index: JobIndex,
        logs: LogDocuments,
        locks: LockDocuments,
        feed: Feed,
        relay: OutboxRelay,
        writer: DocumentWriter,
    ) -> None:
        self._documents = documents
        self._index = index
        self._logs = logs
        self._locks = locks
        self._feed = feed
        self._relay = relay
        self._writer = writer

    async def prune(self, *, ended_before: datetime, output_before: datetime, limit: int) -> PruneResult:
        gone: set[str] = set()
        events = 0

        def keep(event: Event) -> bool:
            return event.job_id not in gone and not is_stale(event, output_before)

        async with aclosing(self._index.walk()) as rows:
            async for key, loaded in rows:
                job = loaded.record
                if job is None:
                    continue
                if job.ended_at and job.ended_at < ended_before and len(gone) < limit:
                    removed = await self._remove(key, loaded)
                    if removed is not None:
                        gone.add(job.job_id)
                        events += removed
                else:
                    events += await self._thin(loaded, output_before)
        if events:
            await self._feed.prune(keep)
        return PruneResult(len(gone), events)

    async def count(self, *, ended_before: datetime, output_before: datetime) -> PruneResult:
        jobs = events = 0
        async with aclosing(self._index.walk()) as rows:
            async for _, loaded in rows:
                job = loaded.record
                if job is not None and job.ended_at and job.ended_at < ended_before:
                    jobs += 1
                elif job is not None:
                    events += sum(is_stale(one, output_before) for one in await self._logs.whole(loaded))
        return PruneResult(jobs, events)

    async def _remove(self, index_key: str, loaded: LoadedDocument) -> int | None:
        """Delete a job and all that belongs to it, the document first: a crash never leaves a job without
        its history. Return the number of its events; None when the job was changed meanwhile."""
        job, version = loaded.record, loaded.version
        assert job is not None  # the caller has just seen it
        assert version is not None
        events = await self._logs.whole(loaded)
        await self._deliver_pending(loaded, events)
        if job.spec.lock is not None:
            await self._locks.clear(job.spec.lock, job.job_id)
        if not await self._documents.objects.delete(keys.state(job.job_id), version):
            return None
        failpoint("cas.document_deleted")
        segments = await self._documents.segments(job.job_id, after=0)
        known = [keys.recorded(e.event_id) for e in events if e.given_id is not None]
        await each(self._documents.discard, [*segments, *known])
        failpoint("cas.log_deleted")
        for event in events:
            if event.event_type == EventType.CLAIMED and event.op_id is not None:
                await self._forget_claim(event.op_id)
        await self._documents.discard(index_key)
        failpoint("cas.job_pruned")
        return len(events)

    async def _deliver_pending(self, loaded: LoadedDocument, events: Sequence[Event]) -> None:
        """Make the jobs that this job made, and clear it from the pending jobs of its own maker: otherwise
        it would be made again. That still happens when a process has read the maker's document and then
        sleeps until this job has ended and is pruned: keep jobs longer than a process can sleep."""
        if loaded.has_pending and loaded.document is not None:
            await self._relay.deliver_pending(loaded.document)
        made_by = next((event.cause for event in events if event.offset == 1), None)
        if made_by is not None:
            maker, _, _ = made_by.rpartition("/")
            async with self._relay.batch([maker]) as batch:
                await self._writer.change(maker, _propose_clearing, batch)

    async def _forget_claim(self, op_id: str) -> None:
        """Delete the hint of a claim once none of its jobs is left."""
        found = await self._documents.fetch(keys.claim(op_id), ClaimHint)
        if found is None:
            return
        loaded = await self._documents.load_many(found[0].jobs)
        if all(one.record is None for one in loaded):
            await self._documents.objects.delete(keys.claim(op_id), found[1])

    async def _thin(self, loaded: LoadedDocument, before: datetime) -> int:
        """Remove old worker events from a job's log, which leaves gaps in its numbers; return how many."""
        document = loaded.document
        assert document is not None  # it came from the index
        removed: set[int | None] = set()
        if document.spilled:
            for key in await self._documents.segments(loaded.job_id, after=0):
                found = await self._documents.fetch(key, Segment)
                if found is None:
                    continue
                kept = tuple(event for event in found[0] if not is_stale(event, before))
                if len(kept) < len(found[0]) and await self._documents.put(key, kept, found[1]):
                    removed |= {event.log_id for event in found[0] if is_stale(event, before)}
        tags = {e.tag for e in document.outbox if e.tag and is_stale(e.event, before)}
        unsent = {name for name in sorted(tags) if not await self._relay.is_delivered(name)}
        outbox = tuple(e for e in document.outbox if e.tag in unsent or not is_stale(e.event, before))
        if len(outbox) < len(document.outbox):
            thin = replace(document, outbox=outbox, serial=document.serial + 1, nonce=self._relay.ids.new())
            if await self._documents.put(keys.state(loaded.job_id), thin, loaded.version):
                removed |= {e.event.log_id for e in document.outbox} - {e.event.log_id for e in outbox}
        failpoint("cas.log_thinned")
        return len(removed)


async def _propose_clearing(loaded: LoadedDocument, _: datetime) -> Proposal | None:
    return Proposal(record=loaded.record, clear_pending=True) if loaded.has_pending else None
