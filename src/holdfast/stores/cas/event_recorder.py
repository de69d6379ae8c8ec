"""The event recorder: events with ids of their own, each recorded once in the whole store."""

from collections.abc import Sequence
from datetime import datetime

from holdfast.core.event import Event
from holdfast.failpoint import failpoint
from holdfast.stores.cas import keys
from holdfast.stores.cas.documents import DocumentStore, LoadedDocument, Recorded, each
from holdfast.stores.cas.outbox import OutboxBatch, OutboxRelay
from holdfast.stores.cas.revision import Proposal
from holdfast.stores.cas.writer import DocumentWriter


class EventRecorder:
    """Records events. The object under an event's id names its job; the document of that job commits it.

    An event about no job has a document of its own, without a record.
    """

    def __init__(self, documents: DocumentStore, writer: DocumentWriter, relay: OutboxRelay) -> None:
        self._documents = documents
        self._writer = writer
        self._relay = relay

    async def record(self, events: Sequence[Event], batches: list[OutboxBatch]) -> int:
        """Append the events that are not known yet; return how many."""
        named: dict[str, Event] = {}
        for event in events:
            named.setdefault(event.event_id, event)
        ours = await each(self._register, named.values())
        failpoint("cas.ids_registered")
        homes: dict[str, list[Event]] = {}
        for event, is_ours in zip(named.values(), ours, strict=True):
            if is_ours:
                homes.setdefault(_home(event), []).append(event)
        if not homes:
            return 0
        async with self._relay.batch(homes) as batch:
            batches.append(batch)
            new = await each(lambda home: self._append(home, homes[home], batch), homes)
            places = {event_id: place for place, event_id in enumerate(named)}
            batch.entries.sort(key=lambda entry: places.get(entry.event.event_id, -1))
        return sum(new)

    async def _register(self, event: Event) -> bool:
        """Register the id; return whether the event may still have to be committed.

        An id may have been registered by a process that died before the commit. Then this call commits the
        event, unless the document has it already.
        """
        key = keys.recorded(event.event_id)
        if await self._documents.create(key, Recorded(event)):
            return True
        found = await self._documents.fetch(key, Recorded)
        return found is not None and not found[0].done and _home(found[0].event) == _home(event)

    async def _append(self, home: str, events: Sequence[Event], batch: OutboxBatch) -> int:
        async def propose(loaded: LoadedDocument, now: datetime) -> Proposal:
            return Proposal(record=loaded.record, events=await self._writer.unknown(loaded, events))

        proposal = await self._writer.change(home, propose, batch)
        return len(proposal.events) if proposal else 0


def _home(event: Event) -> str:
    return event.job_id if event.job_id is not None else keys.home(event.event_id)
