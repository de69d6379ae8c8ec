"""Conversion of events to rows, and of rows to events. Registry events are in segments (`core.segment`)."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TypeAlias

from msgspec.structs import replace

from holdfast.core import segment
from holdfast.core.catalogue import EventClass
from holdfast.core.errors import Corrupt
from holdfast.core.event import Event
from holdfast.core.segment import JobKey
from holdfast.stores.records import DAMAGED, batch_text, events_from, fact_text
from holdfast.stores.sqlite.statements import Row
from holdfast.stores.sqlite.timestamps import (
    from_microseconds,
    from_microseconds_or_none,
    to_microseconds,
    to_microseconds_or_none,
)


def fact_row(log_id: int, event: Event) -> Row:
    """The parameters of insert_fact."""
    return (
        log_id,
        event.event_type,
        event.event_class,
        event.attempt,
        event.fencing_token,
        event.op_id,
        event.actor,
        to_microseconds(event.occurred_at),
        to_microseconds_or_none(event.received_at),
        event.given_id,
        event.job_id,
        fact_text(event),
    )


def batches(events: tuple[Event, ...]) -> list[tuple[Event, ...]]:
    """Split what a worker published into rows: all events of a row have one type, so that they are found by
    it."""
    return [tuple(alike) for _, alike in groupby(events, key=lambda event: event.event_type)]


def batch_row(log_id: int, seq: int, events: tuple[Event, ...]) -> Row:
    """The parameters of insert_batch: one row for all the events of a batch."""
    first, last = events[0], events[-1]
    return (
        log_id,
        seq,
        first.event_type,
        EventClass.WORKER,
        first.attempt,
        first.fencing_token,
        first.sequence,
        last.last_sequence,
        first.actor,
        to_microseconds(first.occurred_at),
        to_microseconds_or_none(first.received_at),
        batch_text(events),
    )


EventRow: TypeAlias = tuple[
    int,
    str | None,
    int | None,
    int | None,
    str,
    str,
    str | None,
    str | None,
    int | None,
    int | None,
    int | None,
    int | None,
    str | None,
    str | None,
    int,
    int | None,
    str | None,
    str | None,
]
"""log_id, job_id, event_offset, transition_no, event_type, event_class, from_state, to_state,
attempt, fencing_token, sequence, end_sequence, op_id, actor, occurred_at, received_at, given_id, body:
what every query for events selects."""


def events_of(row: EventRow) -> list[Event]:
    """Return the event of a row, or the events of a batch."""
    try:
        return events_from(
            (*row[:14], from_microseconds(row[14]), from_microseconds_or_none(row[15]), *row[16:])
        )
    except DAMAGED as error:
        raise Corrupt(f"Event {row[0]} of the log cannot be read: {error}") from error


def segment_events(number: int, text: str, job_ids: Mapping[JobKey, str | None]) -> Iterator[Event]:
    """Yield the events that these jobs have in the segment with this number."""
    try:
        for place, event in segment.decode(text, job_ids):
            yield replace(event, log_id=segment.log_id(number, place))
    except DAMAGED as error:
        raise Corrupt(f"Segment {number} of the log cannot be read: {error}") from error
