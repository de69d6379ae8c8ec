"""Output: what an attempt says, numbered, spooled, and published before the job may end."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.errors import Exhausted, HoldfastError, Unavailable
from holdfast.core.event import Attributes, Event
from holdfast.core.limits import (
    EVENT_BYTES,
    OUTPUT_ATTEMPT_BYTES_MAX,
    OUTPUT_BATCH_BYTES_MAX,
    OUTPUT_BATCH_ITEMS_MAX,
    OUTPUT_CHUNK_BYTES_MAX,
    OUTPUT_RESERVE_BYTES,
)
from holdfast.core.quota import event_bytes, quota_words
from holdfast.failpoint import failpoint
from holdfast.ports import Clock, Registry
from holdfast.system import first_of
from holdfast.worker.hold import Hold
from holdfast.worker.redaction import NOTHING_HIDDEN, Redactor
from holdfast.worker.spool import Batch, Log, Piece
from holdfast.worker.tasks import stop

FLUSH_SECONDS = 0.1
RETRY_SECONDS = 0.5
UNSENT_BYTES_MAX = 64 * 1024 * 1024
DROPPED_WORDS_BYTES = 1024
"""What is left of the quota's reserve for the words about events that were dropped."""


class Output:
    """Numbers the attempt's events from 1, keeps each in the spool, and publishes them in order.

    While the store is away the work goes on, and what it says waits in the spool. Readers wait when
    that is too much: a job that says more than the store takes is slowed, never cut. What is beyond the
    attempt's quota is not spooled: how much that is, the registry is told at once and again at the end. So
    it is told what the spool has lost: by the gap in the sequences, and by an event behind it.
    """

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        hold: Hold,
        log: Log,
        *,
        redactor: Redactor = NOTHING_HIDDEN,
        bytes_max: int = OUTPUT_ATTEMPT_BYTES_MAX,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._hold = hold
        self._log = log
        self._redactor = redactor
        self._streams: dict[str, Redactor] = {}
        self._sequence = self._stored = 0
        self._left = bytes_max
        self._dropped = 0
        self._dropping = False
        self._unsent = 0
        self._closed = False
        self._some = asyncio.Event()
        self._full = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._publishing = asyncio.create_task(self._publish())

    def tell(
        self, event_type: WorkerEventType, *, at: datetime | None = None, **attributes: object
    ) -> None:
        """Add an event that is no output, as far as the quota and its reserve go: by the rule of the
        registry, which would drop it (`core/quota.py`)."""
        hidden = self._redactor.value(attributes)
        size = event_bytes(None, hidden)
        if size > self._left + OUTPUT_RESERVE_BYTES - DROPPED_WORDS_BYTES:
            self._drop(size)
        else:
            self._add(event_type, at, attributes=hidden)

    def hide(self, secrets: Sequence[str], *, terminal: bool = False) -> None:
        """Keep these out of what is added from now on."""
        self._redactor = self._redactor.again(secrets, terminal=terminal)

    def write(self, data: bytes, stream: str, at: datetime | None = None) -> None:
        """Add output of any length, without the secrets. What may be the beginning of one waits for more."""
        if (redactor := self._streams.get(stream)) is None:
            redactor = self._streams[stream] = self._redactor.again()
        self._write(redactor.feed(data), stream, at)

    def finish(self) -> None:
        """No stream has more: add what has waited."""
        for stream, redactor in self._streams.items():
            self._write(redactor.flush(), stream)

    def _write(self, data: bytes, stream: str, at: datetime | None = None) -> None:
        """Add output as far as the attempt's quota goes."""
        for start in range(0, len(data), OUTPUT_CHUNK_BYTES_MAX):
            piece = data[start : start + OUTPUT_CHUNK_BYTES_MAX]
            room = 0 if self._dropping else max(0, self._left - EVENT_BYTES)
            if room:
                self._add(WorkerEventType.OUTPUT, at, stream=stream, data=piece[:room])
            if len(piece) > room:
                self._drop(len(piece) - room)

    def _drop(self, size: int) -> None:
        """Count what is not sent. The first of it is told at once, the rest at the end."""
        self._dropped += size
        if not self._dropping:
            self._dropping = True
            self._tell_dropped()

    def _tell_dropped(self) -> None:
        dropped, self._dropped = self._dropped, 0
        words = quota_words(dropped, self._hold.grant.attempt)
        attributes: Attributes = {"error_message": words, "dropped_bytes": dropped}
        self._add(WorkerEventType.PROCESS_ERROR, None, attributes=attributes)

    @property
    def full(self) -> bool:
        """Whether more waits than should."""
        return not self._room.is_set()

    async def room(self) -> None:
        """Wait until there is room for more."""
        await self._room.wait()

    def _add(
        self,
        event_type: WorkerEventType,
        at: datetime | None,
        *,
        stream: str | None = None,
        data: bytes | None = None,
        attributes: Attributes | None = None,
    ) -> None:
        if self._hold.lost or self._closed:
            return
        self._sequence += 1
        self._left -= event_bytes(data, attributes or {})
        self._unsent += self._log.append(
            Piece(
                sequence=self._sequence,
                event_type=event_type,
                at=(at or self._clock.now()).timestamp(),
                stream=stream,
                data=data,
                attributes=attributes or {},
            )
        )
        failpoint("worker.spooled")
        if self._unsent > UNSENT_BYTES_MAX:
            self._room.clear()
        if self._unsent >= OUTPUT_BATCH_BYTES_MAX:
            self._full.set()
        self._some.set()

    async def flush(self) -> None:
        """There is no more: return when all of it is stored, or the lease is lost."""
        self.finish()
        self._closed = True
        self._some.set()
        self._full.set()
        await self._publishing

    def seal(self, note: bytes) -> None:
        """There is no more to say: keep how the attempt ended beside its output, for the worker that comes
        after a crash."""
        self.finish()
        if self._dropped:
            self._tell_dropped()
        self._log.seal(note)

    async def close(self) -> None:
        """Everything about the attempt is stored, or it is no longer ours: forget it."""
        await stop(self._publishing)
        self._log.remove()

    async def _publish(self) -> None:
        """Store what waits, in order, until closed and empty, or the lease is lost. Whatever else
        stops it loses the hold: a job whose output cannot be stored must not end as if it could."""
        try:
            await self._publish_all()
        except Exception as error:
            self._hold.lose(f"its output could not be stored: {error!r}")
        finally:
            self._room.set()

    async def _publish_all(self) -> None:
        while not self._hold.lost:
            await self._some.wait()
            self._some.clear()
            if not self._closed and self._unsent < OUTPUT_BATCH_BYTES_MAX:
                await self._gather()
            while batch := self._next():
                if not await self._send(batch):
                    return
            if self._closed:
                return

    def _next(self) -> Batch | None:
        """What is to be sent next: what waits in the spool or, if it has less than it was given, a word that
        says so. That one is not kept in the spool, which might lose it as well."""
        if batch := self._log.read(OUTPUT_BATCH_ITEMS_MAX, OUTPUT_BATCH_BYTES_MAX):
            return batch
        self._unsent = 0
        self._room.set()
        lost = self._sequence - self._stored
        if not lost:
            return None
        self._sequence += 1
        words = spool_words(lost, self._hold.grant.attempt)
        now, kind = self._clock.now().timestamp(), WorkerEventType.PROCESS_ERROR
        piece = Piece(self._sequence, kind, now, None, None, {"error_message": words})
        return Batch([piece], end=0, size=0)

    async def _gather(self) -> None:
        """Give more a moment to come, so that many words share a write."""
        self._full.clear()
        await first_of(self._full.wait(), self._clock.sleep(FLUSH_SECONDS))

    async def _send(self, batch: Batch) -> bool:
        """Whether it is stored: it is, unless the lease is lost."""
        events = [as_event(piece) for piece in batch.pieces]
        while not self._hold.lost:
            try:
                self._hold.heard(await self._registry.publish(self._hold.grant, events))
            except (
                Unavailable,
                Exhausted,
            ):  # what a full attempt was sent is settled the second time
                await self._clock.sleep(RETRY_SECONDS)
            except HoldfastError as error:
                self._hold.lose(error.message)
            else:
                failpoint("worker.output_sent")
                self._log.sent(batch.end)
                self._stored = batch.pieces[-1].sequence
                self._unsent -= batch.size
                if self._unsent <= UNSENT_BYTES_MAX:
                    self._room.set()
                return True
        return False


def spool_words(lost: int, attempt: int) -> str:
    """What a reader is told of output that the spool has lost."""
    count = "1 event" if lost == 1 else f"{lost:,} events"
    return f"{count} of attempt {attempt} could not be read from the worker's spool, and did not arrive."


def as_event(piece: Piece) -> Event:
    """The piece as it is published."""
    return Event(
        event_type=piece.event_type,
        event_class=EventClass.WORKER,
        occurred_at=datetime.fromtimestamp(piece.at, UTC),
        sequence=piece.sequence,
        stream=piece.stream,
        data=piece.data,
        attributes=piece.attributes,
    )
