"""Records: the part of jobs and events that SQL stores write as JSON, and how rows become values again."""

from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import fields, replace

from holdfast.core.access import Key
from holdfast.core.catalogue import EventClass
from holdfast.core.event import Attributes, Event
from holdfast.core.job import Job
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.core.workers import WorkerInfo

DAMAGED = (msgspec.DecodeError, KeyError, OverflowError, TypeError, ValueError)
"""The exceptions that decoding raises for a row that holdfast cannot have written."""


COLUMNS = (
    "job_id",
    "state",
    "attempt",
    "version",
    "transition_no",
    "failures",
    "crashes",
    "fencing_token",
    "ready_at",
    "created_at",
    "updated_at",
    "ended_at",
    "spec",
)
"""The fields of a job that have a column of their own, in the order in which rows are read. All other
fields are the detail: one JSON column, so that a new field of `Job` needs no migration."""
_DETAIL = tuple(name for name in Job.__struct_fields__ if name not in COLUMNS)

Detail = msgspec.defstruct(
    "Detail",
    [(field.name, field.type, field.default) for field in fields(Job) if field.name in _DETAIL],
    frozen=True,
    gc=False,
    omit_defaults=True,
)
"""The fields of a job that no query filters or sorts by. A detail field of `Job` must have a default: a
record from before the field was added lacks it."""


class Body(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The fields of an event that no query filters by."""

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
_decode_detail = msgspec.json.Decoder(Detail).decode
_decode_spec = msgspec.json.Decoder(Spec).decode
_body = msgspec.json.Decoder(Body)
_events = msgspec.json.Decoder(list[Event])
_key = msgspec.json.Decoder(Key)
_worker = msgspec.json.Decoder(WorkerInfo)
_STATES = {str(state): state for state in State}
_CLASSES = {str(kind): kind for kind in EventClass}
_BODY_FIELDS = tuple(name for name in Body.__struct_fields__ if name != "attributes")


def spec_text(job: Job) -> str:
    return _encoder.encode(job.spec).decode()


def detail_text(job: Job) -> str:
    return _encoder.encode(_detail_of(job)).decode()


JobColumns: TypeAlias = tuple[
    str, str, int, int, int, int, int, int, datetime, datetime, datetime, datetime | None, str, str
]
"""The values of `COLUMNS`, and the detail."""


def job_from(columns: JobColumns) -> Job:
    """Return the job of these columns; raise one of `DAMAGED` when they do not hold one."""
    return _job_of(columns, _decode_detail(columns[-1]))


# The two calls that name every field are compiled from the field lists, as `dataclasses` does it: two
# fields cannot be swapped, at no cost. attrgetter and itemgetter took 1.6 times as long.
_JOB_VALUES = {name: f"detail.{name}" for name in Job.__struct_fields__}
_JOB_VALUES |= {name: f"columns[{place}]" for place, name in enumerate(COLUMNS)}
_JOB_VALUES["spec"] = f"decode_spec({_JOB_VALUES['spec']})"
_JOB_VALUES["state"] = f"states[{_JOB_VALUES['state']}]"
_scope = {"Job": Job, "Detail": Detail, "decode_spec": _decode_spec, "states": _STATES}
_detail_of: Callable[[Job], Struct] = eval(  # noqa: S307
    f"lambda job: Detail({', '.join(f'job.{name}' for name in _DETAIL)})", _scope
)
_job_of: Callable[[JobColumns, Struct], Job] = eval(  # noqa: S307
    f"lambda columns, detail: Job({', '.join(_JOB_VALUES.values())})", _scope
)


def event_text(event: Event) -> str | None:
    """Return the body of a registry event; None for most, which have nothing beyond their columns."""
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
    """Return the body of the one row that holds all events of a worker's batch."""
    stripped = [
        replace(event, job_id=None, attempt=None, fencing_token=None, actor=None, received_at=None)
        for event in events
    ]
    return _encoder.encode(stripped).decode()


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
    """Return the event of these columns, or the events of a batch; raise one of `DAMAGED`."""
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
    body = _EMPTY_BODY if body_json is None else _body.decode(body_json)
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


_EMPTY_BODY = Body()


def key_text(key: Key) -> str:
    return _encoder.encode(key).decode()


def key_from(record: str) -> Key:
    """Return the key of this record; raise one of `DAMAGED` when it does not hold one."""
    return _key.decode(record)


def worker_text(worker: WorkerInfo) -> str:
    return _encoder.encode(worker).decode()


def worker_from(record: str) -> WorkerInfo:
    """Return the worker of this record; raise one of `DAMAGED` when it does not hold one."""
    return _worker.decode(record)
