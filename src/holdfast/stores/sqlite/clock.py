"""The store's clock: a time of the wall clock, plus the seconds that the machine has counted since.

A step of the wall clock never touches a lease. The anchor between the two is kept in the file, so that
every process of this boot reads the same time. When the wall clock has differed for a while, the anchor is
set by it anew, and all leases, deadlines and waits are moved to the new time in the same commit. While the
machine sleeps no owner can renew, so leases are extended by that time.
"""

import os
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

import apsw
import msgspec
from msgspec.structs import replace

from holdfast.core.clock_step import TOLERANCE, ClockStep, ClockStepSummary, carry_over
from holdfast.core.job import Job
from holdfast.core.state import State
from holdfast.failpoint import failpoint
from holdfast.stores.sqlite.connection import read_meta, write_meta
from holdfast.stores.sqlite.job_rows import job_of
from holdfast.stores.sqlite.job_writes import Claims, JobWriter, number_list
from holdfast.stores.sqlite.statements import statement
from holdfast.stores.sqlite.timestamps import from_microseconds, to_microseconds
from holdfast.system import SystemClock, asleep_seconds, boot_id, boot_seconds

_SLEEP_NOTICED_SECONDS = 1.0
STEADY_SECONDS = 5.0
"""How long the wall clock must differ by the same amount, for all processes that write, before it is
followed."""
JOBS_AT_ONCE = 500


class AnchoredClock(SystemClock):
    """The wall time at the anchor plus the seconds since. Where the system has no boot id, the plain wall
    clock."""

    def __init__(self, connection: apsw.Connection) -> None:
        """Read the anchor of this boot, or set it. Inside a write transaction."""
        self._boot = boot_id()
        self._anchor: int | None = None
        self._asleep = 0.0
        self._doubt = ""
        if self._boot is None:
            return
        self.refresh(connection)
        if self._anchor is None:
            self._begin_boot(connection)

    def _begin_boot(self, connection: apsw.Connection) -> None:
        """Set the anchor by the wall clock. No owner of an earlier boot is alive; if the store was ahead of
        the wall clock, its leases, deadlines and waits are moved back to it."""
        wall = super().now()
        self._anchor = to_microseconds(wall) - int(boot_seconds() * 1e6)
        [(latest,)] = connection.execute(statement("select_latest_update")).fetchall()
        if isinstance(latest, int) and (seen := from_microseconds(latest)) > wall + TOLERANCE:
            apply_step(connection, ClockStep(before=seen, after=wall))
        self._write_anchor(connection)
        write_meta(connection, "asleep_seconds", asleep_seconds())
        self._asleep = asleep_seconds()
        failpoint("sqlite.clock_anchored")

    def _write_anchor(self, connection: apsw.Connection) -> None:
        write_meta(connection, "clock_anchor", f"{self._boot} {self._anchor}")
        write_meta(connection, "clock_doubt", "")
        self._doubt = ""

    def _doubts(self, connection: apsw.Connection, doubt: str) -> None:
        if doubt != self._doubt:
            write_meta(connection, "clock_doubt", doubt)
            self._doubt = doubt

    def refresh(self, connection: apsw.Connection) -> None:
        """Read what other processes have written about the clock since."""
        if self._boot is None:
            return
        parts = str(read_meta(connection, "clock_anchor") or "").split()
        if len(parts) == 2 and parts[0] == self._boot:
            self._anchor = int(parts[1])
            self._asleep = float(str(read_meta(connection, "asleep_seconds") or 0))
            self._doubt = str(read_meta(connection, "clock_doubt") or "")

    def now(self) -> datetime:
        if self._anchor is None:
            return super().now()
        return from_microseconds(self._anchor + int(boot_seconds() * 1e6))

    def settle(self, connection: apsw.Connection) -> bool:
        """Extend leases by the time that the machine has slept, and follow a wall clock that was set.
        Return whether jobs were changed. Inside a write transaction, before anything is decided."""
        if self._anchor is None:
            return False
        slept = self._wake(connection)
        return self._follow(connection) or slept

    def _wake(self, connection: apsw.Connection) -> bool:
        if asleep_seconds() - self._asleep < _SLEEP_NOTICED_SECONDS:
            return False
        # Only what is committed counts as made up for: another process may have done so.
        self._asleep = float(str(read_meta(connection, "asleep_seconds") or 0))
        asleep = asleep_seconds()
        if (slept := asleep - self._asleep) < _SLEEP_NOTICED_SECONDS:
            return False
        seqs = [row[0] for row in connection.execute(statement("select_leased_jobs"))]
        _rewrite(connection, seqs, partial(_extended, by=timedelta(microseconds=int(slept * 1e6))))
        write_meta(connection, "asleep_seconds", asleep)
        return True

    def _follow(self, connection: apsw.Connection) -> bool:
        wall, ours = super().now(), self.now()
        if abs(wall - ours) <= TOLERANCE:
            self._doubts(connection, "")
            return False
        since, apart = self._doubted()
        if since is None or abs((wall - ours) - apart) > TOLERANCE:
            doubt = f"{boot_seconds():.3f} {(wall - ours).total_seconds():.3f}"
            self._doubts(connection, doubt)
            return False
        if boot_seconds() - since < STEADY_SECONDS:
            return False
        apply_step(connection, ClockStep(before=ours, after=wall))
        self._anchor = to_microseconds(wall) - int(boot_seconds() * 1e6)
        self._write_anchor(connection)
        return True

    def _doubted(self) -> tuple[float | None, timedelta]:
        """Return since when, in seconds of this boot, and by how much the wall clock has differed."""
        parts = self._doubt.split()
        if len(parts) != 2:
            return None, timedelta()
        return float(parts[0]), timedelta(seconds=float(parts[1]))


