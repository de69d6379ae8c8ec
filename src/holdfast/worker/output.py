"""The output and events of one attempt: numbered, spooled, and published before the job may end."""

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
from holdfast.core.quota import describe_dropped_output, event_bytes
from holdfast.failpoint import failpoint
from holdfast.ports import Clock, Registry
from holdfast.system import first_of
from holdfast.worker.held_job import HeldJob
from holdfast.worker.redaction import NOTHING_HIDDEN, Redactor
from holdfast.worker.spool import AttemptLog, SpoolBatch, SpooledEvent
from holdfast.worker.tasks import stop

FLUSH_SECONDS = 0.1
RETRY_SECONDS = 0.5
UNSENT_BYTES_MAX = 64 * 1024 * 1024
DROPPED_EVENT_BYTES = 1024
"""The part of the quota's reserve that is kept for the event that reports dropped output."""


class AttemptOutput:
    """Numbers the attempt's events from 1, keeps each in the spool, and publishes them in order.

    While the store is unavailable the work goes on, and its output waits in the spool. When too much waits,
    the output is not read: a job that writes more than the store takes is slowed down, its output is never
    cut. Output beyond the attempt's quota is not spooled: its size is published at the first drop and again
    at the end. Events that the spool has lost leave a gap in the sequence, and an event behind it says so.
    """

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        held: HeldJob,
        log: AttemptLog,
        *,
        redactor: Redactor = NOTHING_HIDDEN,
        bytes_max: int = OUTPUT_ATTEMPT_BYTES_MAX,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._held = held
        self._log = log
        self._redactor = redactor
        self._streams: dict[str, Redactor] = {}
        self._sequence = self._stored = 0
        self._left = bytes_max
        self._dropped = 0
        self._dropping = False
        self._unsent = 0
        self._closed = False
        self._nonempty = asyncio.Event()
        self._full = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._publishing = asyncio.create_task(self._publish())

    def add_event(
        self, event_type: WorkerEventType, *, at: datetime | None = None, **attributes: object
    ) -> None:
        """Add an event that is not output, if the quota and its reserve have room for it: the registry,
        with the same rule (`core/quota.py`), would drop it."""
        hidden = self._redactor.value(attributes)
        size = event_bytes(None, hidden)
        if size > self._left + OUTPUT_RESERVE_BYTES - DROPPED_EVENT_BYTES:
            self._drop(size)
        else:
            self._add(event_type, at, attributes=hidden)

    def hide(self, secrets: Sequence[str], *, terminal: bool = False) -> None:
        """Mask these in all that is added from now on."""
        self._redactor = self._redactor.copy(secrets, terminal=terminal)

    def write(self, data: bytes, stream: str, at: datetime | None = None) -> None:
        """Add output of any length, with secrets masked. What may be the beginning of one waits for
        more."""
        if (redactor := self._streams.get(stream)) is None:
            redactor = self._streams[stream] = self._redactor.copy()
        self._write(redactor.feed(data), stream, at)

    def finish(self) -> None:
        """The streams have ended: add what has waited."""
        for stream, redactor in self._streams.items():
            self._write(redactor.flush(), stream)

    def _write(self, data: bytes, stream: str, at: datetime | None = None) -> None:
        """Add output as far as the attempt's quota goes."""
        for start in range(0, len(data), OUTPUT_CHUNK_BYTES_MAX):
            chunk = data[start : start + OUTPUT_CHUNK_BYTES_MAX]
            room = 0 if self._dropping else max(0, self._left - EVENT_BYTES)
            if room:
                self._add(WorkerEventType.OUTPUT, at, stream=stream, data=chunk[:room])
            if len(chunk) > room:
                self._drop(len(chunk) - room)

    def _drop(self, size: int) -> None:
        """Count what is not sent. The first of it is reported at once, the rest at the end."""
        self._dropped += size
        if not self._dropping:
            self._dropping = True
            self._report_dropped()

    def _report_dropped(self) -> None:
        dropped, self._dropped = self._dropped, 0
        words = describe_dropped_output(dropped, self._held.grant.attempt)
        attributes: Attributes = {"error_message": words, "dropped_bytes": dropped}
        self._add(WorkerEventType.PROCESS_ERROR, None, attributes=attributes)

    @property
    def full(self) -> bool:
        """Whether too much waits to be stored."""
        return not self._room.is_set()

    async def wait_for_room(self) -> None:
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
        if self._held.lost or self._closed:
            return
        self._sequence += 1
        self._left -= event_bytes(data, attributes or {})
        self._unsent += self._log.append(
            SpooledEvent(
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
        self._nonempty.set()

    async def flush(self) -> None:
        """Add no more, and wait until all of it is stored, or the lease is lost."""
        self.finish()
        self._closed = True
        self._nonempty.set()
        self._full.set()
        await self._publishing

    def seal(self, completion: bytes) -> None:
        """Store how the attempt ended in the spool, beside its output: after a crash the next worker
        reports it."""
        self.finish()
        if self._dropped:
            self._report_dropped()
        self._log.seal(completion)

    async def close(self) -> None:
        """Remove the spool of the attempt: all of it is stored, or the lease is lost."""
        await stop(self._publishing)
        self._log.remove()

    async def _publish(self) -> None:
        """Store what waits, in order, until closed and empty, or the lease is lost. Any other error gives
        up the lease: a job whose output cannot be stored must not end as if it were."""
        try:
            await self._publish_all()
        except Exception as error:
            self._held.lose(f"its output could not be stored: {error!r}")
        finally:
            self._room.set()

    async def _publish_all(self) -> None:
        while not self._held.lost:
            await self._nonempty.wait()
            self._nonempty.clear()
            if not self._closed and self._unsent < OUTPUT_BATCH_BYTES_MAX:
                await self._wait_for_more()
            while batch := self._next():
                if not await self._send(batch):
                    return
            if self._closed:
                return

    def _next(self) -> SpoolBatch | None:
        """Return the next batch of the spool or, if the spool has less than was added, an event that says
        so. That event is not spooled: the spool might lose it as well."""
        if batch := self._log.read(OUTPUT_BATCH_ITEMS_MAX, OUTPUT_BATCH_BYTES_MAX):
            return batch
        self._unsent = 0
        self._room.set()
        lost = self._sequence - self._stored
        if not lost:
            return None
        self._sequence += 1
        words = lost_message(lost, self._held.grant.attempt)
        now, kind = self._clock.now().timestamp(), WorkerEventType.PROCESS_ERROR
        spooled = SpooledEvent(self._sequence, kind, now, None, None, {"error_message": words})
        return SpoolBatch([spooled], end=0, size=0)

    async def _wait_for_more(self) -> None:
        """Wait a moment for more, so that many events share a write."""
        self._full.clear()
        await first_of(self._full.wait(), self._clock.sleep(FLUSH_SECONDS))

    async def _send(self, batch: SpoolBatch) -> bool:
        """Whether it is stored: it is, unless the lease is lost."""
        events = [as_event(spooled) for spooled in batch.events]
        while not self._held.lost:
            try:
                self._held.update(await self._registry.publish(self._held.grant, events))
            except (Unavailable, Exhausted):
                # A repeat to an attempt over its quota is accepted.
                await self._clock.sleep(RETRY_SECONDS)
            except HoldfastError as error:
                self._held.lose(error.message)
            else:
                failpoint("worker.output_sent")
                self._log.mark_sent(batch.end)
                self._stored = batch.events[-1].sequence
                self._unsent -= batch.size
                if self._unsent <= UNSENT_BYTES_MAX:
                    self._room.set()
                return True
        return False


def lost_message(lost: int, attempt: int) -> str:
    """Return the text about output that the spool has lost."""
    count = "1 event" if lost == 1 else f"{lost:,} events"
    return f"{count} of attempt {attempt} could not be read from the worker's spool, and did not arrive."


def as_event(spooled: SpooledEvent) -> Event:
    """Return the event as it is published."""
    return Event(
        event_type=spooled.event_type,
        event_class=EventClass.WORKER,
        occurred_at=datetime.fromtimestamp(spooled.at, UTC),
        sequence=spooled.sequence,
        stream=spooled.stream,
        data=spooled.data,
        attributes=spooled.attributes,
    )
