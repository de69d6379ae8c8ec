"""Lane marks: where claims begin to read a lane of ready jobs.

As long as any transaction holds an old snapshot, PostgreSQL keeps the index entries of jobs that were
claimed long ago, and a claim that read a lane from its beginning would pass over all of them. So a claim
begins where an earlier one ended. Migration 4 (`claim_4`) says why nothing that can be claimed is left behind
a mark for long; what lands there all the same is found when the lane is read from its beginning again, which
takes up to 1/`WHOLE_SHARE` of the time.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import TypeAlias

from holdfast.ports import Clock

WHOLE_SECONDS = 1.0
WHOLE_SHARE = 20
MARKS_MAX = 10_000

Mark: TypeAlias = tuple[datetime, int]


class LaneMarks:
    """The marks of one store. Only transactions that were committed move them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._marks: dict[int, Mark] = {}
        self._whole_at = float("-inf")
        self._begun = 0.0
        self._whole = False

    def begin(self) -> tuple[list[int], list[datetime], list[int]]:
        """Begin a claim; return the lanes that have a mark, and the marks."""
        self._begun = self._clock.monotonic()
        self._whole = self._begun >= self._whole_at
        return self.known() if not self._whole else ([], [], [])

    def known(self) -> tuple[list[int], list[datetime], list[int]]:
        """Return the lanes that have a mark, and the marks."""
        marks = self._marks
        return list(marks), [at for at, _ in marks.values()], [seq for _, seq in marks.values()]

    def read(self) -> None:
        """Note that the lanes of the claim were read."""
        if self._whole:
            now = self._clock.monotonic()
            self._whole_at = now + max(WHOLE_SECONDS, WHOLE_SHARE * (now - self._begun))
            self._whole = False

    def move(self, marks: Iterable[tuple[int, datetime, int]]) -> None:
        """Take the marks of a claim whose transaction was committed."""
        if len(self._marks) > MARKS_MAX:
            self._marks.clear()
        for lane, at, seq in marks:
            self._marks[lane] = (at, seq)

    def forget(self) -> None:
        """Begin at the beginning next time."""
        self._marks.clear()
        self._whole_at = float("-inf")
