"""Prune: whole ended jobs with all their events, and old worker output. Runs in the writer thread."""

from collections import Counter
from datetime import datetime

import apsw
import msgspec

from holdfast.core import segment
from holdfast.core.catalogue import EventType
from holdfast.failpoint import failpoint
from holdfast.ports import PruneResult
from holdfast.stores.filters import RARE_STATES
from holdfast.stores.sqlite.commit import json_list, next_numbers
from holdfast.stores.sqlite.connection import read_number, write_meta
from holdfast.stores.sqlite.event_rows import segment_events
from holdfast.stores.sqlite.job_writes import number_list
from holdfast.stores.sqlite.statements import statement
from holdfast.stores.sqlite.timestamps import to_microseconds


def prunable(connection: apsw.Connection, ended_before: datetime, output_before: datetime) -> PruneResult:
    """Return how many jobs there are to remove, and how many batches of other jobs' output."""
    parameters = (to_microseconds(ended_before), to_microseconds(output_before))
    [(jobs, batches)] = connection.execute(statement("count_prunable"), parameters)
    return PruneResult(jobs, batches)


def prune(
    connection: apsw.Connection, ended_before: datetime, output_before: datetime, limit: int
) -> PruneResult:
    """Remove up to `limit` jobs and as many batches of output. Numbers once used stay used."""
    seq, number = next_numbers(connection)
    write_meta(connection, "seq_floor", seq)
    write_meta(connection, "log_floor", number)
    parameters = (to_microseconds(ended_before), limit)
    old = list(connection.execute(statement("select_prunable"), parameters))
    seqs, ids = number_list(row[0] for row in old), json_list(row[3] for row in old)
    raise_floor(connection, max((row[4] for row in old), default=0))
    failpoint("prune.floors_raised")
    logs = {n for row in old for n in row[5].split(",") if n}
    gone = _prune_segments(connection, {row[0] for row in old}, number_list(sorted(map(int, logs))), seqs)
    before = connection.total_changes()
    connection.execute(statement("delete_registry_events"), (seqs,)).fetchall()
    connection.execute(statement("delete_worker_events"), (seqs,)).fetchall()
    connection.execute(statement("delete_facts"), (ids,)).fetchall()
    failpoint("prune.events_deleted")
    gone += connection.total_changes() - before
    rare = [(row[2], row[0]) for row in old if row[2] in RARE_STATES]
    connection.execute(statement("delete_rare_jobs"), (msgspec.json.encode(rare).decode(),)).fetchall()
    connection.execute(statement("delete_states"), (seqs,)).fetchall()
    connection.execute(statement("delete_jobs"), (seqs,)).fetchall()
    failpoint("prune.jobs_deleted")
    before = connection.total_changes()
    connection.execute(statement("delete_output"), (to_microseconds(output_before), limit)).fetchall()
    gone += connection.total_changes() - before
    counted = Counter((queue, state) for _, queue, state, *_ in old)
    rows = [(queue, state, -n) for (queue, state), n in counted.items()]
    connection.executemany(statement("add_queue_count"), rows).fetchall()
    failpoint("prune.jobs_counted")
    return PruneResult(len(old), gone)


def _prune_segments(connection: apsw.Connection, jobs: set[int], numbers: str, seqs: str) -> int:
    """Remove the events of these jobs from their segments, and their claims; return how many events."""
    gone = 0
    empty: list[int] = []
    ops = {op_id for (op_id,) in connection.execute(statement("select_old_claims"), (seqs,))}
    pruned = list(connection.execute(statement("select_pruned_segments"), (numbers,)))
    for number, event_type, text in pruned:
        gone += sum(key in jobs for key in segment.keys(text))
        if event_type == EventType.CLAIMED:
            ops |= {event.op_id for event in segment_events(number, text, dict.fromkeys(jobs, ""))}
        left = segment.without(text, jobs)
        if left is None:
            empty.append(number)
        else:
            connection.execute(statement("update_segment"), (left, number)).fetchall()
    connection.execute(statement("delete_segments"), (number_list(empty),)).fetchall()
    op_ids = json_list(op_id for op_id in ops if op_id is not None)
    connection.execute(statement("shorten_claims"), (op_ids, seqs)).fetchall()
    connection.execute(statement("delete_claims"), (op_ids,)).fetchall()
    failpoint("prune.segments_written")
    return gone


def raise_floor(connection: apsw.Connection, token: int) -> None:
    """Record that tokens up to this one were in use: the job of an id that is used again starts above
    them."""
    if token > read_number(connection, "token_floor"):
        write_meta(connection, "token_floor", token)
