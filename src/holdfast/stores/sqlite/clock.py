"""The store's clock: a time of the wall clock, plus the seconds that the machine has counted since.

A step of the wall clock never touches a lease. The anchor between the two is kept in the file, so that
every process of this boot reads the same time. When the wall clock has differed for a while, the anchor is
set by it anew, and all leases, deadlines and waits are moved to the new time in the same commit. While the
machine sleeps no owner can renew, so leases are extended by that time.
"""

import os
from datetime import datetime, timedelta

import apsw
import msgspec

from holdfast.core.clock_step import TOLERANCE, ClockStep, ClockStepSummary, carry_over
from holdfast.failpoint import failpoint
from holdfast.stores.sqlite.connection import read_meta, write_meta
from holdfast.stores.sqlite.job_rows import job_of, update_row
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
        shift = {"shift": int(slept * 1e6)}
        connection.execute(statement("shift_leases"), shift).fetchall()
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
    changed = 0
    for start in range(0, len(seqs), JOBS_AT_ONCE):
        some = msgspec.json.encode(seqs[start : start + JOBS_AT_ONCE]).decode()
        rows = connection.execute(statement("select_jobs_by_seq"), (some,))
        found = [job_of(row) for row in rows]
        moved = [
            update_row(seq, after, job.version)
            for seq, job in found
            if (after := carry_over(job, step)) is not job
        ]
        connection.executemany(statement("update_job"), moved).fetchall()
        changed += len(moved)
    before = steps_of(connection)
    steps = ClockStepSummary(
        total=before.total + step.by,
        by=step.by,
        at=step.after,
        noticed_by=f"process {os.getpid()}",
        jobs=changed,
    )
    write_meta(connection, "clock", msgspec.json.encode(steps).decode())


def steps_of(connection: apsw.Connection) -> ClockStepSummary:
    """Return what the file has recorded of the steps of its clock."""
    text = read_meta(connection, "clock")
    return msgspec.json.decode(text, type=ClockStepSummary) if isinstance(text, str) else ClockStepSummary()
