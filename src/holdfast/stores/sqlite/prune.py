"""Prune: whole ended jobs with all their events, and old worker output. Runs in the writer thread."""

from collections import Counter
from datetime import datetime

import apsw

from holdfast.failpoint import failpoint
from holdfast.ports import PruneResult
from holdfast.stores.sqlite.commit import json_list, next_numbers
from holdfast.stores.sqlite.connection import read_meta, write_meta
from holdfast.stores.sqlite.statements import statement
from holdfast.stores.sqlite.timestamps import to_microseconds


def prune(
    connection: apsw.Connection, ended_before: datetime, output_before: datetime, limit: int
) -> PruneResult:
    """Remove up to `limit` jobs and as many batches of output. Numbers once used stay used."""
    seq, log_id = next_numbers(connection)
    write_meta(connection, "seq_floor", seq)
    write_meta(connection, "log_floor", log_id)
    parameters = (to_microseconds(ended_before), limit)
    old = list(connection.execute(statement("select_prunable"), parameters))
    seqs, ids = json_list(row[0] for row in old), json_list(row[3] for row in old)
    raise_floor(connection, max((row[4] for row in old), default=0))
    failpoint("prune.floors_raised")
    before = connection.total_changes()
    connection.execute(statement("delete_registry_events"), (seqs,)).fetchall()
    connection.execute(statement("delete_worker_events"), (seqs,)).fetchall()
    connection.execute(statement("delete_facts"), (ids,)).fetchall()
    failpoint("prune.events_deleted")
    connection.execute(statement("delete_jobs"), (seqs,)).fetchall()
    failpoint("prune.jobs_deleted")
    connection.execute(statement("delete_output"), (to_microseconds(output_before), limit)).fetchall()
    gone = connection.total_changes() - before - len(old)
    counted = Counter((queue, state) for _, queue, state, *_ in old)
    rows = [(queue, state, -n) for (queue, state), n in counted.items()]
    connection.executemany(statement("add_queue_count"), rows).fetchall()
    failpoint("prune.jobs_counted")
    return PruneResult(len(old), gone)


def raise_floor(connection: apsw.Connection, token: int) -> None:
    """Record that tokens up to this one were in use: the job of an id that is used again starts above
    them."""
    floor = read_meta(connection, "token_floor")
    if token > (floor if isinstance(floor, int) else 0):
        write_meta(connection, "token_floor", token)
