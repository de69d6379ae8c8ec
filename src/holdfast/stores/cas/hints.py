"""Hints: markers of jobs that may be ready or due. Whether a job is, only its record says."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from itertools import takewhile

from msgspec import Struct

from holdfast.core.eligibility import claimable
from holdfast.core.job import Job
from holdfast.failpoint import failpoint
from holdfast.ports import Clock, Ready
from holdfast.stores.cas import keys
from holdfast.stores.cas.documents import DocumentStore, LoadedDocument
from holdfast.stores.cas.locks import LockDocuments

READ_AHEAD_MIN = 4
READ_AHEAD_MAX = 256
DUE_KEYS = 256
ORPHAN_MICROSECONDS = 60 * 1_000_000


class DueJobs(Struct, frozen=True):
    """Jobs that are due, and those whose marker is earlier than they are due."""

    due: tuple[LoadedDocument, ...]
    early: tuple[LoadedDocument, ...]


class Hints:
    """Finds jobs by their markers, and deletes markers that no job can point to any more."""

    def __init__(self, documents: DocumentStore, locks: LockDocuments, clock: Clock) -> None:
        self._documents = documents
        self._locks = locks
        self._clock = clock

    async def ready(self, ready: Ready, *, wanted: int) -> AsyncGenerator[LoadedDocument, None]:
        """Yield claimable jobs, queue by queue, in ready order: one for each lock, and none whose lock is
        held."""
        size = max(READ_AHEAD_MIN, min(wanted, READ_AHEAD_MAX))
        free: dict[str, bool] = {}
        for name in dict.fromkeys(ready.queues):
            async with aclosing(self._queue(name, size)) as pages:
                async for page in pages:
                    for one in await self._pointed(page):
                        job = one.record
                        if job is None or not claimable(job, ready, self._clock.now()):
                            continue
                        if job.spec.lock is None or await self._free(job.spec.lock, one, free):
                            yield one

    async def _pointed(self, markers: list[keys.ReadyMarker]) -> list[LoadedDocument]:
        """Return the jobs that point back to their marker, and delete the markers of the others where they
        are no longer needed."""
        loaded = await self._documents.load_many(marker.job_id for marker in markers)
        found: list[LoadedDocument] = []
        for marker, one in zip(markers, loaded, strict=True):
            if one.document is not None and one.document.ready == marker.key:
                found.append(one)
            else:
                await self._tidy(marker.key, marker.serial, marker.order, one)
        return found

    async def _free(self, lock: str, loaded: LoadedDocument, free: dict[str, bool]) -> bool:
        """Whether this lock is free: True at most once for each lock in `free`."""
        if lock in free:
            return False
        state = await self._locks.read(lock, loaded)
        free[lock] = state.resource.holder is None
        return free[lock]

    async def _queue(self, name: str, size: int) -> AsyncGenerator[list[keys.ReadyMarker], None]:
        """Yield the markers of a queue whose time has come, a few at a time."""
        prefix = after = keys.queue(name)
        while found := await self._documents.objects.list_keys(prefix, after=after, limit=size):
            now = keys.microseconds(self._clock.now())
            markers = [keys.ready_marker(key) for key in found]
            page: list[keys.ReadyMarker] = []
            after = found[-1]
            for marker in markers:
                if marker.ready_at > now:
                    # All others of this priority are later still.
                    after = keys.priority_end(name, marker.priority)
                    break
                page.append(marker)
            yield page

    async def count(self, queue: str, ahead_of: Job | None, *, delayed: bool, limit: int) -> int:
        """Return what `Store.count_ready` says. It reads the documents that it counts, and lists the markers
        before them."""
        place: tuple[object, ...] | None = None
        if ahead_of is not None:
            document = (await self._documents.load(ahead_of.job_id)).document
            if document is None or document.ready is None:
                return 0
            place = keys.ready_marker(document.ready).place
        found, now = 0, keys.microseconds(self._clock.now())
        prefix = after = keys.queue(queue)
        while found < limit and (
            names := await self._documents.objects.list_keys(prefix, after=after, limit=READ_AHEAD_MAX)
        ):
            after = names[-1]
            markers = [
                marker
                for marker in map(keys.ready_marker, names)
                if (marker.ready_at > now) is delayed and (place is None or marker.place < place)
            ]
            loaded = await self._documents.load_many(marker.job_id for marker in markers)
            found += sum(
                one.document is not None and one.document.ready == marker.key
                for marker, one in zip(markers, loaded, strict=True)
            )
        return min(found, limit)

    async def due(self, limit: int) -> DueJobs:
        """Return due jobs, the longest overdue first."""
        due: list[LoadedDocument] = []
        early: list[LoadedDocument] = []
        size, after, now = max(limit, DUE_KEYS), "", self._clock.now()
        until = keys.microseconds(now)
        while len(due) < limit:
            found = await self._documents.objects.list_keys(keys.DUE, after=after, limit=size)
            markers = list(takewhile(lambda m: m.due_at <= until, map(keys.due_marker, found)))
            loaded = await self._documents.load_many(marker.job_id for marker in markers)
            for marker, one in zip(markers, loaded, strict=True):
                if one.document is None or one.document.due != marker.key:
                    await self._tidy(marker.key, marker.serial, marker.due_at, one)
                else:
                    (due if is_due(one, now) else early).append(one)
            if len(markers) < size:
                break
            after = found[-1]
        due.sort(key=_overdue)
        return DueJobs(tuple(due[:limit]), tuple(early))

    async def _tidy(self, key: str, serial: int, since: int, loaded: LoadedDocument) -> None:
        """Delete a marker that its job does not point to, once its write can no longer land."""
        if loaded.serial < serial:
            old = since < keys.microseconds(self._clock.now()) - ORPHAN_MICROSECONDS
            if loaded.record is not None or not old:
                return
            # The process that was about to make this job is slow or dead. Its write is conditional: make
            # sure that it fails, then the marker can be deleted.
            if not await self._locks.fence(loaded, serial):
                return
        failpoint("cas.marker_condemned")
        await self._documents.discard(key)


def is_due(loaded: LoadedDocument, now: datetime) -> bool:
    job = loaded.record
    return job is not None and job.due_at is not None and job.due_at <= now


def _overdue(loaded: LoadedDocument) -> tuple[datetime, int]:
    job, document = loaded.record, loaded.document
    assert job is not None  # is_due has just seen all three
    assert job.due_at is not None
    assert document is not None
    return job.due_at, document.order
