"""Pieces: the output in an event, which may be one piece or a batch of them."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from holdfast.core.catalogue import WorkerEventType
from holdfast.core.event import Attributes, Event


class Piece(Struct, frozen=True, gc=False):
    """Some bytes of one stream. In a batch, each piece has a sequence of its own."""

    sequence: int
    stream: str
    data: bytes
    at: datetime


class _Item(Struct, frozen=True, array_like=True):
    """Where in a batch's data a piece lies, and how long after the first it came."""

    stream: str
    length: int
    delay_ms: int = 0


def batch(pieces: Sequence[tuple[str, bytes, int]]) -> tuple[bytes, Attributes]:
    """The data and the attributes of a batch of (stream, bytes, milliseconds after the first)."""
    items = [[stream, len(data), delay] for stream, data, delay in pieces]
    return b"".join(data for _, data, _ in pieces), {"items": items}


def pieces(event: Event) -> Iterator[Piece]:
    """The output in an event, in order; none in one that is no output. What a batch says wrongly about
    itself is passed over: it was checked when it came, but not by us if it is old."""
    sequence = event.sequence or 0
    if event.event_type == WorkerEventType.OUTPUT and event.data is not None:
        yield Piece(sequence, event.stream or "stdout", event.data, event.occurred_at)
    elif event.event_type == WorkerEventType.OUTPUT_BATCH:
        data, start = event.data or b"", 0
        for n, item in enumerate(_items(event)):
            piece = data[start : start + item.length]
            yield Piece(sequence + n, item.stream, piece, _later(event.occurred_at, item.delay_ms))
            start += item.length


def _later(moment: datetime, milliseconds: int) -> datetime:
    try:
        return moment + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return moment


def _items(event: Event) -> list[_Item]:
    try:
        return msgspec.convert(event.attributes.get("items", []), list[_Item])
    except msgspec.ValidationError:
        return []
