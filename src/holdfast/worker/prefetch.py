"""How many jobs to claim ahead of need, from how fast they have ended."""

from holdfast.core.limits import BATCH_ITEMS_MAX
from holdfast.ports import Clock

AHEAD_SECONDS = 0.1
WINDOW_SECONDS = 0.05
BRIEF_SECONDS = 0.025
KEPT_WINDOWS = 10


class Prefetch:
    """Claims ahead only what will begin within a tenth of a second. A claim for every single job would
    spend most of its time on the way to the store and back. `slots` may change, up to `slots_max`.
    """

    def __init__(self, clock: Clock, slots: int, slots_max: int | None = None) -> None:
        self._clock = clock
        self.slots = slots
        self._step = (slots_max or slots) / AHEAD_SECONDS
        self._done = 0
        self._since = clock.monotonic()
        self.per_second = 0.0

    def jobs_ended(self, count: int) -> None:
        self._done += count

    @property
    def ahead(self) -> int:
        """How many jobs begin within a tenth of a second."""
        return min(int(self.per_second * AHEAD_SECONDS), BATCH_ITEMS_MAX)

    def wanted(self, waiting: int, held: int) -> int:
        """Return how many to claim now, with this many `held`, of which some are `waiting` to begin."""
        self._measure()
        ahead = self.ahead
        wanted = self.slots + ahead - held
        if waiting and wanted < (self.slots + ahead) // 4:
            return 0  # enough to go on with: let more jobs end, and claim for all of them at once
        return max(0, min(wanted, BATCH_ITEMS_MAX))

    def _measure(self) -> None:
        now = self._clock.monotonic()
        seconds = now - self._since
        if seconds >= WINDOW_SECONDS:
            rate = self._done / seconds
            # Step by step, in both directions: within a quarter of a second from none ahead to a tenth of a
            # second's, and no pause of a single commit is taken for the end of short jobs.
            most = self.per_second * 4 + self._step
            self.per_second = min(max(rate, self.per_second / 4), most)
            self._done, self._since = 0, now


class BriefSlots:
    """How many jobs that take a thread or process each may run at the same time: `least`, and more, up to
    `most`, while as many end within 25 ms. Then they share frames and commits, and none of them waits long
    for a processor."""

    def __init__(self, clock: Clock, least: int, most: int) -> None:
        self._clock = clock
        self._least = self.now = least
        self._most = most
        self._done = 0
        self._since = clock.monotonic()

    def jobs_ended(self, count: int) -> None:
        self._done += count
        now = self._clock.monotonic()
        if (windows := (now - self._since) / BRIEF_SECONDS) >= 1:
            # They shrink step by step: no pause of a single commit is taken for the end of brief jobs.
            kept = self.now * 3 // 4 if windows < KEPT_WINDOWS else 0
            self.now = min(max(int(self._done / windows), kept, self._least), self._most)
            self._done, self._since = 0, now
