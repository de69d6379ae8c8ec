"""Conversion of jobs, events and API keys to rows, and of rows to them."""

from holdfast.core.access import Key
from holdfast.core.catalogue import EventClass
from holdfast.core.errors import Corrupt
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.process_spec import claim_kind
from holdfast.stores.postgres.statements import Row
from holdfast.stores.records import (
    DAMAGED,
    batch_text,
    detail_text,
    event_text,
    events_from,
    fact_text,
    job_from,
    key_from,
    key_text,
    spec_text,
)


def insert_row(seq: int, job: Job) -> Row:
    """A row of insert_jobs.sql."""
    spec = job.spec
    return (
        seq,
        job.job_id,
        spec.queue,
        claim_kind(spec),
        spec.priority,
        spec.region,
        spec.executor,
        spec.lock,
        job.created_at,
        job.correlation_id,
        spec_text(job),
        *_moving(job),
    )


def update_row(seq: int, before: Job, row_version: int | None, job: Job) -> Row:
    """A row of update_jobs.sql, conditional on the job as it was read."""
    return (seq, before.version, before.fencing_token, row_version, *_moving(job))


def touch_row(seq: int, before: Job, row_version: int | None, job: Job) -> Row:
    """A row of touch_jobs.sql: a heartbeat or progress, conditional on the job as it was read."""
    return (
        seq,
        before.version,
        before.fencing_token,
        row_version,
        job.lease.expires_at if job.lease else None,
        job.due_at,
        job.updated_at,
        detail_text(job),
    )


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
        None if lease is None else lease.expires_at,
        job.ready_at,
        job.due_at,
        job.updated_at,
        job.ended_at,
        detail_text(job),
    )


def job_of(row: Row) -> tuple[int, Job]:
    """The enqueue sequence and the job of a row: what every query for jobs selects."""
    try:
        return row[0], job_from(row[1:])
    except DAMAGED as error:
        raise Corrupt(f"The record of job {row[1]} cannot be read: {error}") from error


def event_row(seq: int, event: Event) -> Row:
    """A row of insert_events.sql, for a registry event."""
    return (
        seq,
        event.offset,
        event.transition_no,
        event.event_type,
        event.event_class,
        event.from_state,
        event.to_state,
        event.attempt,
        event.fencing_token,
        None,
        None,
        event.op_id,
        event.actor,
        event.occurred_at,
        None,
        event_text(event),
    )


def batch_row(seq: int, events: tuple[Event, ...]) -> Row:
    """A row of insert_events.sql, for all the events of a worker's batch."""
    first, last = events[0], events[-1]
    return (
        seq,
        None,
        None,
        first.event_type,
        EventClass.WORKER,
        None,
        None,
        first.attempt,
        first.fencing_token,
        first.sequence,
        last.last_sequence,
        None,
        first.actor,
        first.occurred_at,
        first.received_at,
        batch_text(events),
    )


def fact_row(event: Event) -> Row:
    """A row of insert_facts.sql."""
    return (
        event.event_type,
        event.event_class,
        event.attempt,
        event.fencing_token,
        event.op_id,
        event.actor,
        event.occurred_at,
        event.received_at,
        event.given_id,
        event.job_id,
        fact_text(event),
    )


def events_of(row: Row) -> list[Event]:
    """The event of a row, or the events of a batch: what every query for events selects."""
    try:
        return events_from(row)
    except DAMAGED as error:
        raise Corrupt(f"Event {row[0]} of the log cannot be read: {error}") from error


def key_row(key: Key) -> Row:
    """The parameters of put_api_key.sql."""
    return (key.key_id, key.created_at, key_text(key))


def key_of(row: Row) -> Key:
    """The key of a row of select_api_keys.sql."""
    try:
        return key_from(row[1])
    except DAMAGED as error:
        raise Corrupt(f"The record of key {row[0]} cannot be read: {error}") from error
