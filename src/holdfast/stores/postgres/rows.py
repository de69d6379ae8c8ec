"""Conversion of jobs, events and API keys to rows, and of rows to them."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import fields, replace

from holdfast.core.access import Key
from holdfast.core.errors import Corrupt
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle.pattern import Template, shared_terms
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.core.workers import WorkerInfo
from holdfast.stores.postgres.statements import Row
from holdfast.stores.records import (
    COLUMNS,
    DAMAGED,
    events_from,
    key_from,
    key_text,
    worker_from,
    worker_text,
)

_ORIGIN = ("submitted_by", "correlation_id", "trace_id", "traceparent")
"""The fields of a job that never change, have no column of their own and are not in its spec."""

_DETAIL = tuple(name for name in Job.__struct_fields__ if name not in (*COLUMNS, *_ORIGIN))


def _struct(name: str, names: tuple[str, ...]) -> type[Struct]:
    chosen = [(field.name, field.type, field.default) for field in fields(Job) if field.name in names]
    return msgspec.defstruct(name, chosen, frozen=True, gc=False, omit_defaults=True)


Origin = _struct("Origin", _ORIGIN)
Detail = _struct("Detail", _DETAIL)
"""What changes about a job and has no column. Like those of `Origin`, each of these fields has a default."""

_encode = msgspec.json.Encoder().encode
_decode_origin = lru_cache(maxsize=1024)(msgspec.json.Decoder(Origin).decode)
_decode_detail = msgspec.json.Decoder(Detail).decode
_decode_spec = msgspec.json.Decoder(Spec).decode

# The calls that name every field are compiled from the field lists, as in `stores/records.py`.
_JOB_VALUES = {name: f"detail.{name}" for name in _DETAIL}
_JOB_VALUES |= {name: f"origin.{name}" for name in _ORIGIN}
_JOB_VALUES |= {name: f"row[{place + 1}]" for place, name in enumerate(COLUMNS)}
_JOB_VALUES["spec"] = f"decode_spec({_JOB_VALUES['spec']})"
_JOB_VALUES["state"] = f"states[{_JOB_VALUES['state']}]"
_scope = {
    "Job": Job,
    "Detail": Detail,
    "Origin": Origin,
    "decode_spec": _decode_spec,
    "states": {str(state): state for state in State},
}
_job: Callable[[Row, Any, Any], Job] = eval(  # noqa: S307
    f"lambda row, origin, detail: Job({', '.join(_JOB_VALUES[name] for name in Job.__struct_fields__)})",
    _scope,
)
_origin_of: Callable[[Job], Struct] = eval(  # noqa: S307
    f"lambda job: Origin({', '.join(f'job.{name}' for name in _ORIGIN)})", _scope
)
_detail_of: Callable[[Job], Struct] = eval(  # noqa: S307
    f"lambda job: Detail({', '.join(f'job.{name}' for name in _DETAIL)})", _scope
)


def origin_text(job: Job) -> str:
    return _encode(_origin_of(job)).decode()


def detail_text(job: Job) -> str:
    return _encode(_detail_of(job)).decode()


def job_of(row: Row) -> tuple[int, Job]:
    """Return the number and the job of a row: what every query for jobs selects."""
    try:
        return row[0], _job(row, _decode_origin(row[14]), _decode_detail(row[15]))
    except DAMAGED as error:
        raise _unreadable(row, error) from error


def alike_jobs(rows: Iterable[Row]) -> Iterator[tuple[int, Job, Template | None]]:
    """Yield the number and the job of each row, with a template for those that are alike; None for a job with
    something special about it."""
    templates: dict[Hashable, Template] = {}
    text, spec, terms = "", _NO_SPEC, ()
    latest: Hashable = None
    template: Template | None = None
    for row in rows:
        if row[15] != _NO_DETAIL:
            yield (*job_of(row), None)
            continue
        if row[13] == text:
            spec = replace(spec, labels=dict(spec.labels))
        else:
            text, spec = row[13], _spec_of(row)
            terms = shared_terms(spec)
        if (alike := (row[2:9], row[12], row[14], terms)) != latest:
            latest, template = alike, templates.get(alike)
        if template is None:
            seq, job = job_of(row)
            templates[alike] = template = Template(job)
            yield seq, job, template
        else:
            yield row[0], template.another(row[1], spec, row[10], row[11], row[9]), template


def _spec_of(row: Row) -> Spec:
    try:
        return _decode_spec(row[13])
    except DAMAGED as error:
        raise _unreadable(row, error) from error


def _unreadable(row: Row, error: Exception) -> Corrupt:
    return Corrupt(f"The record of job {row[1]} cannot be read: {error}")


_NO_DETAIL = "{}"
_NO_SPEC = Spec()


def events_of(row: Row) -> list[Event]:
    """The event of a row, or the events of a batch: what every query for events selects."""
    try:
        return events_from(row)
    except DAMAGED as error:
        raise Corrupt(f"Event {row[0]} of the log cannot be read: {error}") from error


def key_row(key: Key) -> Row:
    """The parameters of put_api_key."""
    return (key.key_id, key.created_at, key_text(key))


def key_of(row: Row) -> Key:
    """The key of a row of select_api_keys."""
    try:
        return key_from(row[1])
    except DAMAGED as error:
        raise Corrupt(f"The record of key {row[0]} cannot be read: {error}") from error


def worker_row(worker: WorkerInfo) -> Row:
    """The parameters of put_worker, but the last one."""
    return (worker.name, worker.instance, worker.seen_at, worker_text(worker))


def worker_of(row: Row) -> WorkerInfo:
    """The worker of a row of select_workers."""
    try:
        return worker_from(row[1])
    except DAMAGED as error:
        raise Corrupt(f"The record of worker {row[0]} cannot be read: {error}") from error
