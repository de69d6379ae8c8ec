"""Readers: streams that follow a log. Each reads by its own cursor, at its own pace; what many read at
the same place is read once, and nobody holds more than a page."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TypeAlias

from msgspec import Struct

from holdfast.core.access import Principal
from holdfast.core.errors import Denied, Exhausted, HoldfastError, NotFound
from holdfast.core.job import Job
from holdfast.ports import Clock, Registry, Slice
from holdfast.server.keyring import Keyring
from holdfast.server.limits import (
    PAGE_BYTES,
    PAGE_EVENTS_MAX,
    PAGES_KEPT_BYTES,
    PAGES_KEPT_SECONDS,
    STREAMS_MAX,
    STREAMS_PER_JOB_MAX,
    STREAMS_PER_PRINCIPAL_MAX,
)
from holdfast.server.sizes import event_bytes

LOOK_SECONDS = 1.0
PAUSE_SECONDS = 0.01
FIRST_EVENTS = 16
READS_MAX = 4
"""Pages read at once: what comes may be too large for a page, and is read again as less."""


class Readers:
    """All streams of this server. They end when their key does, and when the server stops."""

    def __init__(
        self, registry: Registry, keyring: Keyring, clock: Clock, stopping: asyncio.Event
    ) -> None:
        self.stopping = stopping
        self._registry = registry
        self._keyring = keyring
        self._clock = clock
        self._pages = _Pages(registry, clock)
        self._seats: dict[str | None, list[asyncio.Event]] = {}
        self._known: dict[str, tuple[int, int]] = {}
        self._streams: Counter[str | None] = Counter()
        self._per_principal: Counter[str] = Counter()
        self._behind: dict[asyncio.Event, datetime] = {}
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def seat(
        self, who: Principal, job_id: str | None, *, counted: bool = True
    ) -> Iterator[asyncio.Event]:
        """A place among the readers of a job (or of all): it is set when there may be more to read."""
        if counted:
            self._count(who, job_id)
        stirred = asyncio.Event()
        self._seats.setdefault(job_id, []).append(stirred)
        self._streams[job_id] += counted
        self._per_principal[who.name] += counted
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            yield stirred
        finally:
            self._seats[job_id].remove(stirred)
            self._behind.pop(stirred, None)
            self._streams[job_id] -= counted
            self._per_principal[who.name] -= counted
            if not self._seats[job_id]:
                del self._seats[job_id], self._streams[job_id]
                self._known.pop(job_id or "", None)

    def _count(self, who: Principal, job_id: str | None) -> None:
        if job_id is not None and self._streams[job_id] >= STREAMS_PER_JOB_MAX:
            raise Exhausted(f"Job {job_id} has {STREAMS_PER_JOB_MAX} streams already.")
        if self._streams.total() >= STREAMS_MAX:
            raise Exhausted(f"{STREAMS_MAX} streams are open here already; try another server.")
        if who.key_id is not None and self._per_principal[who.name] >= STREAMS_PER_PRINCIPAL_MAX:
            raise Exhausted(f"{who.name} has {STREAMS_PER_PRINCIPAL_MAX} streams already.")

    async def follow(
        self, who: Principal, job: Job | None, after: str | None, stirred: asyncio.Event
    ) -> AsyncGenerator[Slice, None]:
        """Slices of the log from the cursor on, for ever. An empty one says that this is all so far: the
        reader decides whether that is the end; asked for more, it waits."""
        job_id, born = (job.job_id, job.created_at) if job else (None, None)
        cursor, limit = after, FIRST_EVENTS
        while True:
            stirred.clear()
            if not await self._keyring.still(who):
                raise Denied("The key of this stream has been revoked or has expired.")
            try:
                page = await self._pages.read((job_id, born, cursor), limit)
            except NotFound:  # it was there, and is forgotten: that is its end
                return
            cursor, limit = page.slice.cursor, page.next_limit
            if job is None:
                self._place(stirred, page.slice)
            yield page.slice
            if not page.slice.events:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await stirred.wait()

    def open(self) -> dict[str, int]:
        """How many streams there are now: of the feed, and of single jobs."""
        feed = self._streams[None]
        return {"feed": feed, "job": self._streams.total() - feed}

    def lag(self, now: datetime) -> float:
        """How old the oldest event is that a reader of the feed is being sent; 0 when all have read all."""
        return max(
            (max(0.0, (now - at).total_seconds()) for at in self._behind.values()), default=0
        )

    def _place(self, stirred: asyncio.Event, read: Slice) -> None:
        if read.events:
            first = read.events[0]
            self._behind[stirred] = first.received_at or first.occurred_at
        else:
            self._behind.pop(stirred, None)

    def stop(self) -> None:
        """Let every stream see that the server stops."""
        for stirred in [one for seats in self._seats.values() for one in seats]:
            stirred.set()

    async def _look(self) -> None:
        """See which of the jobs that are read have changed, in one look for all of them."""
        while self._seats and not self.stopping.is_set():
            mark, began = self._registry.mark(), self._clock.monotonic()
            try:
                await self._stir()
                took = self._clock.monotonic() - began
                await self._registry.changed(since=mark, timeout=LOOK_SECONDS)
            except HoldfastError:  # each stream finds out for itself
                took = LOOK_SECONDS
            await self._clock.sleep(max(PAUSE_SECONDS, 4 * took))

    async def _stir(self) -> None:
        ids = [job_id for job_id in self._seats if job_id is not None]
        for start in range(0, len(ids), 100):
            some = ids[start : start + 100]
            for job_id, job in zip(some, await self._registry.get_many(some), strict=True):
                now = (job.version, job.published) if job else (-1, -1)
                if self._known.get(job_id) != now and job_id in self._seats:
                    self._known[job_id] = now
                    self._set(job_id)
        self._set(None)

    def _set(self, job_id: str | None) -> None:
        for stirred in self._seats.get(job_id, ()):
            stirred.set()


class _Pages:
    """Pages that were just read, for whoever comes to the same place; a bounded number of bytes, and of
    seconds: what is pruned is soon gone from here, too."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._kept: OrderedDict[_Place, _Page] = OrderedDict()
        self._bytes = 0
        self._reading: dict[_Place, asyncio.Task[_Page]] = {}
        self._turns = asyncio.Semaphore(READS_MAX)

    async def read(self, place: "_Place", limit: int) -> "_Page":
        self._forget_old()
        if (kept := self._kept.get(place)) is not None:
            return kept
        reading = self._reading.get(place)
        if reading is None:
            reading = asyncio.create_task(self._read(place, limit))
            self._reading[place] = reading
            reading.add_done_callback(lambda _: self._reading.pop(place, None))
        return await asyncio.shield(reading)

    def _forget_old(self) -> None:
        before = self._clock.monotonic() - PAGES_KEPT_SECONDS
        while self._kept:
            oldest = next(iter(self._kept.values()))
            if oldest.read_at > before and self._bytes <= PAGES_KEPT_BYTES:
                return
            self._bytes -= self._kept.popitem(last=False)[1].bytes

    async def _read(self, place: "_Place", limit: int) -> "_Page":
        async with self._turns:
            page = await self._fetch(place, limit)
            while limit > 1 and page.bytes > PAGE_BYTES:
                limit = page.next_limit
                page = await self._fetch(place, limit)
        if page.slice.events:
            self._kept[place] = page
            self._bytes += page.bytes
            self._forget_old()
        return page

    async def _fetch(self, place: "_Place", limit: int) -> "_Page":
        job_id, _, after = place
        read_at = self._clock.monotonic()
        if job_id is None:
            found = await self._registry.feed(after=after, limit=limit)
        else:
            found = await self._registry.log(job_id, after=after, limit=limit)
        size = sum(map(event_bytes, found.events))
        fitting = limit * PAGE_BYTES // size if size else limit
        return _Page(found, size, max(1, min(PAGE_EVENTS_MAX, limit * 2, fitting)), read_at)


_Place: TypeAlias = tuple[str | None, datetime | None, str | None]
"""The job, when it was made (an id may be used again), and the cursor."""


class _Page(Struct, frozen=True):
    """What was read at a place, and how much to read next, so that a page stays small."""

    slice: Slice
    bytes: int
    next_limit: int
    read_at: float
