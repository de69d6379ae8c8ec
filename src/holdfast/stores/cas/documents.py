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
"""The most concurrent requests of one call: a bucket takes some 20 ms for each, and serves them in
parallel."""

T = TypeVar("T")
R = TypeVar("R")


class OutboxEntry(Struct, frozen=True, omit_defaults=True):
    """A committed event in an outbox. `tag`, that of its batch, is set until the feed is known to have
    it."""

    event: Event
    tag: str | None = None


class Document(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The truth about one job id. Without a `record` it holds only events that were recorded about the job.

    `serial` rises with every write and `nonce` is of that write alone. Log numbers up to `spilled` are in
    segments, those up to `logged` are in use; `ready` and `due` are the markers that count. `closed_tags`
    are those of batches that a repair has closed: nothing may be committed under them any more. `claimed`
    are all claims that the job was granted to: the op_id, and the token. A claim that is repeated while it
    is in progress may be written with two tokens of a lock; one of them lands. `pending_facts` are facts
    about other jobs, and `made` are jobs that came with the last change: they have to be recorded, and
    made, before this document is changed again or deleted.
    """

    serial: int
    nonce: str
    record: Job | None = None
    order: int = 0
    outbox: tuple[OutboxEntry, ...] = ()
    logged: int = 0
    spilled: int = 0
    ready: str | None = None
    due: str | None = None
    closed_tags: tuple[str, ...] = ()
    pending_facts: tuple[Event, ...] = ()
    made: tuple[Change, ...] = ()
    claimed: tuple[tuple[str, int], ...] = ()


class LoadedDocument(Struct, frozen=True):
    """A document as it was read, and the version that a write is conditional on."""

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
    def has_pending(self) -> bool:
        """Whether facts or jobs of the last change may not have been delivered yet."""
        return self.document is not None and bool(self.document.pending_facts or self.document.made)

    @property
    def serial(self) -> int:
        return self.document.serial if self.document else 0


class LockDocument(Struct, frozen=True):
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
    """An event in the feed; its place in the page stays the same when others are pruned."""

    place: int
    event: Event


class FeedPage(Struct, frozen=True):
    """One object of the feed: the events of one append."""

    nonce: str
    items: tuple[FeedItem, ...]


Segment = tuple[Event, ...]


class DocumentStore:
    """Reads and writes typed documents over an object store of bytes."""

    def __init__(self, objects: VersionedStore) -> None:
        self.objects = objects

    async def fetch(self, key: str, kind: type[T]) -> tuple[T, VersionToken] | None:
        """Return the object and its version, or None; raise `Corrupt` when it cannot be decoded."""
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
        """Write over `version` (None: the object must not exist); return whether that succeeded."""
        if version is None:
            return await self.create(key, value)
        return await self.objects.put(key, msgspec.json.encode(value), version)

    async def discard(self, key: str) -> None:
        """Delete an object that is no longer needed, whatever its version."""
        found = await self.objects.get(key)
        if found is not None:
            await self.objects.delete(key, found[1])

    async def mark(self, key: str) -> None:
        """Make sure that an empty object exists."""
        await self.objects.create_if_absent(key, b"")

    async def load(self, job_id: str) -> LoadedDocument:
        found = await self.fetch(keys.state(job_id), Document)
        return LoadedDocument(job_id, *found) if found else LoadedDocument(job_id, None, None)

    async def load_many(self, job_ids: Iterable[str]) -> list[LoadedDocument]:
        return await each(self.load, job_ids)

    async def segments(self, job_id: str, *, after: int) -> Sequence[str]:
        """Return the keys of the segments with events behind log number `after`, in order."""
        return await self.objects.list_keys(keys.log(job_id), after=keys.log_after(job_id, after))


async def each(function: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R]:
    """Apply `function` to all items, up to `WIDTH` at once; all end before the first error is raised."""
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
