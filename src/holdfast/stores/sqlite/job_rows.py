"""Rows of jobs: how a job becomes columns, and columns a job."""

from datetime import datetime
from typing import TypeAlias

import msgspec
from msgspec import Struct

from holdfast.core.errors import Corrupt
from holdfast.core.job import CancelRequest, DeadLetter, Failure, Job, Lease, Progress
from holdfast.core.spec import Json, Spec
from holdfast.core.state import State
from holdfast.stores.sqlite.statements import Row
from holdfast.stores.sqlite.values import DAMAGED, encoder, moment_of, stamp, stamp_maybe


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
    return encoder.encode(detail).decode()


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
        encoder.encode(spec).decode(),
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
    try:
        return row[0], _job_of(row)
    except DAMAGED as error:
        raise Corrupt(f"The record of job {row[1]} cannot be read: {error}") from error


def _job_of(row: JobRow) -> Job:
    (
        _seq,
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
    detail = _detail.decode(detail_text)
    return Job(
        job_id=job_id,
        spec=_spec.decode(spec),
        state=_STATES[state],
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
