"""Output: what a process writes, numbered, batched, and published before the job may end."""

import asyncio
from asyncio import StreamReader

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.errors import HoldfastError, Unavailable
from holdfast.core.event import Attributes, Event
from holdfast.core.limits import (
    OUTPUT_ATTEMPT_BYTES_MAX,
    OUTPUT_BATCH_BYTES_MAX,
    OUTPUT_BATCH_ITEMS_MAX,
    OUTPUT_CHUNK_BYTES_MAX,
)
from holdfast.failpoint import failpoint
from holdfast.ports import Clock, Registry
from holdfast.worker.hold import Hold
from holdfast.worker.redaction import Redactor

FLUSH_SECONDS = 0.1
RETRY_SECONDS = 0.5
WAITING_BYTES_MAX = 4 * OUTPUT_BATCH_BYTES_MAX


class Output:
    """Numbers the attempt's events from 1 and publishes them in order. Readers wait when it lags,
    so that a job which writes faster than the store takes is slowed, never cut and never kept whole
    in memory."""

    def __init__(self, registry: Registry, clock: Clock, hold: Hold) -> None:
        self._registry = registry
        self._clock = clock
        self._hold = hold
        self._sequence = 0
        self._written = 0
        self._waiting: list[Event] = []
        self._waiting_bytes = 0
        self._some = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closed = False

    def tell(self, event_type: WorkerEventType, **attributes: object) -> None:
        """Add an event of the worker's own."""
        self._add(event_type, attributes=attributes)

    async def pump(self, reader: StreamReader, stream: str, redactor: Redactor) -> None:
        """Read one stream of the process to its end."""
        while chunk := await reader.read(OUTPUT_CHUNK_BYTES_MAX):
            self._write(redactor.feed(chunk), stream)
            await self._room.wait()
        self._write(redactor.flush(), stream)

    def _write(self, data: bytes, stream: str) -> None:
        room = OUTPUT_ATTEMPT_BYTES_MAX - self._written
        if room <= 0 or not data:
            return
        self._written += len(data)
        for start in range(0, min(len(data), room), OUTPUT_CHUNK_BYTES_MAX):
            piece = data[start : min(start + OUTPUT_CHUNK_BYTES_MAX, room)]
            self._add(WorkerEventType.OUTPUT, stream=stream, data=piece)
        if len(data) >= room:
            self.tell(
                WorkerEventType.PROCESS_ERROR, error_message="Output beyond 1 GiB is not kept."
            )

    def _add(
        self,
        event_type: WorkerEventType,
        *,
        stream: str | None = None,
        data: bytes | None = None,
        attributes: Attributes | None = None,
    ) -> None:
        if self._hold.lost:
            return
        self._sequence += 1
        self._waiting.append(
            Event(
                event_type=event_type,
                event_class=EventClass.WORKER,
                occurred_at=self._clock.now(),
                sequence=self._sequence,
                stream=stream,
                data=data,
                attributes=attributes or {},
            )
        )
        self._waiting_bytes += len(data or b"")
        if self._waiting_bytes > WAITING_BYTES_MAX:
            self._room.clear()
        self._some.set()

    def close(self) -> None:
        """There is no more; `publish` returns when all of it is stored."""
        self._closed = True
        self._some.set()

    async def publish(self) -> None:
        """Store what waits, in order, until closed and empty, or the lease is lost. Whatever else
        stops it loses the hold: a job whose output cannot be stored must not end as if it could."""
        try:
            await self._publish()
        except Exception as error:
            self._hold.lose(f"its output could not be stored: {error!r}")
            raise
        finally:
            self._waiting.clear()
            self._room.set()

    async def _publish(self) -> None:
        while not self._hold.lost:
            await self._some.wait()
            if not self._waiting:
                if self._closed:
                    return
                self._some.clear()
                continue
            if not self._closed and not self._full():
                await self._clock.sleep(FLUSH_SECONDS)
            await self._send(self._batch())

    def _full(self) -> bool:
        full = len(self._waiting) >= OUTPUT_BATCH_ITEMS_MAX
        return full or self._waiting_bytes >= OUTPUT_BATCH_BYTES_MAX

    def _batch(self) -> list[Event]:
        count = size = 0
        for event in self._waiting[:OUTPUT_BATCH_ITEMS_MAX]:
            size += len(event.data or b"")
            if count and size > OUTPUT_BATCH_BYTES_MAX:
                break
            count += 1
        return self._waiting[:count]

    async def _send(self, batch: list[Event]) -> None:
        while not self._hold.lost:
            try:
                self._hold.heard(await self._registry.publish(self._hold.grant, batch))
            except Unavailable:
                await self._clock.sleep(RETRY_SECONDS)
            except HoldfastError as error:
                self._hold.lose(error.message)
            else:
                failpoint("worker.output_sent")
                del self._waiting[: len(batch)]
                self._waiting_bytes -= sum(len(event.data or b"") for event in batch)
                self._room.set()
                return
