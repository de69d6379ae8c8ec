"""What a commit writes about jobs: their two rows, and the tables in which they are found.

One statement writes all jobs that get the same values."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import apsw
import msgspec

from holdfast.core.errors import Corrupt
from holdfast.core.job import Job, Lease
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.stores.batch import Group
from holdfast.stores.filters import RARE_STATES
from holdfast.stores.sqlite.job_rows import (
    detail_text,
    job_rows,
    lane_of,
    lease_text,
    moving_values,
    state_values,
)
from holdfast.stores.sqlite.statements import Row, statement
from holdfast.stores.sqlite.timestamps import to_microseconds, to_microseconds_or_none


class JobWriter:
    """Writes jobs in one transaction. `seqs` has the enqueue sequences of all that are written."""

    def __init__(self, connection: apsw.Connection, seqs: Mapping[str, int]) -> None:
        self._connection = connection
        self._seqs = seqs
        self._lanes: dict[Row, int] = {}
        self._new_places: dict[int, Row] = {}
        self.places: dict[int, tuple[int, int]] = {}
        """The lane and the ready_at of jobs that were read from the queue."""

    def insert(self, runs: Iterable[list[Job]], logs: Mapping[int, str], claims: "Claims") -> None:
        """Write jobs that are new; those of each run differ only in their ids and payloads. `logs` has the
        numbers of each job's segments."""
        states, rows = _Groups(), list[Row]()
        for run in runs:
            job = run[0]
            seqs = [self._seqs[one.job_id] for one in run]
            rows += job_rows(seqs, self._lane(job.spec), run)
            if job.state is State.QUEUED:
                self._new_places.update(dict.fromkeys(seqs, self._place(job)))
            moving = moving_values(job)
            for log, some in _by_log(seqs, logs):
                states.add((job.ready_at, job.claim_op_id, log, moving), *some)
        self.many("insert_job", rows)
        written = []
        for (ready_at, op_id, log, moving), some in states:
            claim, lease = claims.of(op_id)
            plain, when, detail = state_values(moving, lease)
            written.append((some, (*plain, to_microseconds(ready_at), *when, claim or None, log, detail)))
        self._states("insert_state", written)

    def update(self, jobs: Iterable[tuple[Job, Job]], logs: Mapping[int, str], claims: "Claims") -> None:
        """Write jobs, each as it was read and as it is now, if its version is still as it was read."""
        seqs, states = self._seqs, _Groups()
        for before, job in jobs:
            seq = seqs[job.job_id]
            ready_at = None if job.ready_at == before.ready_at else job.ready_at
            claimed = (job.claim_op_id,) if job.claim_op_id != before.claim_op_id else None
            log = logs.get(seq, "")
            states.add((before.version, ready_at, claimed, log, moving_values(job)), seq)
        written = []
        for (version, ready_at, claimed, log, moving), some in states:
            claim, lease = claims.of(*claimed) if claimed else (None, None)
            plain, when, detail = state_values(moving, lease)
            moment = to_microseconds_or_none(ready_at)
            written.append((some, (version, *plain, moment, *when, claim, log, detail)))
        self._states("update_state", written)

    def update_alike(self, group: Group, log: str, claims: "Claims") -> None:
        """Write the jobs of a group as `update` would: `log` has the numbers of their segments."""
        pattern, after = group.pattern, group.pattern.after.job
        claim, lease = claims.of(after.claim_op_id) if pattern.claims else (None, None)
        plain, when, detail = state_values(moving_values(after), lease)
        values = (pattern.before.job.version, *plain, None, *when, claim, log, detail)
        self._states("update_state", [([self._seqs[job.job_id] for job in group.after], values)])

    def _states(self, name: str, groups: Sequence[tuple[list[int], Row]]) -> None:
        """Write the jobs that share their values with one statement, and all others with another."""
        self.many(name, [(seqs[0], *values) for seqs, values in groups if len(seqs) == 1])
        for seqs, values in groups:
            if len(seqs) > 1:
                self._group(f"{name}s", seqs, values)

    def touch(self, jobs: Iterable[Job]) -> None:
        """Write heartbeats and progress: guarded by the fencing token, as they have no event."""
        rows = [
            (
                to_microseconds_or_none(job.due_at),
                to_microseconds(job.updated_at),
                detail_text(job),
                self._seqs[job.job_id],
                job.version,
                job.fencing_token,
            )
            for job in jobs
        ]
        self.many("touch_state", rows)

    def enqueue(self, put: Sequence[Job], taken: Sequence[Job]) -> None:
        """Put jobs into the queue, and take others (as they were) out of it."""
        seqs, places = self._seqs, self.places
        if taken:
            found = [
                (places.get(seqs[job.job_id]) or self._place(job)[:2], seqs[job.job_id]) for job in taken
            ]
            self.many("delete_ready", [(lane, ready_at, seq) for (lane, ready_at), seq in found])
        queued = _Groups()
        for job in put:
            seq = seqs[job.job_id]
            place = self._new_places.pop(seq, None)
            queued.add(self._place(job) if place is None else place, seq)
            places.pop(seq, None)
        for values, some in queued:
            self._group("insert_ready", some, values)

    def _place(self, job: Job) -> Row:
        spec = job.spec
        return (
            self._lane(spec),
            to_microseconds(job.ready_at),
            to_microseconds_or_none(job.deadline_at),
            spec.lock,
        )

    def note_rare(self, jobs: Iterable[tuple[Job | None, Job]]) -> None:
        """Keep the list of the jobs in rare states. Each job is given as it was read and as it is now."""
        gone, come = [], []
        for before, job in jobs:
            state = None if before is None else before.state
            if state is not job.state:
                if state in RARE_STATES:
                    gone.append((state, self._seqs[job.job_id]))
                if job.state in RARE_STATES:
                    come.append((job.state, self._seqs[job.job_id]))
        if gone:
            self.many("delete_rare", gone)
        if come:
            self.many("insert_rare", come)

    def _lane(self, spec: Spec) -> int:
        """Return the lane of jobs with this spec; it is made when the first of them comes."""
        key = lane_of(spec)
        if key not in self._lanes:
            self._lanes[key] = find_lane(self._connection, key)
        return self._lanes[key]

    def _group(self, name: str, seqs: list[int], values: Row) -> None:
        self._connection.execute(statement(name), (number_list(seqs), *values)).fetchall()
        self._check(name, self._connection.changes(), len(seqs))

    def many(self, name: str, rows: Sequence[Row]) -> None:
        """Run a statement for every row; each must change exactly one."""
        if not rows:
            return
        before = self._connection.total_changes()
        if len(rows) == 1:  # executemany took 1.5 times as long
            self._connection.execute(statement(name), rows[0]).fetchall()
        else:
            self._connection.executemany(statement(name), rows).fetchall()
        self._check(name, self._connection.total_changes() - before, len(rows))

    def _check(self, name: str, changed: int, wanted: int) -> None:
        if changed != wanted:
            raise Corrupt(f"{name} changed {changed} rows of {wanted}; nothing was written.")