def apply_step(connection: apsw.Connection, step: ClockStep) -> None:
    """Move every job that has a lease, a deadline or a wait by the step, and record the step."""
    first = to_microseconds(min(step.before, step.after))
    seqs = [row[0] for row in connection.execute(statement("select_time_bound_jobs"), (first,))]
    changed = _rewrite(connection, seqs, partial(carry_over, step=step))
    if step.by < timedelta():  # no alarm may come after its jobs are due
        connection.execute(statement("move_alarms"), (step.by // timedelta(microseconds=1),)).fetchall()
    before = steps_of(connection)
    steps = ClockStepSummary(
        total=before.total + step.by,
        by=step.by,
        at=step.after,
        noticed_by=f"process {os.getpid()}",
        jobs=changed,
    )
    write_meta(connection, "clock", msgspec.json.encode(steps).decode())


def _rewrite(connection: apsw.Connection, seqs: list[int], change: Callable[[Job], Job]) -> int:
    """Write what `change` makes of these jobs; return how many it has changed. They keep their states."""
    changed = 0
    for start in range(0, len(seqs), JOBS_AT_ONCE):
        some = number_list(seqs[start : start + JOBS_AT_ONCE])
        found = [
            job_of(row) for row in connection.execute(statement("select_jobs_by_seq"), (some,)).fetchall()
        ]
        moved = [(job, after) for _, job in found if (after := change(job)) is not job]
        writer = JobWriter(connection, {job.job_id: seq for seq, job in found})
        writer.update(moved, {}, Claims(connection, {}))
        queued = [(job, after) for job, after in moved if job.state is State.QUEUED]
        writer.enqueue([after for _, after in queued], [job for job, _ in queued])
        changed += len(moved)
    return changed


def _extended(job: Job, by: timedelta) -> Job:
    """Return the job with a lease that ends so much later."""
    lease = job.lease
    return job if lease is None else replace(job, lease=replace(lease, expires_at=lease.expires_at + by))


def steps_of(connection: apsw.Connection) -> ClockStepSummary:
    """Return what the file has recorded of the steps of its clock."""
    text = read_meta(connection, "clock")
    return msgspec.json.decode(text, type=ClockStepSummary) if isinstance(text, str) else ClockStepSummary()
