"""Pruning: whole ended jobs with all their events, and old worker output. Runs in the writer."""

from collections import Counter
from datetime import datetime

import apsw
import msgspec

from holdfast.ports import Pruned
from holdfast.stores.sqlite.connection import write_meta
from holdfast.stores.sqlite.rows import stamp
from holdfast.stores.sqlite.statements import statement


def prune(
    connection: apsw.Connection, ended_before: datetime, output_before: datetime, limit: int
) -> Pruned:
    """Remove up to `limit` jobs and as many batches of output. Numbers once used stay used."""
    seq, log_id = connection.execute(statement("next_numbers")).fetchone()
    write_meta(connection, "seq_floor", seq)
    write_meta(connection, "log_floor", log_id)
    parameters = (stamp(ended_before), limit)
    old = list(connection.execute(statement("select_prunable"), parameters))
    seqs = msgspec.json.encode([row[0] for row in old]).decode()
    before = connection.total_changes()
    for table, column in (("event", "job"), ("job", "seq")):
        sql = f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))"  # noqa: S608
        connection.execute(sql, (seqs,)).fetchall()
    connection.execute(statement("delete_output"), (stamp(output_before), limit)).fetchall()
    gone = connection.total_changes() - before - len(old)
    counted = Counter((queue, state) for _, queue, state in old)
    rows = [(queue, state, -n) for (queue, state), n in counted.items()]
    connection.executemany(statement("add_queue_count"), rows).fetchall()
    return Pruned(len(old), gone)
