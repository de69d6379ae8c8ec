"""A job's log: the events in its segments, then those still in the outbox of its document."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import msgspec

from holdfast.core.catalogue import EventClass
from holdfast.core.event import Event
from holdfast.ports import EventPage, HistoryPage
from holdfast.stores.cas.documents import DocumentStore, LoadedDocument, Segment, each
from holdfast.stores.filters import HistoryBuilder, cursor_number, place_of


class LogDocuments:
    """Reads logs. The document is read first: events that have left its outbox by then are in a segment."""

    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents

    async def read(self, job_id: str, *, after: str | None, limit: int, output: bool) -> EventPage:
        last, events = 0 if after is None else cursor_number(after), list[Event]()
        async with aclosing(self._events(await self._documents.load(job_id), last)) as found:
            async for event in found:
                last = event.log_id or last
                if output or event.event_class is not EventClass.WORKER:
                    events.append(event)
                if len(events) == limit:
                    break
        return EventPage(tuple(events), str(last))

    async def whole(self, loaded: LoadedDocument) -> list[Event]:
        return [event async for event in self._events(loaded, 0)]

    async def histories(self, job_ids: Sequence[str]) -> list[list[Event]]:
        return await each(self._history, job_ids)

    async def _history(self, job_id: str) -> list[Event]:
        events = await self.whole(await self._documents.load(job_id))
        return sorted((e for e in events if e.offset is not None), key=lambda e: e.offset or 0)

    async def facts(self, job_ids: Sequence[str], event_type: str) -> list[list[Event]]:
        async def of_job(job_id: str) -> list[Event]:
            events = await self.whole(await self._documents.load(job_id))
            return [e for e in events if e.event_type == event_type and e.given_id is not None]

        return await each(of_job, job_ids)

    async def history(self, job_id: str, *, after: str | None, limit: int) -> HistoryPage:
        """Read by log number, which rises with the offset: no segment of an earlier page is read again."""
        start, page = cursor_number(after) if after is not None else 0, HistoryBuilder(limit)
        async with aclosing(self._events(await self._documents.load(job_id), start)) as found:
            async for event in found:
                size = len(msgspec.json.encode(event))
                if event.offset is not None and not page.take(event.log_id, event, size):
                    return page.cut()
        return page.end()

    async def published(self, job_id: str, token: int, *, first: int) -> list[int]:
        """Read from the newest segment back, until one begins before `first`."""
        loaded = await self._documents.load(job_id)
        if loaded.document is None:
            return []
        known = set[int]()
        events: Sequence[Event] = [entry.event for entry in loaded.document.outbox]
        segments = list(await self._documents.segments(job_id, after=0))
        while True:
            sequences = [e.sequence or 0 for e in events if e.fencing_token == token and e.sequence]
            known.update(sequence for sequence in sequences if sequence >= first)
            if not segments or (sequences and sequences[0] <= first):
                return sorted(known)
            found = await self._documents.fetch(segments.pop(), Segment)
            events = found[0] if found else ()

    async def published_before(self, job_id: str, before: tuple[int, int], *, limit: int) -> list[Event]:
        """Read from the newest segment back, until there are enough."""
        loaded = await self._documents.load(job_id)
        if loaded.document is None:
            return []
        found: dict[tuple[int, int], Event] = {}  # segments may overlap
        events: Sequence[Event] = [entry.event for entry in loaded.document.outbox]
        segments = list(await self._documents.segments(job_id, after=0))
        while True:
            found |= {place_of(e): e for e in events if e.sequence is not None and place_of(e) < before}
            if not segments or len(found) >= limit:
                return [found[place] for place in sorted(found, reverse=True)][:limit]
            segment = await self._documents.fetch(segments.pop(), Segment)
            events = segment[0] if segment else ()

    async def _events(self, loaded: LoadedDocument, last: int) -> AsyncGenerator[Event, None]:
        """Yield the events behind log number `last`, each once: segments may overlap."""
        document = loaded.document
        if document is None:
            return
        if last < document.spilled:
            for key in await self._documents.segments(loaded.job_id, after=last):
                found = await self._documents.fetch(key, Segment)
                for event in found[0] if found else ():
                    if (number := event.log_id or 0) > last:
                        last = number
                        yield event
        for entry in document.outbox:
            if (number := entry.event.log_id or 0) > last:
                last = number
                yield entry.event
