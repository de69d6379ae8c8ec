"""Dispatch: what was committed to a job's outbox goes to the feed, whoever dies on the way.

A parcel is the events of one call. Its pending object is written before the first commit and
deleted after the feed has the events, so that a repair finds whatever a crash has left behind.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Self, TypeAlias

from msgspec.structs import replace

from holdfast.core.errors import HoldfastError, Unavailable
from holdfast.failpoint import failpoint
from holdfast.ports import Clock, Ids
from holdfast.stores.cas import keys
from holdfast.stores.cas.documents import Document, Entry, Pending, Shelf, each
from holdfast.stores.cas.feed import Feed

REPAIR_AFTER = timedelta(seconds=10)
REPAIR_ITEMS = 1_000
REPAIR_ATTEMPTS = 10
BARRED_MAX = 16
REMEMBERED = 10_000


Pay: TypeAlias = Callable[[Document], Awaitable[None]]
"""How what a document owes to other jobs reaches these: facts about them, and jobs that it made."""


class Parcel:
    """The events of one call on their way. Leaving it in peace sends them.

    It is known by its tags: one, and another for each job on which a repair has barred the first.
    """

    def __init__(self, dispatch: "Dispatch", jobs: Iterable[str]) -> None:
        self.jobs = tuple(dict.fromkeys(jobs))
        self.entries: list[Entry] = []
        self.garbage: list[str] = []
        self.landed = False
        self.tags = [dispatch.ids.new()]
        self.opened: set[str] = set()
        self._dispatch = dispatch
        self._opening = asyncio.Lock()

    def tag(self, barred: Sequence[str]) -> str:
        """A tag under which events may be committed where these are barred."""
        for tag in self.tags:
            if tag not in barred:
                return tag
        self.tags.append(self._dispatch.ids.new())
        return self.tags[-1]

    async def open(self, tag: str) -> None:
        """Say where a repair has to look; before anything is committed."""
        async with self._opening:
            if tag not in self.opened:
                await self._dispatch.announce(tag, self.jobs)
                self.opened.add(tag)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                await self._dispatch.send(self)
        finally:
            self._dispatch.forget(self)


class Dispatch:
    """The parcels of this process, and the repair of those of others. The store gives it `pay`."""

    pay: Pay

    def __init__(self, shelf: Shelf, feed: Feed, clock: Clock, ids: Ids) -> None:
        self.ids = ids
        self._shelf = shelf
        self._feed = feed
        self._clock = clock
        self._under_way: set[str] = set()
        self._settled: dict[str, None] = {}
        self._repaired_at = clock.monotonic()

    def parcel(self, jobs: Iterable[str]) -> Parcel:
        return Parcel(self, jobs)

    async def announce(self, tag: str, jobs: tuple[str, ...]) -> None:
        self._under_way.add(tag)
        await self._shelf.create(keys.pending(tag), Pending(self._clock.now(), jobs))
        failpoint("cas.parcel_announced")

    async def send(self, parcel: Parcel) -> None:
        if parcel.entries:
            await self._feed.append(await self._unsent(parcel.entries, parcel.tags))
        failpoint("cas.parcel_sent")
        done = [keys.pending(tag) for tag in parcel.tags if tag in parcel.opened]
        await each(self._shelf.discard, [*done, *parcel.garbage])
        failpoint("cas.parcel_closed")
        self._remember(parcel.tags)

    def forget(self, parcel: Parcel) -> None:
        self._under_way.difference_update(parcel.tags)

    async def _unsent(self, entries: Sequence[Entry], tags: Sequence[str]) -> list[Entry]:
        """The entries under these tags, with those of others before them that the feed may lack.

        A job's events come in order, so whoever comes second sends what the first has not sent yet.
        If the first is still about to, they come twice: this is asked as late as possible.
        """
        others = sorted({e.parcel for e in entries if e.parcel is not None} - set(tags))
        settled = {tag for tag in others if await self.settled(tag)}
        return [entry for entry in entries if entry.parcel not in settled]

    async def settled(self, tag: str) -> bool:
        """Whether the feed has all events under a tag; False may be too cautious."""
        if tag in self._settled:
            return True
        if await self._shelf.objects.get(keys.pending(tag)) is not None:
            return False
        self._remember([tag])
        return True

    def _remember(self, tags: Sequence[str]) -> None:
        self._settled.update(dict.fromkeys(tags))
        while len(self._settled) > REMEMBERED:
            del self._settled[next(iter(self._settled))]

    async def repair(self) -> None:
        """Send what others have left behind. Who is only slow gets some time first: what both of us
        send comes twice."""
        names = await self._shelf.objects.list_keys(keys.PENDING, limit=REPAIR_ITEMS)
        await each(self._finish, [n for n in names if keys.tag_of(n) not in self._under_way])

    async def repair_now_and_then(self) -> None:
        """Repair if nobody here has for a while. What does not work now is left to whoever is next."""
        now = self._clock.monotonic()
        if now - self._repaired_at >= REPAIR_AFTER.total_seconds():
            self._repaired_at = now
            with suppress(HoldfastError):
                await self.repair()

    async def _finish(self, name: str) -> None:
        found = await self._shelf.fetch(name, Pending)
        if found is None or found[0].since + REPAIR_AFTER > self._clock.now():
            return
        (pending, version), tag = found, keys.tag_of(name)
        entries: list[Entry] = []
        for document in await each(lambda job_id: self._close(job_id, tag), pending.jobs):
            outbox = document.outbox
            await self.pay(document)
            until = max((n for n, e in enumerate(outbox, 1) if e.parcel == tag), default=0)
            entries += [entry for entry in outbox[:until] if entry.parcel is not None]
        await self._feed.append(await self._unsent(entries, [tag]))
        failpoint("cas.repair_sent")
        await self._shelf.objects.delete(name, version)
        self._remember([tag])

    async def _close(self, job_id: str, tag: str) -> Document:
        """A job's document with what was committed under the tag: nothing more will be.

        The writer may be slow, not dead. Where it has committed nothing yet, it finds itself barred,
        because its write is conditional on the document that says so.
        """
        for _ in range(REPAIR_ATTEMPTS):
            held = await self._shelf.load(job_id)
            document = held.document or Document(serial=0, nonce="")
            if tag in document.barred or any(e.parcel == tag for e in document.outbox):
                return document
            barred = replace(
                document,
                serial=document.serial + 1,
                nonce=self.ids.new(),
                barred=(*document.barred, tag)[-BARRED_MAX:],
            )
            if await self._shelf.put(keys.state(job_id), barred, held.version):
                failpoint("cas.repair_barred")
                return barred
        raise Unavailable(f"Job {job_id} changes too fast to be repaired.", job_id=job_id)
