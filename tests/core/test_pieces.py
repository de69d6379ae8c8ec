"""Pieces: output is read the same, whether it came alone or in a batch."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.event import Attributes, Event
from holdfast.core.pieces import Piece, batch, pieces

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def said(kind: str, *, data: bytes | None = None, **more: object) -> Event:
    return Event(kind, EventClass.WORKER, NOW, sequence=7, data=data, **more)  # type: ignore[arg-type]


def test_a_single_output_is_one_piece() -> None:
    event = said(WorkerEventType.OUTPUT, data=b"hi", stream="stderr")

    assert list(pieces(event)) == [Piece(7, "stderr", b"hi", NOW)]


def test_output_without_a_stream_is_of_stdout() -> None:
    [piece] = pieces(said(WorkerEventType.OUTPUT, data=b""))

    assert (piece.stream, piece.data) == ("stdout", b"")


def test_a_batch_is_its_pieces_each_with_its_own_sequence_stream_and_time() -> None:
    data, attributes = batch([("stdout", b"one", 0), ("stderr", b"", 5), ("stdout", b"three", 90)])
    event = said(WorkerEventType.OUTPUT_BATCH, data=data, attributes=attributes, end_sequence=9)

    assert list(pieces(event)) == [
        Piece(7, "stdout", b"one", NOW),
        Piece(8, "stderr", b"", NOW + timedelta(milliseconds=5)),
        Piece(9, "stdout", b"three", NOW + timedelta(milliseconds=90)),
    ]


def test_a_batch_without_data_has_empty_pieces() -> None:
    event = said(WorkerEventType.OUTPUT_BATCH, attributes={"items": [["stdout", 3]]})

    assert [piece.data for piece in pieces(event)] == [b""]


@pytest.mark.parametrize("attributes", [{}, {"items": "x"}, {"items": [[1, 2]]}, {"items": [[]]}])
def test_a_batch_that_says_nothing_of_its_pieces_has_none(attributes: Attributes) -> None:
    event = said(WorkerEventType.OUTPUT_BATCH, data=b"abc", attributes=attributes)

    assert list(pieces(event)) == []


@pytest.mark.parametrize(
    "event", [said(WorkerEventType.PROCESS_START), said(WorkerEventType.OUTPUT), said("custom")]
)
def test_what_is_no_output_has_no_pieces(event: Event) -> None:
    assert list(pieces(event)) == []
