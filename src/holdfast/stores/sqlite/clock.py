"""The store's clock: the wall clock of this boot's first opening, carried on by the machine's own count.

A step of the wall clock never touches a lease. The anchor is kept in the file, so that every process
of this boot reads the same time. While the machine sleeps nobody can renew, so leases sleep too.
"""

from datetime import datetime

import apsw

from holdfast.failpoint import failpoint
from holdfast.stores.sqlite.connection import read_meta, write_meta
from holdfast.stores.sqlite.statements import statement
from holdfast.stores.sqlite.values import moment_of, stamp
from holdfast.system import SystemClock, asleep_seconds, boot_id, boot_seconds

_SLEEP_NOTICED_SECONDS = 1.0


class AnchoredClock(SystemClock):
    """Wall time at the anchor plus the seconds since. Where the system cannot tell one boot from
    another, the plain wall clock."""

    def __init__(self, connection: apsw.Connection) -> None:
        """Agree on the anchor with everybody else who opens the file. Inside a write transaction."""
        self._boot = boot_id()
        if self._boot is None:
            self._anchor = None
            return
        kept = read_meta(connection, "clock_anchor")
        parts = str(kept).split() if kept is not None else []
        if len(parts) == 2 and parts[0] == self._boot:
            self._anchor = int(parts[1])
        else:
            row = connection.execute("SELECT max(updated_at) FROM job").fetchone()
            latest = row[0] if row and isinstance(row[0], int) else 0
            wall = max(stamp(super().now()), latest)
            self._anchor = wall - int(boot_seconds() * 1e6)
            write_meta(connection, "clock_anchor", f"{self._boot} {self._anchor}")
            write_meta(connection, "asleep_seconds", asleep_seconds())
            failpoint("sqlite.clock_anchored")
        self._asleep = float(str(read_meta(connection, "asleep_seconds") or 0))

    def now(self) -> datetime:
        if self._anchor is None:
            return super().now()
        return moment_of(self._anchor + int(boot_seconds() * 1e6))

    def wake(self, connection: apsw.Connection) -> bool:
        """Give every lease the time back that the machine has slept; answers whether it has. Inside a write
        transaction."""
        if self._anchor is None or asleep_seconds() - self._asleep < _SLEEP_NOTICED_SECONDS:
            return False
        # What is known to be made up for is only what was committed, by whomever.
        self._asleep = float(str(read_meta(connection, "asleep_seconds") or 0))
        asleep = asleep_seconds()
        if (slept := asleep - self._asleep) < _SLEEP_NOTICED_SECONDS:
            return False
        shift = {"shift": int(slept * 1e6)}
        connection.execute(statement("shift_leases"), shift).fetchall()
        write_meta(connection, "asleep_seconds", asleep)
        return True
