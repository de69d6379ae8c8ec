"""Pieces: output is read the same, whether it came alone or in a batch."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.event import Attributes, Event
from holdfast.core.output_chunks import OutputChunk, chunks_of, encode_batch

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def said(kind: str, *, data: bytes | None = None, **more: object) -> Event:
    return Event(kind, EventClass.WORKER, NOW, sequence=7, data=data, **more)  # type: ignore[arg-type]


def test_a_single_output_is_one_piece() -> None:
    event = said(WorkerEventType.OUTPUT, data=b"hi", stream="stderr")

    assert list(chunks_of(event)) == [OutputChunk(7, "stderr", b"hi", NOW)]


def test_output_without_a_stream_is_of_stdout() -> None:
    [piece] = chunks_of(said(WorkerEventType.OUTPUT, data=b""))

    assert (piece.stream, piece.data) == ("stdout", b"")


def test_a_batch_is_its_pieces_each_with_its_own_sequence_stream_and_time() -> None:
    data, attributes = encode_batch([("stdout", b"one", 0), ("stderr", b"", 5), ("stdout", b"three", 90)])
    event = said(WorkerEventType.OUTPUT_BATCH, data=data, attributes=attributes, end_sequence=9)

    assert list(chunks_of(event)) == [
        OutputChunk(7, "stdout", b"one", NOW),
        OutputChunk(8, "stderr", b"", NOW + timedelta(milliseconds=5)),
        OutputChunk(9, "stdout", b"three", NOW + timedelta(milliseconds=90)),
    ]


def test_a_batch_without_data_has_empty_pieces() -> None:
    event = said(WorkerEventType.OUTPUT_BATCH, attributes={"items": [["stdout", 3]]})

    [piece] = chunks_of(event)
    assert (piece.data, piece.at) == (b"", NOW)


@pytest.mark.parametrize("attributes", [{}, {"items": "x"}, {"items": [[1, 2]]}, {"items": [[]]}])
def test_a_batch_that_says_nothing_of_its_pieces_has_none(attributes: Attributes) -> None:
    event = said(WorkerEventType.OUTPUT_BATCH, data=b"abc", attributes=attributes)

    assert list(chunks_of(event)) == []


def test_output_without_a_sequence_is_at_0() -> None:
    event = replace(said(WorkerEventType.OUTPUT, data=b"x"), sequence=None)

    assert [piece.sequence for piece in chunks_of(event)] == [0]


def test_only_a_batch_is_read_as_one() -> None:
    attributes: Attributes = {"items": [["stdout", 3]]}

    assert list(chunks_of(said("custom", data=b"abc", attributes=attributes))) == []


def test_a_delay_beyond_all_calendars_is_none() -> None:
    attributes: Attributes = {"items": [["stdout", 1, 2**63]]}
    [piece] = chunks_of(said(WorkerEventType.OUTPUT_BATCH, data=b"a", attributes=attributes))

    assert piece.at == NOW


@pytest.mark.parametrize(
    "event", [said(WorkerEventType.PROCESS_START), said(WorkerEventType.OUTPUT), said("custom")]
)
def test_what_is_no_output_has_no_pieces(event: Event) -> None:
    assert list(chunks_of(event)) == []
