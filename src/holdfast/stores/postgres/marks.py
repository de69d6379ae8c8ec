"""Marks: where ready and due jobs begin, for when the dead rows of earlier ones are in the way.

As long as some transaction anywhere holds an old snapshot, PostgreSQL keeps the index entries of jobs that
are long claimed, and a look from the beginning passes over all of them. Once such a look was slow, the next
ones start where the last one found something, and only now and then one looks from the beginning: what came
back to an old place, or was committed late, waits for that one. While looks are quick there are no marks.
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


class Marks:
    """The marks of one store, each for one row of jobs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._marks: dict[Hashable, datetime] = {}
        self._next_whole = 0.0
        self._begun = float("-inf")
        self._whole = True
        self._found = 0

    def begin(self, rows: Iterable[Hashable]) -> list[datetime]:
        """A look begins: where, in each row."""
        self._begun = self._clock.monotonic()
        self._whole = not self._marks or self._begun >= self._next_whole
        return [BEGINNING if self._whole else self._marks.get(row, BEGINNING) for row in rows]

    @property
    def quiet(self) -> bool:
        """Whether a look a moment ago found nothing."""
        return not self._found and self._clock.monotonic() < self._begun + QUIET_SECONDS

    def end(self, firsts: dict[Hashable, datetime], jobs: int) -> None:
        """It has ended: where it found the first job of each row that it looked through."""
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
        """Look from the beginning next time: a job has gone back to an old place."""
        self._marks.clear()
