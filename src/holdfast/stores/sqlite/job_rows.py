"""Conversion of jobs to rows, and of rows to jobs. Instants are microseconds here.

A job has two rows: `job` never changes, `state` does. What many jobs share is stored once: the lane has a
part of their spec, the claim their lease as it was granted.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import fields, replace

from holdfast.core.errors import Corrupt
from holdfast.core.job import Job, Lease
from holdfast.core.lifecycle.pattern import OWN_TERMS, Template
from holdfast.core.process_spec import HOLDFAST_COMMAND_KIND, claim_kind
from holdfast.core.spec import COMMAND_KIND, Spec
from holdfast.core.state import LEASED, State
from holdfast.stores.records import DAMAGED
from holdfast.stores.sqlite.statements import Row
from holdfast.stores.sqlite.timestamps import (
    from_microseconds,
    from_microseconds_or_none,
    to_microseconds,
    to_microseconds_or_none,
)

_COLUMNS = frozenset(
    {
        "job_id",
        "spec",
        "state",
        "created_at",
        "updated_at",
        "ready_at",
        "attempt",
        "version",
        "transition_no",
        "failures",
        "crashes",
        "fencing_token",
        "claim_op_id",
        "started_at",
        "ended_at",
        "submitted_by",
        "correlation_id",
        "trace_id",
        "traceparent",
    }
)
"""The fields of a job that are not in its detail."""
_IN_LANE = frozenset({"kind", "queue", "priority", "region", "executor"})
_ELSEWHERE = _IN_LANE | {"lock", "payload"}
"""The fields of a spec that have a column of their own, or that the lane has."""


def _without(struct: type[Struct], name: str, columns: frozenset[str]) -> type[Struct]:
    """Return the struct of the fields that have no column of their own; all of them have defaults."""
    kept = [
        (
            field.name,
            field.type,
            field.default
            if field.default is not msgspec.NODEFAULT
            else msgspec.field(default_factory=field.default_factory),
        )
        for field in fields(struct)
        if field.name not in columns
    ]
    return msgspec.defstruct(name, kept, frozen=True, gc=False, omit_defaults=True)


Detail = _without(Job, "Detail", _COLUMNS)
"""The fields of a job that change and that no query filters or sorts by. A field of `Job` that is added must
have a default: a record from before lacks it."""
Terms = _without(Spec, "Terms", _ELSEWHERE)
"""The fields of a spec that most jobs leave as they are."""


class Origin(Struct, frozen=True, gc=False, omit_defaults=True):
    """What few jobs have from the start."""

    trace_id: str | None = None
    traceparent: str | None = None


_encode = msgspec.json.Encoder().encode
_decode_detail = msgspec.json.Decoder(Detail).decode
_decode_terms = msgspec.json.Decoder(Terms).decode
_decode_spec = msgspec.json.Decoder(Spec).decode
_decode_origin = msgspec.json.Decoder(Origin).decode
_decode_lease = lru_cache(maxsize=1024)(msgspec.json.Decoder(Lease).decode)
_STATES = {str(state): state for state in State}
_detail_names = Detail.__struct_fields__
_terms_names = Terms.__struct_fields__
_PLAIN_NAMES = ("state", "attempt", "version", "transition_no", "failures", "crashes", "fencing_token")
_MOMENT_NAMES = ("updated_at", "started_at", "ended_at")
_PLAIN, _MOVING = len(_PLAIN_NAMES), len(_PLAIN_NAMES + _MOMENT_NAMES)
_moving_values = attrgetter(*_PLAIN_NAMES, *_MOMENT_NAMES, *_detail_names)
_detail_values = attrgetter(*_detail_names)
_terms_values = attrgetter(*_terms_names)
_NO_DETAIL = _detail_values(Detail())
_shared_terms = attrgetter(*(name for name in _terms_names if name not in OWN_TERMS))
_own_terms = attrgetter("name", "labels")
_NO_TERMS = Terms()
_NO_TERMS_VALUES = _terms_values(_NO_TERMS)
_LEASE = _detail_names.index("lease")


def lane_of(spec: Spec) -> Row:
    """Return what the lane of a job has in common with all of its jobs: queue, priority, kind, executor,
    region, and whether they need a lock."""
    lane = (spec.queue, spec.priority, claim_kind(spec), spec.executor, spec.region)
    return (*lane, spec.lock is not None)


def job_rows(seqs: Sequence[int], lane: int, run: Sequence[Job]) -> list[Row]:
    """Return the parameters of insert_job for jobs that differ only in their ids and payloads."""
    job, spec = run[0], run[0].spec
    traced = job.trace_id is not None or job.traceparent is not None
    terms = _terms_values(spec)
    shared = (
        lane,
        spec.lock,
        to_microseconds(job.created_at),
        job.correlation_id,
        job.submitted_by,
        _encode(Origin(job.trace_id, job.traceparent)).decode() if traced else None,
        None if terms == _NO_TERMS_VALUES else _encode(Terms(*terms)).decode(),
    )
    return [
        (seq, job.job_id, *shared, bytes(job.spec.payload).decode())
        for seq, job in zip(seqs, run, strict=True)
    ]


def moving_values(job: Job) -> tuple[Any, ...]:
    """Return all that changes in a job but `ready_at` and the claim. Equal values make equal rows."""
    values = _moving_values(job)
    due_at = job.due_at if job.lease is not None or job.deadline_at is not None else None
    if job.result is not None or job.checkpoint is not None:  # equal is not the same here: 1, 1.0 and True
        return (due_at, *values[:_MOVING], detail_text(job))
    return (due_at, *values)


def state_values(moving: tuple[Any, ...], lease: Lease | None) -> tuple[Row, Row, str | None]:
    """Return the columns state to fencing_token, due_at to ended_at, and the detail, of jobs with these
    values. `lease` is the one that their claim has."""
    due_at, *rest = moving
    plain, moments, detail = rest[:_PLAIN], rest[_PLAIN:_MOVING], tuple(rest[_MOVING:])
    text = detail[0] if len(detail) == 1 else _detail_text(detail, lease)
    updated_at, started_at, ended_at = moments
    when = (
        to_microseconds_or_none(due_at),
        to_microseconds(updated_at),
        to_microseconds_or_none(started_at),
        to_microseconds_or_none(ended_at),
    )
    return tuple(plain), when, text


def detail_text(job: Job) -> str | None:
    """Return the detail as JSON; None for most jobs, which have none."""
    return _detail_text(_detail_values(job), None)


def _detail_text(values: tuple[Any, ...], lease: Lease | None) -> str | None:
    """Return the detail as JSON; None when it is empty. A lease that is `lease` is left out: the claim has
    it."""
    if lease is not None and values[_LEASE] == lease:
        values = (*values[:_LEASE], None, *values[_LEASE + 1 :])
    return None if values == _NO_DETAIL else _encode(Detail(*values)).decode()


def lease_text(lease: Lease) -> str:
    return _encode(lease).decode()


JobRow: TypeAlias = tuple[Any, ...]
"""What every query for jobs selects, in the order of `_of`."""
PAYLOAD, OWN_COLUMNS = 2, 6
"""The place of the payload, and how many columns come before those in which jobs may be alike."""
_ORIGIN, _TERMS, _DETAIL = -3, -2, -1
"""The places of the columns that most rows have no value in."""


def job_of(row: JobRow) -> tuple[int, Job]:
    """Return the enqueue sequence and the job of a row."""
    try:
        return row[0], _of(row)
    except DAMAGED as error:
        raise _unreadable(row, error) from error


def alike_jobs(rows: Iterable[JobRow]) -> Iterator[tuple[int, Job, Template | None]]:
    """Yield the enqueue sequence and the job of each row, with a template for those that are alike; None for
    a job with something special about it."""
    templates: dict[JobRow, Template] = {}
    latest: JobRow | None = None
    template: Template | None = None
    terms: Struct = _NO_TERMS
    alike: JobRow = ()
    for row in rows:
        if row[PAYLOAD] is None or row[_ORIGIN] is not None or row[_DETAIL] is not None:
            yield (*job_of(row), None)
            continue
        rest = row[OWN_COLUMNS:]
        if rest != latest:
            latest, terms = rest, _terms_of(row)
            alike = (rest[:_TERMS], _shared_terms(terms))
            template = templates.get(alike)
        if template is None:
            seq, job = job_of(row)
            templates[alike] = template = Template(job)
            yield seq, job, template
        else:
            yield row[0], _another(template, row, terms), template


def _terms_of(row: JobRow) -> Struct:
    try:
        terms: Struct = _NO_TERMS if row[_TERMS] is None else _decode_terms(row[_TERMS])
    except DAMAGED as error:
        raise _unreadable(row, error) from error
    return terms


def _another(template: Template, row: JobRow, terms: Struct) -> Job:
    try:
        payload = msgspec.Raw(row[PAYLOAD].encode())
        created_at, updated_at, ready_at = map(from_microseconds, row[PAYLOAD + 1 : OWN_COLUMNS])
    except DAMAGED as error:
        raise _unreadable(row, error) from error
    name, labels = _own_terms(terms)
    own = replace(template.job.spec, payload=payload, name=name, labels=dict(labels))
    return template.another(row[1], own, created_at, updated_at, ready_at)


def _unreadable(row: JobRow, error: Exception) -> Corrupt:
    return Corrupt(f"The record of job {row[1]} cannot be read: {error}")


def _of(row: JobRow) -> Job:
    """Return the job of a row: its fields by name, in the order in which all queries select them."""
    (
        _seq,
        job_id,
        payload,
        created_at,
        updated_at,
        ready_at,
        state,
        attempt,
        version,
        transition_no,
        failures,
        crashes,
        fencing_token,
        started_at,
        ended_at,
        claim_op_id,
        claimed_lease,
        kind,
        queue,
        priority,
        region,
        executor,
        lock,
        correlation_id,
        submitted_by,
        origin_text,
        terms,
        detail_json,
    ) = row
    detail: Any = _EMPTY if detail_json is None else _decode_detail(detail_json)
    origin = _NO_ORIGIN if origin_text is None else _decode_origin(origin_text)
    if payload is None:
        spec = _decode_spec(terms)
    else:
        spec = _spec(kind, queue, priority, region, executor, lock, terms, payload)
    reached = _STATES[state]
    lease = detail.lease
    if lease is None and claimed_lease is not None and reached in LEASED:
        lease = _decode_lease(claimed_lease)
    values = {
        "job_id": job_id,
        "spec": spec,
        "state": reached,
        "created_at": from_microseconds(created_at),
        "updated_at": from_microseconds(updated_at),
        "ready_at": from_microseconds(ready_at),
        "attempt": attempt,
        "version": version,
        "transition_no": transition_no,
        "failures": failures,
        "crashes": crashes,
        "fencing_token": fencing_token,
        "lease": lease,
        "claim_op_id": claim_op_id,
        "started_at": from_microseconds_or_none(started_at),
        "ended_at": from_microseconds_or_none(ended_at),
        "submitted_by": submitted_by,
        "correlation_id": correlation_id,
        "trace_id": origin.trace_id,
        "traceparent": origin.traceparent,
    }
    if detail is not _EMPTY:
        values |= zip(_PLAIN_DETAIL, _plain_detail(detail), strict=True)
    return Job(**values)


_EMPTY = Detail()
_NO_ORIGIN = Origin()
_PLAIN_DETAIL = tuple(name for name in _detail_names if name != "lease")
_plain_detail = attrgetter(*_PLAIN_DETAIL)


def _spec(
    kind: str,
    queue: str,
    priority: int,
    region: str | None,
    executor: str | None,
    lock: str | None,
    terms: str | None,
    payload: str,
) -> Spec:
    """Return the spec of these columns."""
    spec = _plain_spec(kind, queue, priority, region, executor, lock)
    raw = msgspec.Raw(payload.encode())
    if terms is None:
        return replace(spec, payload=raw, labels={})
    own = _decode_terms(terms)
    return replace(spec, payload=raw, **dict(zip(_terms_names, _terms_values(own), strict=True)))


@lru_cache(maxsize=256)
def _plain_spec(
    kind: str, queue: str, priority: int, region: str | None, executor: str | None, lock: str | None
) -> Spec:
    """Return the spec that jobs of a lane have when they ask for nothing else."""
    return Spec(
        kind=COMMAND_KIND if kind == HOLDFAST_COMMAND_KIND else kind,
        queue=queue,
        priority=priority,
        region=region,
        executor=executor,
        lock=lock,
    )
