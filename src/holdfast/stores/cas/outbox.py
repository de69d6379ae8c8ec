"""The outbox relay: events committed to a job's outbox reach the feed, even if the process that wrote them
dies.

A batch is the events of one call. Its pending object is written before the first commit and deleted after
the feed has the events, so that a repair finds what a crash has left behind.
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
from holdfast.stores.cas.documents import Document, DocumentStore, OutboxEntry, Pending, each
from holdfast.stores.cas.feed import Feed

REPAIR_AFTER = timedelta(seconds=10)
REPAIR_ITEMS = 1_000
REPAIR_ATTEMPTS = 10
CLOSED_TAGS_MAX = 16
REMEMBERED = 10_000


DeliverPending: TypeAlias = Callable[[Document], Awaitable[None]]
"""Records the pending facts of a document, which are about other jobs, and makes the jobs that it made."""


class OutboxBatch:
    """The events of one call on their way to the feed; they are sent when the context is left without an
    error.

    A batch has one tag, and another one whenever a repair has closed the tags before it on some job.
    """

    def __init__(self, relay: "OutboxRelay", jobs: Iterable[str]) -> None:
        self.jobs = tuple(dict.fromkeys(jobs))
        self.entries: list[OutboxEntry] = []
        self.garbage: list[str] = []
        self.landed = False
        self.tags = [relay.ids.new()]
        self.opened: set[str] = set()
        self._relay = relay
        self._opening = asyncio.Lock()

    def tag(self, closed_tags: Sequence[str]) -> str:
        """Return a tag under which events may be committed to a document where these tags are closed."""
        for tag in self.tags:
            if tag not in closed_tags:
                return tag
        self.tags.append(self._relay.ids.new())
        return self.tags[-1]

    async def open(self, tag: str) -> None:
        """Write the pending object, which tells a repair which jobs to read, before anything is
        committed."""
        async with self._opening:
            if tag not in self.opened:
                await self._relay.announce(tag, self.jobs)
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
                await self._relay.send(self)
        finally:
            self._relay.forget(self)


class OutboxRelay:
    """Sends the batches of this process, and repairs those of others. The store sets `deliver_pending`."""

    deliver_pending: DeliverPending

    def __init__(self, documents: DocumentStore, feed: Feed, clock: Clock, ids: Ids) -> None:
        self.ids = ids
        self._documents = documents
        self._feed = feed
        self._clock = clock
        self._under_way: set[str] = set()
        self._delivered: dict[str, None] = {}
        self._repaired_at = clock.monotonic()

    def batch(self, jobs: Iterable[str]) -> OutboxBatch:
        return OutboxBatch(self, jobs)

    async def announce(self, tag: str, jobs: tuple[str, ...]) -> None:
        self._under_way.add(tag)
        await self._documents.create(keys.pending(tag), Pending(self._clock.now(), jobs))
        failpoint("cas.outbox_announced")

    async def send(self, batch: OutboxBatch) -> None:
        if batch.entries:
            await self._feed.append(await self._unsent(batch.entries, batch.tags))
        failpoint("cas.outbox_sent")
        done = [keys.pending(tag) for tag in batch.tags if tag in batch.opened]
        await each(self._documents.discard, [*done, *batch.garbage])
        failpoint("cas.outbox_closed")
        self._remember(batch.tags)

    def forget(self, batch: OutboxBatch) -> None:
        self._under_way.difference_update(batch.tags)

    async def _unsent(self, entries: Sequence[OutboxEntry], tags: Sequence[str]) -> list[OutboxEntry]:
        """Return the entries under these tags, and those of other batches before them that the feed may
        lack.

        A job's events come in order, so the second process also sends what the first has not sent yet. If
        the first is still about to, they come twice: therefore this is called as late as possible.
        """
        others = sorted({e.tag for e in entries if e.tag is not None} - set(tags))
        delivered = {tag for tag in others if await self.is_delivered(tag)}
        return [entry for entry in entries if entry.tag not in delivered]

    async def is_delivered(self, tag: str) -> bool:
        """Whether the feed has all events under a tag. False may be wrong, True never is."""
        if tag in self._delivered:
            return True
        if await self._documents.objects.get(keys.pending(tag)) is not None:
            return False
        self._remember([tag])
        return True

    def _remember(self, tags: Sequence[str]) -> None:
        self._delivered.update(dict.fromkeys(tags))
        while len(self._delivered) > REMEMBERED:
            del self._delivered[next(iter(self._delivered))]

    async def repair(self) -> None:
        """Send what other processes have left behind. A process that is only slow gets `REPAIR_AFTER`
        first: what both send comes twice."""
        names = await self._documents.objects.list_keys(keys.PENDING, limit=REPAIR_ITEMS)
        await each(self._finish, [n for n in names if keys.tag_of(n) not in self._under_way])

    async def repair_now_and_then(self) -> None:
        """Repair, unless this process has within `REPAIR_AFTER`. A failure is left to the next repair."""
        now = self._clock.monotonic()
        if now - self._repaired_at >= REPAIR_AFTER.total_seconds():
            self._repaired_at = now
            with suppress(HoldfastError):
                await self.repair()

    async def _finish(self, name: str) -> None:
        found = await self._documents.fetch(name, Pending)
        if found is None or found[0].since + REPAIR_AFTER > self._clock.now():
            return
        (pending, version), tag = found, keys.tag_of(name)
        entries: list[OutboxEntry] = []
        for document in await each(lambda job_id: self._close(job_id, tag), pending.jobs):
            outbox = document.outbox
            await self.deliver_pending(document)
            until = max((n for n, e in enumerate(outbox, 1) if e.tag == tag), default=0)
            entries += [entry for entry in outbox[:until] if entry.tag is not None]
        await self._feed.append(await self._unsent(entries, [tag]))
        failpoint("cas.repair_sent")
        await self._documents.objects.delete(name, version)
        self._remember([tag])

    async def _close(self, job_id: str, tag: str) -> Document:
        """Return a job's document, to which nothing more can be committed under the tag.

        The writer may be slow, not dead. Where it has committed nothing yet, the tag is closed in the
        document, and its write fails, because that is conditional on the version before.
        """
        for _ in range(REPAIR_ATTEMPTS):
            loaded = await self._documents.load(job_id)
            document = loaded.document or Document(serial=0, nonce="")
            if tag in document.closed_tags or any(e.tag == tag for e in document.outbox):
                return document
            closed_tags = replace(
                document,
                serial=document.serial + 1,
                nonce=self.ids.new(),
                closed_tags=(*document.closed_tags, tag)[-CLOSED_TAGS_MAX:],
            )
            if await self._documents.put(keys.state(job_id), closed_tags, loaded.version):
                failpoint("cas.repair_closed")
                return closed_tags
        raise Unavailable(f"Job {job_id} changes too fast to be repaired.", job_id=job_id)
