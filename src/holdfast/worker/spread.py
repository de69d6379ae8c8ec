"""How much of a burst a worker takes at once, so that idle workers beside it get their share."""

FIRST = 2
SPREAD_SECONDS = 0.015
"""How long a worker leaves the rest of a burst to others: they are woken, and claim, within milliseconds."""
GROWTH = 16


class Spread:
    """A worker begins with a claim of two jobs, whatever it has room for. While there are more, it takes two,
    four, six, ten and so on, each a moment after the last, so that a hundred slots fill in a tenth of a
    second. Jobs that end at once are no reason to wait: for each that has ended it takes sixteen, and while
    ten or more end in a second it takes all that it has room for."""

    def __init__(self) -> None:
        self._size = self._next = FIRST
        self._ended = 0
        self._due = False

    def jobs_ended(self, count: int) -> None:
        self._ended += count

    def limit(self, wanted: int, ahead: int) -> int:
        """Return how many of the `wanted` jobs to claim now: all, where some have begun in every tenth of a
        second lately (`ahead`)."""
        return wanted if ahead else min(wanted, max(self._size, GROWTH * self._ended))

    def claimed(self, count: int, limit: int, wanted: int) -> None:
        """So many were got, of so many asked for, where so many were wanted."""
        if count < limit:  # nothing is left to share
            self._size = self._next = FIRST
            self._ended = 0
        elif limit < wanted:
            self._size, self._next = self._next, self._size + self._next
            self._due = True

    def pause(self) -> float:
        """Return how long to leave the rest to others, or until a job has ended; once for each claim."""
        due, self._due = self._due, False
        return SPREAD_SECONDS if due else 0.0
