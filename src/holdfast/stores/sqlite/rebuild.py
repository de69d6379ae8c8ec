"""Rebuild: every record made again from the log, inside one write transaction.

The log is what is written once: the rows of `job` and `lane`, segments, and events. All other tables follow
from them.
"""

from contextlib import suppress

import apsw

from holdfast.core.errors import Corrupt
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.projection import claimed_by
from holdfast.core.rebuild import claims_of, remake
from holdfast.core.segment import JobKey
from holdfast.ports import RebuildResult
from holdfast.stores.sqlite.clock import steps_of
from holdfast.stores.sqlite.commit import json_list
from holdfast.stores.sqlite.event_rows import events_of, segment_events
from holdfast.stores.sqlite.job_rows import job_of, moving_values, state_values
from holdfast.stores.sqlite.job_writes import number_list
from holdfast.stores.sqlite.statements import statement
from holdfast.stores.sqlite.timestamps import to_microseconds

JOBS_AT_ONCE = 500


def rebuild(connection: apsw.Connection, *, check: bool) -> RebuildResult:
    """Make all records again; with `check`, undo that."""
    connection.execute("SAVEPOINT rebuild").fetchall()
    connection.execute(statement("begin_rebuild")).fetchall()
    for (job_id,) in connection.execute(statement("select_job_without_lane")):
        raise Corrupt(f"Job {job_id} cannot be made again: its lane is gone.")
    clock_was_set = steps_of(connection).at is not None
    jobs = missing = different = last = 0
    while rows := list(connection.execute(statement("select_origins"), (last, JOBS_AT_ONCE))):
        origins = dict(map(job_of, rows))
        stored = _stored_records(connection, list(origins))
        published = _published(connection, origins)
        records = {
            seq: remake(
                origins[seq],
                events,
                stored.get(seq),
                published=published[seq],
                clock_was_set=clock_was_set,
            )
            for seq, events in _histories(connection, origins).items()
        }
        _write(connection, records)
        jobs += len(records)
        missing += len(records) - len(stored)
        different += sum(records[seq] is not job for seq, job in stored.items())
        last = rows[-1][0]
    connection.execute(statement("fill_lists")).fetchall()
    [(lists,)] = connection.execute(statement("count_list_differences"))
    if check:
        connection.execute("ROLLBACK TO rebuild").fetchall()
    else:
        connection.execute(statement("end_rebuild")).fetchall()
    connection.execute("RELEASE rebuild").fetchall()
    return RebuildResult(jobs=jobs, missing=missing, different=different, lists=lists)


def _stored_records(connection: apsw.Connection, seqs: list[int]) -> dict[int, Job]:
    """Return the stored records of these jobs that can be read."""
    stored: dict[int, Job] = {}
    for row in connection.execute(statement("select_jobs_by_seq"), (number_list(seqs),)):
        with suppress(Corrupt):
            seq, job = job_of(row)
            stored[seq] = job
    return stored


def _published(connection: apsw.Connection, origins: dict[int, Job]) -> dict[int, dict[int, int]]:
    """Return, for each of these jobs, the last sequence that was published under each token."""
    found: dict[int, dict[int, int]] = {seq: {} for seq in origins}
    between = (min(origins), max(origins))
    for seq, token, sequence in connection.execute(statement("select_last_published"), between):
        found[seq][token] = sequence
    return found


def _histories(connection: apsw.Connection, origins: dict[int, Job]) -> dict[int, list[Event]]:
    """Return the registry events of these jobs, and note their claims."""
    events: dict[int, list[Event]] = {seq: [] for seq in origins}
    seqs = {job.job_id: seq for seq, job in origins.items()}
    asked = (json_list(seqs),)
    for row in connection.execute(statement("select_old_histories"), asked):
        for event in events_of(row):
            events[seqs[event.job_id or ""]].append(event)
    job_ids: dict[JobKey, str | None] = {seq: job.job_id for seq, job in origins.items()}
    between = (min(origins), max(origins))
    for number, text in connection.execute(statement("select_segments_of_jobs"), between):
        for event in segment_events(number, text, job_ids):
            events[seqs[event.job_id or ""]].append(event)
    claims = [(seq, event) for seq, log in events.items() for event in claims_of(log)]
    owners = {event.op_id: claimed_by(event) for _, event in claims}
    connection.executemany(statement("add_claim"), owners.items()).fetchall()
    claimed = [(event.op_id, event.log_id, seq) for seq, event in claims]
    connection.executemany(statement("add_claimed"), claimed).fetchall()
    return events


def _write(connection: apsw.Connection, records: dict[int, Job]) -> None:
    """Write the states of these jobs. Each has its lease itself, as claims have none afterwards."""
    between = (min(records), max(records))
    connection.execute(statement("delete_states_between"), between).fetchall()
    logs = dict(connection.execute(statement("select_rebuilt_logs"), between))
    op_ids = {job.claim_op_id for job in records.values() if job.claim_op_id is not None}
    claims = dict(connection.execute(statement("select_claims"), (json_list(op_ids),)))
    rows = []
    for seq, job in records.items():
        plain, when, detail = state_values(moving_values(job), None)
        claim = claims.get(job.claim_op_id)
        rows.append((seq, *plain, to_microseconds(job.ready_at), *when, claim, logs.get(seq, ""), detail))
    connection.executemany(statement("insert_state"), rows).fetchall()
