"""Output chunks: the output in an event, which is one chunk or a batch of them."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from holdfast.core.catalogue import WorkerEventType
from holdfast.core.event import Attributes, Event


class OutputChunk(Struct, frozen=True, gc=False):
    """Some bytes of one stream. In a batch, each chunk has a sequence of its own."""

    sequence: int
    stream: str
    data: bytes
    at: datetime


class _Item(Struct, frozen=True, array_like=True):
    """The stream and length of a chunk in a batch, and how long after the first one it came."""

    stream: str
    length: int
    delay_ms: int = 0


def encode_batch(chunks: Sequence[tuple[str, bytes, int]]) -> tuple[bytes, Attributes]:
    """Return the data and the attributes of a batch of (stream, bytes, milliseconds after the first)."""
    items = [[stream, len(data), delay] for stream, data, delay in chunks]
    return b"".join(data for _, data, _ in chunks), {"items": items}


def chunks_of(event: Event) -> Iterator[OutputChunk]:
    """Yield the output in an event, in order; nothing for other events. Wrong attributes of a batch are
    ignored: older versions stored batches without checking them."""
    sequence = event.sequence or 0
    if event.event_type == WorkerEventType.OUTPUT and event.data is not None:
        yield OutputChunk(sequence, event.stream or "stdout", event.data, event.occurred_at)
    elif event.event_type == WorkerEventType.OUTPUT_BATCH:
        data, start = event.data or b"", 0
        for n, item in enumerate(_items(event)):
            part = data[start : start + item.length]
            yield OutputChunk(sequence + n, item.stream, part, _add_delay(event.occurred_at, item.delay_ms))
            start += item.length


def _add_delay(instant: datetime, milliseconds: int) -> datetime:
    try:
        return instant + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return instant


def _items(event: Event) -> list[_Item]:
    try:
        return msgspec.convert(event.attributes.get("items", []), list[_Item])
    except msgspec.ValidationError:
        return []
