"""Event streams: clients that follow a log. Each reads by its own cursor, at its own pace; a page that many
read at the same cursor is read once from the store, and no stream holds more than a page."""

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
from holdfast.core.limits import slices
from holdfast.ports import Clock, EventPage, Registry
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

POLL_SECONDS = 1.0
PAUSE_SECONDS = 0.01
FIRST_EVENTS = 16
READS_MAX = 4
"""Pages read at once: events may be too large for a page, which is then read again with fewer."""


class EventStreams:
    """All event streams of this server. A stream ends when its key does, and when the server stops."""

    def __init__(self, registry: Registry, keyring: Keyring, clock: Clock, stopping: asyncio.Event) -> None:
        self.stopping = stopping
        self._registry = registry
        self._keyring = keyring
        self._clock = clock
        self._pages = _Pages(registry, clock)
        self._wakes: dict[str | None, list[asyncio.Event]] = {}
        """What each stream waits for, by job; None for those of all jobs."""
        self._versions: dict[str, tuple[int, int]] = {}
        self._streams: Counter[str | None] = Counter()
        self._per_principal: Counter[str] = Counter()
        self._sending_since: dict[asyncio.Event, datetime] = {}
        self._polling: asyncio.Task[None] | None = None

    @contextmanager
    def subscribe(
        self, principal: Principal, job_id: str | None, *, counted: bool = True
    ) -> Iterator[asyncio.Event]:
        """Return an event that is set when there may be more to read of the job, or of all. `Exhausted`
        when there are too many streams; one that is not `counted` is not limited."""
        if counted:
            self._check(principal, job_id)
        wake = asyncio.Event()
        self._wakes.setdefault(job_id, []).append(wake)
        self._streams[job_id] += counted
        self._per_principal[principal.name] += counted
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll())
        try:
            yield wake
        finally:
            self._wakes[job_id].remove(wake)
            self._sending_since.pop(wake, None)
            self._streams[job_id] -= counted
            self._per_principal[principal.name] -= counted
            if not self._wakes[job_id]:
                del self._wakes[job_id], self._streams[job_id]
                self._versions.pop(job_id or "", None)

    def _check(self, principal: Principal, job_id: str | None) -> None:
        if job_id is not None and self._streams[job_id] >= STREAMS_PER_JOB_MAX:
            raise Exhausted(f"Job {job_id} has {STREAMS_PER_JOB_MAX} streams already.")
        if self._streams.total() >= STREAMS_MAX:
            raise Exhausted(f"{STREAMS_MAX} streams are open here already; try another server.")
        key = principal.key_id
        if key is not None and self._per_principal[principal.name] >= STREAMS_PER_PRINCIPAL_MAX:
            raise Exhausted(f"{principal.name} has {STREAMS_PER_PRINCIPAL_MAX} streams already.")

    async def follow(
        self, principal: Principal, job: Job | None, after: str | None, wake: asyncio.Event
    ) -> AsyncGenerator[EventPage, None]:
        """Return the pages of the log from the cursor on, without end. An empty page says that this is all
        so far: the caller decides whether that is the end; if it goes on, the stream waits for `wake`."""
        job_id, created_at = (job.job_id, job.created_at) if job else (None, None)
        cursor, limit = after, FIRST_EVENTS
        while True:
            wake.clear()
            if not await self._keyring.is_valid(principal):
                raise Denied("The key of this stream has been revoked or has expired.")
            try:
                read = await self._pages.read((job_id, created_at, cursor), limit)
            except NotFound:  # the job has been pruned meanwhile
                return
            cursor, limit = read.page.cursor, read.next_limit
            if job is None:
                self._record_lag(wake, read.page)
            yield read.page
            if not read.page.events:
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await wake.wait()

    def open_counts(self) -> dict[str, int]:
        """Return how many streams are open: of the events of all jobs ("feed"), and of single jobs."""
        feed = self._streams[None]
        return {"feed": feed, "job": self._streams.total() - feed}

    def lag_seconds(self, now: datetime) -> float:
        """Return the age of the oldest event that a stream of all jobs is being sent, or 0."""
        since = self._sending_since.values()
        return max((max(0.0, (now - at).total_seconds()) for at in since), default=0)

    def _record_lag(self, wake: asyncio.Event, page: EventPage) -> None:
        if page.events:
            first = page.events[0]
            self._sending_since[wake] = first.received_at or first.occurred_at
        else:
            self._sending_since.pop(wake, None)

    def stop(self) -> None:
        """Wake every stream, so that it sees that the server stops."""
        for wake in [one for wakes in self._wakes.values() for one in wakes]:
            wake.set()

    async def _poll(self) -> None:
        """Wake the streams of the jobs that have changed, with one read for all of them."""
        while self._wakes and not self.stopping.is_set():
            mark, began = self._registry.change_mark(), self._clock.monotonic()
            try:
                await self._wake_changed()
                took = self._clock.monotonic() - began
                await self._registry.changes(since=mark, timeout=POLL_SECONDS)
            except HoldfastError:  # each stream meets the error when it reads
                took = POLL_SECONDS
            await self._clock.sleep(max(PAUSE_SECONDS, 4 * took))

    async def _wake_changed(self) -> None:
        ids = [job_id for job_id in self._wakes if job_id is not None]
        for some in slices(ids, 100):
            for job_id, job in zip(some, await self._registry.status_many(some), strict=True):
                now = (job.version, job.published) if job else (-1, -1)
                if self._versions.get(job_id) != now and job_id in self._wakes:
                    self._versions[job_id] = now
                    self._wake(job_id)
        self._wake(None)

    def _wake(self, job_id: str | None) -> None:
        for wake in self._wakes.get(job_id, ()):
            wake.set()


