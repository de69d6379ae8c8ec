"""The quota of an attempt: how much its events may take, and which of them are kept."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from holdfast.core.event import Attributes, Event
from holdfast.core.limits import EVENT_BYTES, OUTPUT_ATTEMPT_BYTES_MAX, OUTPUT_RESERVE_BYTES


class Kept(Struct, frozen=True, kw_only=True):
    """The events that are kept, what the attempt takes with them, and how many bytes were dropped."""

    events: Sequence[Event]
    size: int
    dropped: int = 0


def event_bytes(data: bytes | None, attributes: Attributes) -> int:
    """What an event counts."""
    size = EVENT_BYTES + len(data or b"")
    return size + len(msgspec.json.encode(attributes)) if attributes else size


def keep(events: Sequence[Event], size: int, *, full: bool) -> Kept:
    """The events that the quota has room for, in an attempt that takes `size` so far.

    Once output was dropped (`full`), no more of it is kept: a log that ends is better than one with holes.
    Events without output are kept while the reserve lasts.
    """
    sizes = [event_bytes(event.data, event.attributes) for event in events]
    total = size + sum(sizes)
    if total <= OUTPUT_ATTEMPT_BYTES_MAX and not full:
        return Kept(events=events, size=total)
    kept, dropped = [], 0
    for event, more in zip(events, sizes, strict=True):
        said = event.data is not None
        most = OUTPUT_ATTEMPT_BYTES_MAX if said else OUTPUT_ATTEMPT_BYTES_MAX + OUTPUT_RESERVE_BYTES
        if size + more > most or (said and full):
            full = full or said
            dropped += len(event.data or b"") or more
        else:
            kept.append(event)
            size += more
    return Kept(events=kept, size=size, dropped=dropped)


_MOST = f"an attempt may publish {OUTPUT_ATTEMPT_BYTES_MAX / 1024**3:g} GiB"
BEYOND_QUOTA = f"{_MOST[0].upper()}{_MOST[1:]}; output beyond it is not kept."


def quota_words(dropped: int, attempt: int) -> str:
    """What a reader is told of output that was dropped."""
    count = "1 byte was" if dropped == 1 else f"{dropped:,} bytes were"
    return f"{count} not kept of what attempt {attempt} said: {_MOST}."
