"""Recording: events with ids of their own, each once in the whole store."""

from collections.abc import Sequence
from datetime import datetime

from holdfast.core.event import Event
from holdfast.failpoint import failpoint
from holdfast.stores.cas import keys
from holdfast.stores.cas.dispatch import Dispatch, Parcel
from holdfast.stores.cas.documents import Held, Recorded, Shelf, each
from holdfast.stores.cas.revision import Proposal
from holdfast.stores.cas.writing import Writer


class Recording:
    """The object under an event's id says whose it is; the document of its job commits it.

    An event about no job has a document of its own, without a record.
    """

    def __init__(self, shelf: Shelf, writer: Writer, dispatch: Dispatch) -> None:
        self._shelf = shelf
        self._writer = writer
        self._dispatch = dispatch

    async def record(self, events: Sequence[Event], parcels: list[Parcel]) -> int:
        """Append the events that are not known yet; answers how many."""
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
        async with self._dispatch.parcel(homes) as parcel:
            parcels.append(parcel)
            new = await each(lambda home: self._append(home, homes[home], parcel), homes)
            places = {event_id: place for place, event_id in enumerate(named)}
            parcel.entries.sort(key=lambda entry: places.get(entry.event.event_id, -1))
        return sum(new)

    async def _register(self, event: Event) -> bool:
        """Whether the event may still have to be committed.

        One that is known already may belong to somebody who died before the commit. Then it is
        ours to commit, and its document will tell.
        """
        key = keys.recorded(event.event_id)
        if await self._shelf.create(key, Recorded(event)):
            return True
        found = await self._shelf.fetch(key, Recorded)
        return found is not None and not found[0].done and _home(found[0].event) == _home(event)

    async def _append(self, home: str, events: Sequence[Event], parcel: Parcel) -> int:
        async def propose(held: Held, now: datetime) -> Proposal:
            return Proposal(record=held.record, events=await self._writer.unknown(held, events))

        proposal = await self._writer.change(home, propose, parcel)
        return len(proposal.events) if proposal else 0


def _home(event: Event) -> str:
    return event.job_id if event.job_id is not None else keys.home(event.event_id)
