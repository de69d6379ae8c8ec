"""Rows and values: how a job and an event become columns, and columns a job and an event."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.catalogue import EventClass
from holdfast.core.errors import Corrupt
from holdfast.core.event import Attributes, Event
from holdfast.core.job import CancelRequest, DeadLetter, Failure, Job, Lease, Progress
from holdfast.core.spec import Json, Spec
from holdfast.core.state import State
from holdfast.stores.sqlite.statements import Row

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_encoder = msgspec.json.Encoder()


# The jobs of one batch share most of their moments: a repeat costs 0.05 us, not 0.25 and 0.55.
@lru_cache(maxsize=1024)
def stamp(moment: datetime) -> int:
    """Microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def stamp_maybe(moment: datetime | None) -> int | None:
    return None if moment is None else stamp(moment)


@lru_cache(maxsize=1024)
def moment_of(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


class Detail(Struct, frozen=True, gc=False, omit_defaults=True):
    """The part of a record that nobody searches by."""

    lease: Lease | None = None
    claim_op_id: str | None = None
    cancel: CancelRequest | None = None
    deadline_at: datetime | None = None
    started_at: datetime | None = None
    reason: str | None = None
    error: Failure | None = None
    dead_letter: DeadLetter | None = None
    result: Json = None
    missing_outputs: int | None = None
    handle: dict[str, str] | None = None
    submitted_by: str | None = None
    correlation_id: str | None = None
    trace_id: str | None = None
    heartbeats: int = 0
    published: int = 0
    progress: Progress | None = None
    checkpoint: Json = None


_STATES = {str(state): state for state in State}
_detail = msgspec.json.Decoder(Detail)
_spec = msgspec.json.Decoder(Spec)


def _detail_text(job: Job) -> str:
    detail = Detail(
        job.lease,
        job.claim_op_id,
        job.cancel,
        job.deadline_at,
        job.started_at,
        job.reason,
        job.error,
        job.dead_letter,
        job.result,
        job.missing_outputs,
        job.handle,
        job.submitted_by,
        job.correlation_id,
        job.trace_id,
        job.heartbeats,
        job.published,
        job.progress,
        job.checkpoint,
    )
    return _encoder.encode(detail).decode()


def insert_row(seq: int, job: Job) -> Row:
    """The parameters of insert_job.sql."""
    spec = job.spec
    return (
        seq,
        job.job_id,
        spec.queue,
        spec.kind,
        spec.priority,
        spec.region,
        spec.executor,
        spec.lock,
        stamp(job.created_at),
        _encoder.encode(spec).decode(),
        *_moving(job),
    )


def update_row(seq: int, job: Job, version: int) -> Row:
    """The parameters of update_job.sql, conditional on the version the job was read at."""
    return (*_moving(job), seq, version)


def _moving(job: Job) -> Row:
    lease = job.lease
    return (
        job.state,
        job.attempt,
        job.version,
        job.transition_no,
        job.failures,
        job.crashes,
        job.fencing_token,
        None if lease is None else lease.owner,
        None if lease is None else stamp(lease.expires_at),
        stamp(job.ready_at),
        stamp_maybe(job.due_at),
        stamp(job.updated_at),
        stamp_maybe(job.ended_at),
        _detail_text(job),
    )


def touch_row(seq: int, job: Job) -> Row:
    """The parameters of touch_job.sql: signs of life, guarded by the fencing token."""
    return (
        stamp_maybe(job.lease.expires_at if job.lease else None),
        stamp_maybe(job.due_at),
        stamp(job.updated_at),
        _detail_text(job),
        seq,
        job.version,
        job.fencing_token,
    )


JobRow: TypeAlias = tuple[
    int, str, str, int, int, int, int, int, int, int, int, int, int | None, str, str
]
"""seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token, ready_at,
created_at, updated_at, ended_at, spec, detail: what every query for jobs selects."""


def job_of(row: JobRow) -> tuple[int, Job]:
    """The enqueue sequence and the job of a row."""
    (
        seq,
        job_id,
        state,
        attempt,
        version,
        transition_no,
        failures,
        crashes,
        fencing_token,
        ready_at,
        created_at,
        updated_at,
        ended_at,
        spec,
        detail_text,
    ) = row
    try:
        detail, asked, stands = _detail.decode(detail_text), _spec.decode(spec), _STATES[state]
    except (msgspec.DecodeError, KeyError) as error:
        raise Corrupt(f"The record of job {job_id} cannot be read: {error}") from error
    job = Job(
        job_id=job_id,
        spec=asked,
        state=stands,
        created_at=moment_of(created_at),
        updated_at=moment_of(updated_at),
        ready_at=moment_of(ready_at),
        attempt=attempt,
        version=version,
        transition_no=transition_no,
        failures=failures,
        crashes=crashes,
        fencing_token=fencing_token,
        ended_at=None if ended_at is None else moment_of(ended_at),
        lease=detail.lease,
        claim_op_id=detail.claim_op_id,
        cancel=detail.cancel,
        deadline_at=detail.deadline_at,
        started_at=detail.started_at,
        reason=detail.reason,
        error=detail.error,
        dead_letter=detail.dead_letter,
        result=detail.result,
        missing_outputs=detail.missing_outputs,
        handle=detail.handle,
        submitted_by=detail.submitted_by,
        correlation_id=detail.correlation_id,
        trace_id=detail.trace_id,
        heartbeats=detail.heartbeats,
        published=detail.published,
        progress=detail.progress,
        checkpoint=detail.checkpoint,
    )
    return seq, job


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
        body = _encoder.encode(Body(reason=event.reason, attributes=event.attributes)).decode()
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
        _encoder.encode(Body(attributes=event.attributes, **rest)).decode(),
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
        _encoder.encode(lean).decode(),
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
    except ValueError as error:
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
