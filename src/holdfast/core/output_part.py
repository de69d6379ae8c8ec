"""A part of a job's output: its last lines, what came since an instant, one attempt, one stream."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.catalogue import WorkerEventType
from holdfast.core.errors import Invalid
from holdfast.core.event import Event
from holdfast.core.output_chunks import OutputChunk, chunks_of, encode_batch

TAIL_BYTES_MAX = 16 * 1024 * 1024
"""How much output is searched for the last lines, from the end: a line may be of any length."""

_MILLISECOND = timedelta(milliseconds=1)


class OutputPart(Struct, frozen=True, kw_only=True):
    """Which output of a job is asked for: all that fits each of the fields."""

    tail: int | None = None
    since: datetime | None = None
    attempt: int | None = None
    stream: str | None = None

    @property
    def has_start(self) -> bool:
        """Whether the part may begin later than its attempt."""
        return self.tail is not None or self.since is not None

    def check(self, after: str | None) -> None:
        """Raise `Invalid` if there can be no such part."""
        if self.tail is not None and self.tail < 0:
            raise Invalid("tail is a number of lines: 0 or more.")
        if self.since is not None and self.since.tzinfo is None:
            raise Invalid("since is an instant with its zone.")
        if after is not None and self.has_start:
            raise Invalid("tail and since say where to begin; leave them out to go on from a cursor.")

    def of(self, event: Event, start: "OutputStart | None" = None) -> Event | None:
        """Return the event with the output that belongs to the part; None if nothing of it does."""
        if self.attempt is not None and event.attempt != self.attempt:
            return None
        if start is not None and start.follows(event):
            return None
        if start is None and self.stream is None:
            return event
        pieces = list(chunks_of(event))
        kept = [self._kept(piece, event, start) for piece in pieces]
        if all(some is piece.data for some, piece in zip(kept, pieces, strict=True)):
            return event
        if event.event_type == WorkerEventType.OUTPUT:
            return replace(event, data=kept[0] or None)
        items = [
            (piece.stream, some, (piece.at - event.occurred_at) // _MILLISECOND)
            for piece, some in zip(pieces, kept, strict=True)
        ]
        data, attributes = encode_batch(items)
        return replace(event, data=data, attributes=attributes)

    def _kept(self, piece: OutputChunk, event: Event, start: "OutputStart | None") -> bytes:
        if self.stream not in (None, piece.stream):
            return b""
        return piece.data if start is None else start.rest(event, piece)


EVERYTHING = OutputPart()


class OutputStart(Struct, frozen=True, kw_only=True):
    """Where a part begins: at a sequence of an attempt, after some bytes of it. `log_id` is that of the
    event, and `token` the attempt's."""

    log_id: int
    token: int
    sequence: int
    skipped: int = 0

    def follows(self, event: Event) -> bool:
        """Whether all of the event is before the start."""
        if event.sequence is None:
            return False
        return (event.fencing_token or 0, event.last_sequence) < (self.token, self.sequence)

    def rest(self, event: Event, piece: OutputChunk) -> bytes:
        """Return what the piece has after the start."""
        place = (event.fencing_token or 0, piece.sequence)
        if place > (self.token, self.sequence) or (not self.skipped and place == (self.token, self.sequence)):
            return piece.data
        return piece.data[self.skipped :] if place == (self.token, self.sequence) else b""


class StartSearch:
    """Searches for the start of a part, through its attempts' events from the newest one back."""

    def __init__(self, part: OutputPart) -> None:
        self._part = part
        self._lines = part.tail
        self._bytes = 0
        self._token: int | None = None
        self.start: OutputStart | None = None

    def add(self, events: Sequence[Event]) -> bool:
        """Return whether the start was found; otherwise the part begins with these events, or before."""
        return any(map(self._add, events))

    def _add(self, event: Event) -> bool:
        log_id, token = event.log_id or 0, event.fencing_token or 0
        if self.start is None:
            self.start = OutputStart(log_id=log_id, token=token, sequence=event.last_sequence + 1)
        for piece in reversed(list(chunks_of(event))):
            if self._part.stream not in (None, piece.stream):
                continue
            if self._part.since is not None and piece.at < self._part.since:
                return True
            if self._ends_a_line(token, piece.data):
                return True
            skipped = self._skipped(piece.data)
            if skipped and skipped == len(piece.data):
                return True
            self.start = OutputStart(log_id=log_id, token=token, sequence=piece.sequence, skipped=skipped)
            self._bytes += len(piece.data)
            if skipped or self._bytes >= TAIL_BYTES_MAX:
                return True
        return False

    def _ends_a_line(self, token: int, data: bytes) -> bool:
        """Return whether the lines end here because an attempt does: its last line may not have ended."""
        if not data:
            return False
        before, self._token = self._token, token
        if not self._lines or before in (None, token) or data.endswith(b"\n"):
            return False
        self._lines -= 1
        return not self._lines

    def _skipped(self, data: bytes) -> int:
        """Return how many bytes precede the last lines; those that are in this piece are counted."""
        if self._lines is None:
            return 0
        if self._lines == 0:
            return len(data)
        end = len(data)
        if not self._bytes and data.endswith(b"\n"):
            end -= 1  # it ends the last line, and begins none
        while (end := data.rfind(b"\n", 0, end)) >= 0:
            self._lines -= 1
            if not self._lines:
                return end + 1
        return 0
