"""The feed: the events of all jobs in one append-only row of objects, numbered without gaps."""

import asyncio
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from holdfast.core.event import Event
from holdfast.failpoint import failpoint
from holdfast.ports import EventPage, Ids
from holdfast.stores.cas import keys
from holdfast.stores.cas.documents import DocumentStore, FeedItem, FeedPage, OutboxEntry, each
from holdfast.stores.filters import cursor_number, invalid_cursor

PAGE_KEYS = 64
TAIL_KEYS = 1_000
REMEMBERED = 10_000


class Feed:
    """Appends by creating the next number. Number n exists only after n-1 did, so a reader that
    sees one has seen all before it."""

    def __init__(self, documents: DocumentStore, ids: Ids) -> None:
        self._documents = documents
        self._ids = ids
        self._next: int | None = None
        self._turn = asyncio.Lock()
        self._sent: dict[tuple[str | None, str], None] = {}

    async def append(self, entries: Sequence[OutboxEntry]) -> None:
        """Add the events, except those of the same batch that this process has already added."""
        async with self._turn:
            named = {(entry.tag, entry.event.event_id): entry.event for entry in entries}
            fresh = {name: event for name, event in named.items() if name not in self._sent}
            if not fresh:
                return
            items = (FeedItem(place, event) for place, event in enumerate(fresh.values()))
            await self._write(FeedPage(self._ids.new(), tuple(items)))
            failpoint("cas.feed_written")
            self._sent.update(dict.fromkeys(fresh))
            while len(self._sent) > REMEMBERED:
                del self._sent[next(iter(self._sent))]

    async def _write(self, page: FeedPage) -> None:
        number = await self._end() if self._next is None else self._next
        while not await self._documents.create(keys.feed(number), page):
            found = await self._documents.fetch(keys.feed(number), FeedPage)
            if found is not None and found[0].nonce == page.nonce:
                break
            number = await self._behind(number)
        self._next = number + 1

    async def _end(self) -> int:
        """Return the first free number, by a binary search of about 2 log2(n) listings: "is there any
        behind m?" is monotone also where pruning has left holes."""
        low, high = 0, 1
        while await self._any_behind(high):
            low, high = high, high * 2
        if low == 0 and not await self._any_behind(0):
            return 1
        while high - low > 1:
            middle = (low + high) // 2
            if await self._any_behind(middle):
                low = middle
            else:
                high = middle
        return high + 1

    async def _any_behind(self, number: int) -> bool:
        return bool(await self._names(number, 1))

    async def _behind(self, number: int) -> int:
        """Return the first free number after one that is in use."""
        while names := await self._names(number, TAIL_KEYS):
            number = keys.feed_number(names[-1])
        return number + 1

    async def _names(self, number: int, limit: int) -> list[str]:
        objects = self._documents.objects
        return await objects.list_keys(keys.FEED, after=keys.feed(number), limit=limit)

    async def read(self, *, after: str | None, limit: int) -> EventPage:
        number, place = _parse(after)
        events: list[Event] = []
        behind = number - 1
        while len(events) < limit:
            names = await self._names(behind, min(limit, PAGE_KEYS))
            for name, page in zip(names, await each(self._page, names), strict=True):
                behind = keys.feed_number(name)
                items = [i for i in page.items if behind > number or i.place >= place]
                for item in items[: limit - len(events)]:
                    events.append(item.event)
                    number, place = behind, item.place + 1
                if len(events) == limit:
                    break
            if len(names) < min(limit, PAGE_KEYS):
                break
        return EventPage(tuple(events), f"{number}.{place}")

    async def tail(self) -> str:
        return f"{await self._end()}.0"

    async def _page(self, name: str) -> FeedPage:
        found = await self._documents.fetch(name, FeedPage)
        return found[0] if found else FeedPage("", ())

    async def prune(self, keep: Callable[[Event], bool]) -> None:
        """Rewrite the objects without the events that are not kept. Reads the whole feed."""
        behind = 0
        while names := await self._names(behind, PAGE_KEYS):
            behind = keys.feed_number(names[-1])
            # The last object stays, even empty: its number must not be used again.
            last = not await self._any_behind(behind)
            for name in names:
                await self._thin(name, keep, stays=last and name == names[-1])
                failpoint("cas.feed_thinned")

    async def _thin(self, name: str, keep: Callable[[Event], bool], *, stays: bool) -> None:
        found = await self._documents.fetch(name, FeedPage)
        if found is None:
            return
        page, version = found
        kept = tuple(item for item in page.items if keep(item.event))
        if not kept and not stays:
            await self._documents.objects.delete(name, version)
        elif len(kept) < len(page.items):
            await self._documents.put(name, replace(page, items=kept), version)


def _parse(cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return 1, 0
    number, dot, place = cursor.partition(".")
    if not dot:
        raise invalid_cursor(cursor)
    return cursor_number(number), cursor_number(place)
