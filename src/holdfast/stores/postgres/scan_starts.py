"""Scan starts: where scans for ready and due jobs begin, when the dead rows of earlier jobs make them slow.

As long as any transaction holds an old snapshot, PostgreSQL keeps the index entries of jobs that were
claimed long ago, and a scan from the beginning passes over all of them. Once such a scan was slow, the next
ones start where the last one found something, and only now and then one starts from the beginning: a job
that returned to an earlier place, or was committed late, waits for that one. While scans are quick, all
start at the beginning.
"""

from collections.abc import Hashable, Iterable
from datetime import UTC, datetime, timedelta

from holdfast.ports import Clock

BEGINNING = datetime(1, 1, 1, tzinfo=UTC)
SLOW_SECONDS = 0.02
SLOW_SECONDS_PER_JOB = 0.0001
MARGIN = timedelta(seconds=1)
WHOLE_SECONDS_MIN = 1.0
WHOLE_SECONDS_MAX = 10.0
WHOLE_SHARE = 20
QUIET_SECONDS = 0.25


class ScanStarts:
    """The scan starts of one store, one for each row of jobs (a queue and a priority, or all due jobs)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._marks: dict[Hashable, datetime] = {}
        self._next_whole = 0.0
        self._begun = float("-inf")
        self._whole = True
        self._found = 0

    def begin(self, rows: Iterable[Hashable]) -> list[datetime]:
        """Begin a scan; return where it starts in each row."""
        self._begun = self._clock.monotonic()
        self._whole = not self._marks or self._begun >= self._next_whole
        return [BEGINNING if self._whole else self._marks.get(row, BEGINNING) for row in rows]

    @property
    def quiet(self) -> bool:
        """Whether a scan less than `QUIET_SECONDS` ago found nothing."""
        return not self._found and self._clock.monotonic() < self._begun + QUIET_SECONDS

    def end(self, firsts: dict[Hashable, datetime], jobs: int) -> None:
        """End the scan, which found `jobs` jobs; `firsts` is where it found the first one of each row."""
        seconds = self._clock.monotonic() - self._begun
        self._found = jobs
        if self._whole and seconds < SLOW_SECONDS + jobs * SLOW_SECONDS_PER_JOB:
            self._marks.clear()
            return
        if self._whole:
            wait = min(max(WHOLE_SHARE * seconds, WHOLE_SECONDS_MIN), WHOLE_SECONDS_MAX)
            self._next_whole = self._clock.monotonic() + wait
        for row, first in firsts.items():
            self._marks[row] = first - MARGIN

    def forget(self) -> None:
        """Start from the beginning next time: a job may have returned to an earlier place."""
        self._marks.clear()
