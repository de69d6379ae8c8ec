"""How many jobs to claim ahead of need, from how fast they have ended."""

from holdfast.core.limits import BATCH_ITEMS_MAX
from holdfast.ports import Clock

AHEAD_SECONDS = 0.1
WINDOW_SECONDS = 0.05


class Prefetch:
    """Claims ahead only what will begin within a tenth of a second. A claim for every single job would
    spend most of its time on the way to the store and back."""

    def __init__(self, clock: Clock, slots: int) -> None:
        self._clock = clock
        self._slots = slots
        self._done = 0
        self._since = clock.monotonic()
        self.per_second = 0.0

    def jobs_ended(self, count: int) -> None:
        self._done += count

    def wanted(self, waiting: int, held: int) -> int:
        """Return how many to claim now, with this many `held`, of which some are `waiting` to begin."""
        self._measure()
        ahead = min(int(self.per_second * AHEAD_SECONDS), BATCH_ITEMS_MAX)
        wanted = self._slots + ahead - held
        if waiting and wanted < (self._slots + ahead) // 4:
            return 0  # enough to go on with: let more jobs end, and claim for all of them at once
        return max(0, min(wanted, BATCH_ITEMS_MAX))

    def _measure(self) -> None:
        now = self._clock.monotonic()
        seconds = now - self._since
        if seconds >= WINDOW_SECONDS:
            rate = self._done / seconds
            # Step by step, in both directions: within a quarter of a second from none ahead to a tenth of a
            # second's, and no pause of a single commit is taken for the end of short jobs.
            most = self.per_second * 4 + self._slots / AHEAD_SECONDS
            self.per_second = min(max(rate, self.per_second / 4), most)
            self._done, self._since = 0, now
