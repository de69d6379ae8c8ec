"""One new job alone, which is what a single enqueue is: its rows are written without a working set.

What every commit has to know first (the last numbers, the floor of tokens, the lane) is kept in memory as
long as nobody else has written.
"""

from datetime import datetime

import apsw

from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle import Enqueue
from holdfast.core.segment import encode_one
from holdfast.core.spec import Spec
from holdfast.failpoint import failpoint
from holdfast.ports import ById, Decision, Work
from holdfast.stores.new_jobs import simply_queued
from holdfast.stores.sqlite.commit import next_numbers
from holdfast.stores.sqlite.connection import read_number
from holdfast.stores.sqlite.job_rows import job_rows, lane_of, moving_values, state_values
from holdfast.stores.sqlite.job_writes import find_lane
from holdfast.stores.sqlite.statements import Row, statement
from holdfast.stores.sqlite.timestamps import to_microseconds


class NewJobWriter:
    """Writes single new jobs with one connection, each in a transaction of the caller."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._changes = -1
        self._seq = self._number = self._floor = 0
        self._lanes: dict[Row, int] = {}

    def forget(self) -> None:
        """Read all anew: another process has written, or what was written here is rolled back."""
        self._changes = -1

    def write(self, work: Work, now: datetime) -> Decision | None:
        """Decide on the job and write it, if it is new and there is nothing else to write; else return None,
        with nothing written."""
        one = work.selection
        if type(work.command) is not Enqueue or not isinstance(one, ById) or one.lock is not None:
            return None
        if not one.fresh and self._exists(one.job_id):
            return None
        if self._connection.total_changes() != self._changes:
            self._read()
        try:
            decision = work.decide(None, now, None, self._floor)
        except Exception:  # the way of all others makes a refusal of it
            return None
        if not simply_queued(decision):
            return None
        self._insert(decision.after, decision.own_events[0])
        self._changes = self._connection.total_changes()
        return decision

    def _exists(self, job_id: str) -> bool:
        return self._connection.execute(statement("select_seq"), (job_id,)).fetchone() is not None

    def _read(self) -> None:
        self._seq, self._number = next_numbers(self._connection)
        self._floor = read_number(self._connection, "token_floor")
        self._lanes.clear()

    def _insert(self, job: Job, event: Event) -> None:
        """Write the rows of the job, the way `SqliteCommit` writes those of many."""
        self._seq, self._number = seq, number = self._seq + 1, self._number + 1
        lane = self._lane(job.spec)
        ready_at = to_microseconds(job.ready_at)
        events = encode_one(event, seq)
        self._write(
            "insert_segment", (number, events.event_type, to_microseconds(events.occurred_at), events.text)
        )
        [row] = job_rows([seq], lane, [job])
        self._write("insert_job", row)
        plain, when, detail = state_values(moving_values(job), None)
        self._write("insert_state", (seq, *plain, ready_at, *when, None, str(number), detail))
        self._write("insert_one_ready", (lane, ready_at, seq))
        failpoint("sqlite.new_job_inserted")
        self._write("add_queue_count", (job.spec.queue, job.state, 1))

    def _lane(self, spec: Spec) -> int:
        key = lane_of(spec)
        if (lane := self._lanes.get(key)) is None:
            lane = self._lanes[key] = find_lane(self._connection, key)
        return lane

    def _write(self, name: str, row: Row) -> None:
        self._connection.execute(statement(name), row).fetchall()
