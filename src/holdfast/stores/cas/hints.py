"""Hints: markers that say where to look for ready and for due jobs. The record decides."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from itertools import takewhile

from msgspec import Struct

from holdfast.core.eligibility import claimable
from holdfast.failpoint import failpoint
from holdfast.ports import Clock, Ready
from holdfast.stores.cas import keys
from holdfast.stores.cas.documents import Held, Shelf
from holdfast.stores.cas.locks import Locks

READ_AHEAD_MIN = 4
READ_AHEAD_MAX = 256
DUE_KEYS = 256
ORPHAN_MICROSECONDS = 60 * 1_000_000


class DueJobs(Struct, frozen=True):
    """Jobs whose time has come, and those whose marker came too early."""

    due: tuple[Held, ...]
    early: tuple[Held, ...]


class Hints:
    """Reads markers, and deletes those that can never count again."""

    def __init__(self, shelf: Shelf, locks: Locks, clock: Clock) -> None:
        self._shelf = shelf
        self._locks = locks
        self._clock = clock

    async def ready(self, ready: Ready, *, wanted: int) -> AsyncGenerator[Held, None]:
        """Claimable jobs, queue by queue, in ready order; one of each lock, and none that is held."""
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

    async def _pointed(self, markers: list[keys.ReadyMarker]) -> list[Held]:
        """The jobs that point back to their marker; of the others' markers the dead ones go."""
        held = await self._shelf.load_many(marker.job_id for marker in markers)
        found: list[Held] = []
        for marker, one in zip(markers, held, strict=True):
            if one.document is not None and one.document.ready == marker.key:
                found.append(one)
            else:
                await self._tidy(marker.key, marker.serial, marker.order, one)
        return found

    async def _free(self, lock: str, held: Held, free: dict[str, bool]) -> bool:
        """Whether this lock can be had: asked once, answered yes at most once."""
        if lock in free:
            return False
        looked = await self._locks.look(lock, held)
        free[lock] = looked.resource.holder is None
        return free[lock]

    async def _queue(self, name: str, size: int) -> AsyncGenerator[list[keys.ReadyMarker], None]:
        """The markers of a queue whose time has come, a few at a time."""
        prefix = after = keys.queue(name)
        while found := await self._shelf.objects.list_keys(prefix, after=after, limit=size):
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

    async def due(self, limit: int) -> DueJobs:
        """Due jobs, the longest overdue first."""
        due: list[Held] = []
        early: list[Held] = []
        size, after, now = max(limit, DUE_KEYS), "", self._clock.now()
        until = keys.microseconds(now)
        while len(due) < limit:
            found = await self._shelf.objects.list_keys(keys.DUE, after=after, limit=size)
            markers = list(takewhile(lambda m: m.due_at <= until, map(keys.due_marker, found)))
            held = await self._shelf.load_many(marker.job_id for marker in markers)
            for marker, one in zip(markers, held, strict=True):
                if one.document is None or one.document.due != marker.key:
                    await self._tidy(marker.key, marker.serial, marker.due_at, one)
                else:
                    (due if is_due(one, now) else early).append(one)
            if len(markers) < size:
                break
            after = found[-1]
        due.sort(key=_overdue)
        return DueJobs(tuple(due[:limit]), tuple(early))

    async def _tidy(self, key: str, serial: int, since: int, held: Held) -> None:
        """Delete a marker that its job does not point to, once its write can no longer land."""
        if held.serial < serial:
            old = since < keys.microseconds(self._clock.now()) - ORPHAN_MICROSECONDS
            if held.record is not None or not old:
                return
            # The maker of a job that never came is slow or dead. Its write is conditional: make
            # sure that it fails, then the marker can go.
            if not await self._locks.fence(held, serial):
                return
        failpoint("cas.marker_condemned")
        await self._shelf.discard(key)


def is_due(held: Held, now: datetime) -> bool:
    job = held.record
    return job is not None and job.due_at is not None and job.due_at <= now


def _overdue(held: Held) -> tuple[datetime, int]:
    job, document = held.record, held.document
    assert job is not None  # is_due has just seen all three
    assert job.due_at is not None
    assert document is not None
    return job.due_at, document.order
