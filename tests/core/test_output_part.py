"""Parts of a job's output: the last lines, since an instant, of one attempt, in one stream."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from holdfast.core import output_part
from holdfast.core.catalogue import EventClass, EventType, WorkerEventType
from holdfast.core.errors import Invalid
from holdfast.core.event import Event
from holdfast.core.output_chunks import chunks_of, encode_batch
from holdfast.core.output_part import EVERYTHING, OutputPart, OutputStart, StartSearch

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


def event(
    sequence: int, data: bytes = b"", *, stream: str = "stdout", attempt: int = 1, second: int | None = None
) -> Event:
    return Event(
        event_type=WorkerEventType.OUTPUT,
        event_class=EventClass.WORKER,
        occurred_at=AT + timedelta(seconds=sequence if second is None else second),
        attempt=attempt,
        fencing_token=attempt,
        sequence=sequence,
        stream=stream,
        data=data,
        log_id=100 * attempt + sequence,
    )


def batch(sequence: int, *chunks: tuple[str, bytes, int]) -> Event:
    """A batch of (stream, bytes, milliseconds after the first)."""
    data, attributes = encode_batch(chunks)
    return Event(
        event_type=WorkerEventType.OUTPUT_BATCH,
        event_class=EventClass.WORKER,
        occurred_at=AT,
        attempt=1,
        fencing_token=1,
        sequence=sequence,
        end_sequence=sequence + len(chunks) - 1,
        data=data,
        attributes=attributes,
        log_id=100 + sequence,
    )


def read(events: Sequence[Event], part: OutputPart) -> bytes:
    """What is left of the log: its start searched from the end, two events at a time."""
    search, newest = StartSearch(part), list(reversed(events))
    pages = [newest[n : n + 2] for n in range(0, len(newest), 2)]
    found = any(search.add(page) for page in pages)
    start = search.start if found else None
    kept = [one for given in events if (one := part.of(given, start)) is not None]
    return b"".join(piece.data for one in kept for piece in chunks_of(one))


LOG = [event(1, b"one\ntw"), event(2, b"o\nthree\n"), event(3, b"four\n")]


@pytest.mark.parametrize(
    ("tail", "left"),
    [
        (0, b""),
        (1, b"four\n"),
        (2, b"three\nfour\n"),
        (3, b"two\nthree\nfour\n"),
        (4, b"one\ntwo\nthree\nfour\n"),
        (9, b"one\ntwo\nthree\nfour\n"),
    ],
)
def test_the_last_lines(tail: int, left: bytes) -> None:
    assert read(LOG, OutputPart(tail=tail)) == left


def test_a_last_line_that_has_not_ended_is_one_too() -> None:
    assert read([*LOG, event(4, b"fi")], OutputPart(tail=1)) == b"fi"
    assert read([*LOG, event(4, b"fi")], OutputPart(tail=2)) == b"four\nfi"


def test_the_end_of_an_attempt_ends_its_last_line() -> None:
    log = [event(1, b"one\ntw"), event(1, b"a\nb\n", attempt=2)]

    assert read(log, OutputPart(tail=2)) == b"a\nb\n"
    assert read(log, OutputPart(tail=3)) == b"twa\nb\n"
    assert read([event(1, b"one\n"), log[1]], OutputPart(tail=2)) == b"a\nb\n"
    assert read([log[0], event(1, b"", attempt=2)], OutputPart(tail=1)) == b"tw"


def test_lines_are_counted_in_the_stream_that_is_asked_for() -> None:
    log = [event(1, b"a\nb\n"), event(2, b"oops\n", stream="stderr"), event(3, b"c\n")]

    assert read(log, OutputPart(tail=2, stream="stdout")) == b"b\nc\n"
    assert read(log, OutputPart(stream="stderr")) == b"oops\n"
    assert read(log, OutputPart(tail=2)) == b"oops\nc\n"


def test_what_was_written_since() -> None:
    assert read(LOG, OutputPart(since=AT + timedelta(seconds=2))) == b"o\nthree\nfour\n"
    assert read(LOG, OutputPart(since=AT + timedelta(seconds=2), tail=1)) == b"four\n"
    assert read(LOG, OutputPart(since=AT + timedelta(seconds=60))) == b""
    assert read(LOG, OutputPart(since=AT)) == b"one\ntwo\nthree\nfour\n"


def test_a_batch_is_cut_within() -> None:
    log = [batch(1, ("stdout", b"a\n", 0), ("stderr", b"b\nc\n", 500), ("stdout", b"d\n", 900))]

    assert read(log, OutputPart(tail=1)) == b"d\n"
    assert read(log, OutputPart(tail=2)) == b"c\nd\n"
    assert read(log, OutputPart(stream="stdout")) == b"a\nd\n"
    assert read(log, OutputPart(since=AT + timedelta(milliseconds=400))) == b"b\nc\nd\n"
    whole = OutputPart(stream="stderr").of(log[0])
    assert whole is not None
    assert [piece.at for piece in chunks_of(whole)] == [piece.at for piece in chunks_of(log[0])]


def test_one_attempt_and_all_that_is_no_output() -> None:
    claimed = Event(
        event_type=EventType.CLAIMED, event_class=EventClass.TRANSITION, occurred_at=AT, attempt=2
    )
    log = [event(1, b"a\n"), claimed, event(1, b"b\n", attempt=2)]

    assert read(log, OutputPart(attempt=2)) == b"b\n"
    assert OutputPart(attempt=2).of(claimed) is claimed
    assert OutputPart(attempt=1).of(claimed) is None
    assert EVERYTHING.of(log[0]) is log[0]
    assert OutputPart(tail=1).of(claimed, StartSearch(OutputPart(tail=1)).start) is claimed
    search = StartSearch(OutputPart(tail=1))
    search.add([log[0]])
    assert OutputPart(tail=1).of(claimed, search.start) is claimed


def test_very_long_lines_are_searched_no_further_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_part, "TAIL_BYTES_MAX", 6)

    assert read([event(n, b"xxx") for n in range(1, 9)], OutputPart(tail=1)) == b"xxxxxx"


def test_impossible_parts_are_refused() -> None:
    with pytest.raises(Invalid, match="0 or more"):
        OutputPart(tail=-1).check(None)
    with pytest.raises(Invalid, match="zone"):
        OutputPart(since=datetime(2026, 1, 1)).check(None)
    with pytest.raises(Invalid, match="cursor"):
        OutputPart(tail=1).check("1.2")
    OutputPart(tail=1, since=AT).check(None)
    OutputPart(attempt=1).check("1.2")


def test_events_without_a_number_or_a_token_have_an_order_too() -> None:
    log = [replace(one, log_id=None, fencing_token=None) for one in LOG]
    search = StartSearch(OutputPart(tail=1))

    assert search.add(log[::-1])
    assert search.start == OutputStart(log_id=0, token=0, sequence=3)
    assert read(log, OutputPart(tail=3)) == b"two\nthree\nfour\n"
    assert not search.start.follows(replace(log[0], sequence=None))


def test_a_start_within_an_event_leaves_out_what_is_before_it() -> None:
    start = OutputStart(log_id=103, token=1, sequence=3, skipped=2)
    pieces = [next(iter(chunks_of(one))) for one in LOG]

    assert [start.rest(one, piece) for one, piece in zip(LOG, pieces, strict=True)] == [b"", b"", b"ur\n"]
    assert [start.follows(one) for one in LOG] == [True, True, False]
    later = event(1, b"x", attempt=2)
    assert start.rest(later, next(iter(chunks_of(later)))) == b"x"
