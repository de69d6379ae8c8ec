"""The quota of an attempt: how many bytes its events may take, and which events are stored."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from holdfast.core.event import Attributes, Event
from holdfast.core.limits import EVENT_BYTES, OUTPUT_ATTEMPT_BYTES_MAX, OUTPUT_RESERVE_BYTES


class QuotaResult(Struct, frozen=True, kw_only=True):
    """The events within the quota, the size of the attempt with them, and how many bytes were dropped."""

    events: Sequence[Event]
    size: int
    dropped: int = 0


def event_bytes(data: bytes | None, attributes: Attributes) -> int:
    """Return the size of an event as the quota counts it."""
    size = EVENT_BYTES + len(data or b"")
    return size + len(msgspec.json.encode(attributes)) if attributes else size


def apply_quota(events: Sequence[Event], size: int, *, full: bool) -> QuotaResult:
    """Return the events that the quota has room for, in an attempt of `size` bytes so far.

    Once output was dropped (`full`), no more of it is stored: a log that ends is better than one with
    holes. Events without output are stored while the reserve lasts.
    """
    sizes = [event_bytes(event.data, event.attributes) for event in events]
    total = size + sum(sizes)
    if total <= OUTPUT_ATTEMPT_BYTES_MAX and not full:
        return QuotaResult(events=events, size=total)
    kept, dropped = [], 0
    for event, more in zip(events, sizes, strict=True):
        output = event.data is not None
        most = OUTPUT_ATTEMPT_BYTES_MAX + (0 if output else OUTPUT_RESERVE_BYTES)
        if size + more > most or (output and full):
            full = full or output
            dropped += len(event.data or b"") or more
        else:
            kept.append(event)
            size += more
    return QuotaResult(events=kept, size=size, dropped=dropped)


_MOST = f"an attempt may publish {OUTPUT_ATTEMPT_BYTES_MAX / 1024**3:g} GiB"
QUOTA_EXCEEDED = f"{_MOST[0].upper()}{_MOST[1:]}; output beyond it is not kept."


def describe_dropped_output(dropped: int, attempt: int) -> str:
    """Return a sentence on output that was dropped, for readers of the log."""
    count = "1 byte was" if dropped == 1 else f"{dropped:,} bytes were"
    return f"{count} not kept of the output of attempt {attempt}: {_MOST}."