class Claims:
    """The claims that a commit grants: each is one row, with the lease that its jobs share."""

    def __init__(self, connection: apsw.Connection, seqs: Mapping[str, int]) -> None:
        self._connection = connection
        self._seqs = seqs
        self._granted: dict[str, tuple[int, Lease | None]] = {}

    def grant(self, jobs: Iterable[Job]) -> None:
        """Write the claims of these jobs, which were claimed in this commit."""
        by_op: dict[str, list[Job]] = {}
        for job in jobs:
            by_op.setdefault(job.claim_op_id or "", []).append(job)
        for op_id, claimed in by_op.items():
            seqs = number_list(self._seqs[job.job_id] for job in claimed)
            known = self._connection.execute(statement("select_claim"), (op_id,)).fetchone()
            if known:
                self._connection.execute(statement("extend_claim"), (known[0], seqs)).fetchall()
                self._granted[op_id] = (known[0], None)
                continue
            lease = next((job.lease for job in claimed if job.lease is not None), None)
            owner, text = (None, None) if lease is None else (lease.owner, lease_text(lease))
            row = (op_id, owner, text, seqs)
            for (number,) in self._connection.execute(statement("insert_claim"), row):
                self._granted[op_id] = (number, lease)

    def of(self, op_id: str | None) -> tuple[int, Lease | None]:
        """Return the number of a claim and the lease it has; 0 for no claim."""
        return (0, None) if op_id is None else self._granted[op_id]


class _Groups:
    """Jobs by the values that are written for them."""

    def __init__(self) -> None:
        self._seqs: dict[tuple[Any, ...], list[int]] = {}
        self._others: list[tuple[tuple[Any, ...], list[int]]] = []

    def add(self, values: tuple[Any, ...], *seqs: int) -> None:
        try:
            self._seqs.setdefault(values, []).extend(seqs)
        except TypeError:  # values that cannot be compared quickly, such as the evidence of a validation
            self._others.append((values, [*seqs]))

    def __iter__(self) -> Iterator[tuple[tuple[Any, ...], list[int]]]:
        return chain(self._seqs.items(), self._others)


def _by_log(seqs: list[int], logs: Mapping[int, str]) -> Iterable[tuple[str, list[int]]]:
    """Group jobs by the numbers of their segments."""
    found: dict[str, list[int]] = {}
    for seq in seqs:
        found.setdefault(logs.get(seq, ""), []).append(seq)
    return found.items()


def find_lane(connection: apsw.Connection, key: Row) -> int:
    """Return the lane of jobs that have this in common (`lane_of`); it is made when there is none."""
    found: list[tuple[int]] = list(connection.execute(statement("select_lane"), key))
    [(lane,)] = found or list(connection.execute(statement("insert_lane"), key))
    return lane


def number_list(numbers: Iterable[int]) -> str:
    return msgspec.json.encode(list(numbers)).decode()
