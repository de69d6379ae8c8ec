"""Conversion of jobs to rows, and of rows to jobs. Instants are microseconds here."""

from typing import TypeAlias

from holdfast.core.errors import Corrupt
from holdfast.core.job import Job
from holdfast.core.process_spec import claim_kind
from holdfast.stores.records import DAMAGED, detail_text, job_from, spec_text
from holdfast.stores.sqlite.statements import Row
from holdfast.stores.sqlite.timestamps import (
    from_microseconds,
    from_microseconds_or_none,
    to_microseconds,
    to_microseconds_or_none,
)


def insert_row(seq: int, job: Job) -> Row:
    """The parameters of insert_job.sql."""
    spec = job.spec
    asked = (
        seq,
        job.job_id,
        spec.queue,
        claim_kind(spec),
        spec.priority,
        spec.region,
        spec.executor,
        spec.lock,
        to_microseconds(job.created_at),
        spec_text(job),
    )
    return asked + _moving(job)


def update_row(seq: int, job: Job, version: int) -> Row:
    """The parameters of update_job.sql, conditional on the version the job was read at."""
    which = (seq, version)
    return _moving(job) + which


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
        None if lease is None else to_microseconds(lease.expires_at),
        to_microseconds(job.ready_at),
        to_microseconds_or_none(job.due_at),
        to_microseconds(job.updated_at),
        to_microseconds_or_none(job.ended_at),
        detail_text(job),
    )


def touch_row(seq: int, job: Job) -> Row:
    """The parameters of touch_job.sql: a heartbeat or progress, guarded by the fencing token."""
    return (
        to_microseconds_or_none(job.lease.expires_at if job.lease else None),
        to_microseconds_or_none(job.due_at),
        to_microseconds(job.updated_at),
        detail_text(job),
        seq,
        job.version,
        job.fencing_token,
    )


JobRow: TypeAlias = tuple[int, str, str, int, int, int, int, int, int, int, int, int, int | None, str, str]
"""seq, job_id, state, attempt, version, transition_no, failures, crashes, fencing_token, ready_at,
created_at, updated_at, ended_at, spec, detail: what every query for jobs selects."""


def job_of(row: JobRow) -> tuple[int, Job]:
    """Return the enqueue sequence and the job of a row."""
    try:
        moments = (
            from_microseconds(row[9]),
            from_microseconds(row[10]),
            from_microseconds(row[11]),
            from_microseconds_or_none(row[12]),
        )
        return row[0], job_from((*row[1:9], *moments, *row[13:]))
    except DAMAGED as error:
        raise Corrupt(f"The record of job {row[1]} cannot be read: {error}") from error
