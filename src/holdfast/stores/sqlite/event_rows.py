"""Rows of events: how an event becomes columns, and columns one event or a batch."""

from datetime import datetime
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.catalogue import EventClass
from holdfast.core.errors import Corrupt
from holdfast.core.event import Attributes, Event
from holdfast.core.state import State
from holdfast.stores.sqlite.statements import Row
from holdfast.stores.sqlite.values import DAMAGED, encoder, moment_of, stamp, stamp_maybe


class Body(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The part of an event that nobody searches by."""

    reason: str | None = None
    cause: str | None = None
    task_id: str | None = None
    correlation_id: str | None = None
    execution_id: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    expires_at: datetime | None = None
    stream: str | None = None
    data: bytes | None = None
    attributes: Attributes = {}
    schema_version: int = 1


_body = msgspec.json.Decoder(Body)
_events = msgspec.json.Decoder(list[Event])
_BODY_FIELDS = tuple(name for name in Body.__struct_fields__ if name != "attributes")


def event_row(log_id: int, seq: int, event: Event) -> Row:
    """The parameters of insert_event.sql. Most registry events have nothing beyond their columns."""
    body = None
    if event.reason is not None or event.attributes:
        body = encoder.encode(Body(reason=event.reason, attributes=event.attributes)).decode()
    return (
        log_id,
        seq,
        event.offset,
        event.transition_no,
        event.event_type,
        event.event_class,
        event.from_state,
        event.to_state,
        event.attempt,
        event.fencing_token,
        event.op_id,
        event.actor,
        stamp(event.occurred_at),
        body,
    )


def fact_row(log_id: int, event: Event) -> Row:
    """The parameters of record_event.sql."""
    rest = {name: getattr(event, name) for name in _BODY_FIELDS}
    return (
        log_id,
        event.event_type,
        event.event_class,
        event.attempt,
        event.fencing_token,
        event.op_id,
        event.actor,
        stamp(event.occurred_at),
        stamp_maybe(event.received_at),
        event.given_id,
        event.job_id,
        encoder.encode(Body(attributes=event.attributes, **rest)).decode(),
    )


def batch_row(log_id: int, seq: int, events: tuple[Event, ...]) -> Row:
    """The parameters of insert_batch.sql: one row for all the events of a batch."""
    first, last = events[0], events[-1]
    lean = [
        replace(event, job_id=None, attempt=None, fencing_token=None, actor=None, received_at=None)
        for event in events
    ]
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
        stamp(first.occurred_at),
        stamp_maybe(first.received_at),
        encoder.encode(lean).decode(),
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
    """The event of a row, or the events of a batch."""
    try:
        return _events_of(row)
    except DAMAGED as error:
        raise Corrupt(f"Event {row[0]} of the log cannot be read: {error}") from error


def _events_of(row: EventRow) -> list[Event]:
    (
        log_id,
        job_id,
        offset,
        transition_no,
        event_type,
        event_class,
        from_state,
        to_state,
        attempt,
        fencing_token,
        sequence,
        _end_sequence,
        op_id,
        actor,
        occurred_at,
        received_at,
        given_id,
        body_text,
    ) = row
    received = None if received_at is None else moment_of(received_at)
    if sequence is not None:
        return [
            replace(
                event,
                job_id=job_id,
                attempt=attempt,
                fencing_token=fencing_token,
                actor=actor,
                received_at=received,
                log_id=log_id,
            )
            for event in _events.decode(body_text or "[]")
        ]
    body = Body() if body_text is None else _body.decode(body_text)
    rest = {name: getattr(body, name) for name in _BODY_FIELDS}
    return [
        Event(
            event_type=event_type,
            event_class=EventClass(event_class),
            occurred_at=moment_of(occurred_at),
            job_id=job_id,
            offset=offset,
            transition_no=transition_no,
            from_state=None if from_state is None else State(from_state),
            to_state=None if to_state is None else State(to_state),
            attempt=attempt,
            fencing_token=fencing_token,
            op_id=op_id,
            actor=actor,
            received_at=received,
            given_id=given_id,
            attributes=body.attributes,
            log_id=log_id,
            **rest,
        )
    ]
