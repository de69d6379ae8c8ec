"""The documents: what each kind of object holds, and how it is read and written."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec
from msgspec import Struct

from holdfast.core.errors import Corrupt
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle import Change
from holdfast.ports import VersionedStore, VersionToken
from holdfast.stores.cas import keys

WIDTH = 16
"""Requests under way at once for one call: a bucket answers in parallel, at some 20 ms each."""

T = TypeVar("T")
R = TypeVar("R")


class Entry(Struct, frozen=True, omit_defaults=True):
    """A committed event in an outbox. `parcel` is set until the feed is known to have it."""

    event: Event
    parcel: str | None = None


class Document(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The truth about one job id. Without a `record` it holds only what others recorded on it.

    `serial` rises with every write and `nonce` is of that write alone. Log numbers up to `spilled`
    are in segments, those up to `logged` are in use; `ready` and `due` are the markers that count.
    `barred` are parcels that a repair has closed: nothing may be committed under them any more.
    `claimed` are all claims that the job was granted to: the op_id, and the token. A claim that is
    repeated while it is under way may be on the way with two tokens of a lock; one of them lands.
    `owed` are facts about other jobs, and `made` are jobs that came with the last change: they have to
    be told, and made, before this document changes again or goes.
    """

    serial: int
    nonce: str
    record: Job | None = None
    order: int = 0
    outbox: tuple[Entry, ...] = ()
    logged: int = 0
    spilled: int = 0
    ready: str | None = None
    due: str | None = None
    barred: tuple[str, ...] = ()
    owed: tuple[Event, ...] = ()
    made: tuple[Change, ...] = ()
    claimed: tuple[tuple[str, int], ...] = ()


class Held(Struct, frozen=True):
    """A document as it was read, and the version to change it by."""

    job_id: str
    document: Document | None
    version: VersionToken | None

    @property
    def record(self) -> Job | None:
        return self.document.record if self.document else None

    def claimed(self, op_id: str) -> bool:
        """Whether the job was ever granted to this claim."""
        claims = self.document.claimed if self.document else ()
        return any(claim == op_id for claim, _ in claims)

    @property
    def indebted(self) -> bool:
        """Whether the last change may have left something to do at other jobs."""
        return self.document is not None and bool(self.document.owed or self.document.made)

    @property
    def serial(self) -> int:
        return self.document.serial if self.document else 0


class Lock(Struct, frozen=True):
    """A resource lock: its newest token, and the write (`serial`) of the job it was taken for."""

    token: int
    holder: str | None
    serial: int


class Recorded(Struct, frozen=True, omit_defaults=True):
    """An event with an id of its own. `done`: it has left its job's outbox and stays out of it."""

    event: Event
    done: bool = False


class Pending(Struct, frozen=True, omit_defaults=True):
    """Jobs that may have events which are not in the feed yet."""

    since: datetime
    jobs: tuple[str, ...]


class ClaimHint(Struct, frozen=True):
    """The jobs that may have been claimed under one op_id."""

    jobs: tuple[str, ...]


class FeedItem(Struct, frozen=True):
    """An event in the feed; its place in the object stays the same when others are pruned."""

    place: int
    event: Event


class FeedPage(Struct, frozen=True):
    """One object of the feed."""

    nonce: str
    items: tuple[FeedItem, ...]


Segment = tuple[Event, ...]


class Shelf:
    """Typed objects over bytes."""

    def __init__(self, objects: VersionedStore) -> None:
        self.objects = objects

    async def fetch(self, key: str, kind: type[T]) -> tuple[T, VersionToken] | None:
        """The object and its version, or None; `Corrupt` when it is not what its key promises."""
        found = await self.objects.get(key)
        if found is None:
            return None
        try:
            return msgspec.json.decode(found[0], type=kind), found[1]
        except msgspec.DecodeError as error:
            raise Corrupt(f"Object {key} cannot be read: {error}") from error

    async def create(self, key: str, value: object) -> bool:
        return await self.objects.create_if_absent(key, msgspec.json.encode(value))

    async def put(self, key: str, value: object, version: VersionToken | None) -> bool:
        """Write over `version`; None stands for an object that is not there."""
        if version is None:
            return await self.create(key, value)
        return await self.objects.put(key, msgspec.json.encode(value), version)

    async def discard(self, key: str) -> None:
        """Delete an object that nobody needs any more, whatever its version."""
        found = await self.objects.get(key)
        if found is not None:
            await self.objects.delete(key, found[1])

    async def mark(self, key: str) -> None:
        """Make sure that an empty object is there."""
        await self.objects.create_if_absent(key, b"")

    async def load(self, job_id: str) -> Held:
        found = await self.fetch(keys.state(job_id), Document)
        return Held(job_id, *found) if found else Held(job_id, None, None)

    async def load_many(self, job_ids: Iterable[str]) -> list[Held]:
        return await each(self.load, job_ids)

    async def segments(self, job_id: str, *, after: int) -> Sequence[str]:
        """The keys of the segments with events behind log number `after`, in order."""
        return await self.objects.list_keys(keys.log(job_id), after=keys.log_after(job_id, after))


async def each(function: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R]:
    """Apply `function` to all items, some at once; all end before the first error is raised."""
    todo = list(items)
    if len(todo) == 1:
        return [await function(todo[0])]
    gate = asyncio.Semaphore(WIDTH)

    async def one(item: T) -> R:
        async with gate:
            return await function(item)

    answers = await asyncio.gather(*map(one, todo), return_exceptions=True)
    done: list[R] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        done.append(answer)
    return done
