"""Records: the part of jobs and events that SQL stores keep as JSON, and how the whole is read back."""

from datetime import datetime
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.access import Key
from holdfast.core.catalogue import EventClass
from holdfast.core.event import Attributes, Event
from holdfast.core.job import CancelRequest, DeadLetter, Failure, Flaws, Job, Lease, Progress
from holdfast.core.outputs import Check, Found
from holdfast.core.spec import Json, Spec
from holdfast.core.state import State

DAMAGED = (msgspec.DecodeError, KeyError, OverflowError, TypeError, ValueError)
"""What comes of reading a row that nobody of ours has written like this."""


class Detail(Struct, frozen=True, gc=False, omit_defaults=True):
    """The part of a job that nobody searches by."""

    lease: Lease | None = None
    claim_op_id: str | None = None
    cancel: CancelRequest | None = None
    deadline_at: datetime | None = None
    started_at: datetime | None = None
    reason: str | None = None
    error: Failure | None = None
    dead_letter: DeadLetter | None = None
    result: Json = None
    found: Found | None = None
    handle: dict[str, str] | None = None
    submitted_by: str | None = None
    correlation_id: str | None = None
    trace_id: str | None = None
    traceparent: str | None = None
    heartbeats: int = 0
    published: int = 0
    progress: Progress | None = None
    checkpoint: Json = None
    check: Check | None = None
    not_understood: int = 0
    completed_at: datetime | None = None
    flaws: Flaws | None = None
    published_bytes: int = 0
    not_started: int = 0


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


_encoder = msgspec.json.Encoder()
_detail = msgspec.json.Decoder(Detail)
_spec = msgspec.json.Decoder(Spec)
_body = msgspec.json.Decoder(Body)
_events = msgspec.json.Decoder(list[Event])
_key = msgspec.json.Decoder(Key)
_STATES = {str(state): state for state in State}
_CLASSES = {str(kind): kind for kind in EventClass}
_BODY_FIELDS = tuple(name for name in Body.__struct_fields__ if name != "attributes")


def spec_text(job: Job) -> str:
    return _encoder.encode(job.spec).decode()


def detail_text(job: Job) -> str:
    return _encoder.encode(
        Detail(
            job.lease,
            job.claim_op_id,
            job.cancel,
            job.deadline_at,
            job.started_at,
            job.reason,
            job.error,
            job.dead_letter,
            job.result,
            job.found,
            job.handle,
            job.submitted_by,
            job.correlation_id,
            job.trace_id,
            job.traceparent,
            job.heartbeats,
            job.published,
            job.progress,
            job.checkpoint,
            job.check,
            job.not_understood,
            job.completed_at,
            job.flaws,
            job.published_bytes,
            job.not_started,
        )
    ).decode()


JobColumns: TypeAlias = tuple[
    str, str, int, int, int, int, int, int, datetime, datetime, datetime, datetime | None, str, str
]


def job_from(columns: JobColumns) -> Job:
    """The job of these columns; raises one of `DAMAGED` when they make none."""
    (
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
        detail_json,
    ) = columns
    detail = _detail.decode(detail_json)
    # By place: names would cost 1.5 us more. The order is that of Job's fields.
    return Job(
        job_id,
        _spec.decode(spec),
        _STATES[state],
        created_at,
        updated_at,
        ready_at,
        attempt,
        version,
        transition_no,
        failures,
        crashes,
        fencing_token,
        detail.lease,
        detail.claim_op_id,
        detail.cancel,
        detail.deadline_at,
        detail.started_at,
        ended_at,
        detail.reason,
        detail.error,
        detail.dead_letter,
        detail.result,
        detail.found,
        detail.handle,
        detail.submitted_by,
        detail.correlation_id,
        detail.trace_id,
        detail.traceparent,
        detail.heartbeats,
        detail.published,
        detail.progress,
        detail.checkpoint,
        detail.check,
        detail.not_understood,
        detail.completed_at,
        detail.flaws,
        detail.published_bytes,
        detail.not_started,
    )


def event_text(event: Event) -> str | None:
    """The body of a registry event. Most have nothing beyond their columns."""
    if (
        event.reason is None
        and not event.attributes
        and event.cause is None
        and event.trace_id is None
        and event.correlation_id is None
    ):
        return None
    body = Body(
        reason=event.reason,
        cause=event.cause,
        correlation_id=event.correlation_id,
        trace_id=event.trace_id,
        attributes=event.attributes,
    )
    return _encoder.encode(body).decode()


def fact_text(event: Event) -> str:
    rest = {name: getattr(event, name) for name in _BODY_FIELDS}
    return _encoder.encode(Body(attributes=event.attributes, **rest)).decode()


def batch_text(events: tuple[Event, ...]) -> str:
    """The body of one row for all the events of a batch."""
    lean = [
        replace(event, job_id=None, attempt=None, fencing_token=None, actor=None, received_at=None)
        for event in events
    ]
    return _encoder.encode(lean).decode()


EventColumns: TypeAlias = tuple[
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
    datetime,
    datetime | None,
    str | None,
    str | None,
]


def events_from(columns: EventColumns) -> list[Event]:
    """The event of these columns, or the events of a batch; raises one of `DAMAGED`."""
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
        body_json,
    ) = columns
    if sequence is not None:
        return [
            replace(
                event,
                job_id=job_id,
                attempt=attempt,
                fencing_token=fencing_token,
                actor=actor,
                received_at=received_at,
                log_id=log_id,
            )
            for event in _events.decode(body_json or "[]")
        ]
    body = _NOTHING if body_json is None else _body.decode(body_json)
    rest = {name: getattr(body, name) for name in _BODY_FIELDS}
    return [
        Event(
            event_type=event_type,
            event_class=_CLASSES[event_class],
            occurred_at=occurred_at,
            job_id=job_id,
            offset=offset,
            transition_no=transition_no,
            from_state=None if from_state is None else _STATES[from_state],
            to_state=None if to_state is None else _STATES[to_state],
            attempt=attempt,
            fencing_token=fencing_token,
            op_id=op_id,
            actor=actor,
            received_at=received_at,
            given_id=given_id,
            attributes=body.attributes,
            log_id=log_id,
            **rest,
        )
    ]


_NOTHING = Body()


def key_text(key: Key) -> str:
    return _encoder.encode(key).decode()


def key_from(record: str) -> Key:
    """The key of this record; raises one of `DAMAGED` when it is none."""
    return _key.decode(record)