class _Pages:
    """A cache of the pages that were just read, for other streams at the same cursor. It is bounded in
    bytes, and in seconds: pruned events are soon gone from here, too."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._kept: OrderedDict[_PageKey, _CachedPage] = OrderedDict()
        self._bytes = 0
        self._reading: dict[_PageKey, asyncio.Task[_CachedPage]] = {}
        self._slots = asyncio.Semaphore(READS_MAX)

    async def read(self, key: "_PageKey", limit: int) -> "_CachedPage":
        self._forget_old()
        if (kept := self._kept.get(key)) is not None:
            return kept
        reading = self._reading.get(key)
        if reading is None:
            reading = asyncio.create_task(self._read(key, limit))
            self._reading[key] = reading
            reading.add_done_callback(lambda _: self._reading.pop(key, None))
        return await asyncio.shield(reading)

    def _forget_old(self) -> None:
        before = self._clock.monotonic() - PAGES_KEPT_SECONDS
        while self._kept:
            oldest = next(iter(self._kept.values()))
            if oldest.read_at > before and self._bytes <= PAGES_KEPT_BYTES:
                return
            self._bytes -= self._kept.popitem(last=False)[1].bytes

    async def _read(self, key: "_PageKey", limit: int) -> "_CachedPage":
        async with self._slots:
            read = await self._fetch(key, limit)
            while limit > 1 and read.bytes > PAGE_BYTES:
                limit = read.next_limit
                read = await self._fetch(key, limit)
        if read.page.events:
            self._kept[key] = read
            self._bytes += read.bytes
            self._forget_old()
        return read

    async def _fetch(self, key: "_PageKey", limit: int) -> "_CachedPage":
        job_id, _, after = key
        read_at = self._clock.monotonic()
        if job_id is None:
            found = await self._registry.events(after=after, limit=limit)
        else:
            found = await self._registry.logs(job_id, after=after, limit=limit)
        size = sum(map(event_bytes, found.events))
        fitting = limit * PAGE_BYTES // size if size else limit
        return _CachedPage(found, size, max(1, min(PAGE_EVENTS_MAX, limit * 2, fitting)), read_at)


_PageKey: TypeAlias = tuple[str | None, datetime | None, str | None]
"""The job, its creation time (an id may be used again), and the cursor."""


class _CachedPage(Struct, frozen=True):
    """A page, and how many events to read next, so that a page stays small."""

    page: EventPage
    bytes: int
    next_limit: int
    read_at: float
