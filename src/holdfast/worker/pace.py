"""The pace: how many jobs to claim, from how fast they have been done."""

from holdfast.core.limits import BATCH_ITEMS_MAX
from holdfast.ports import Clock

AHEAD_SECONDS = 0.1
WINDOW_SECONDS = 0.2


class Pace:
    """Claims ahead of need what will surely be begun within a tenth of a second, and no more: a claim
    for every single job would spend most of its time on the way to the store and back."""

    def __init__(self, clock: Clock, slots: int) -> None:
        self._clock = clock
        self._slots = slots
        self._done = 0
        self._since = clock.monotonic()
        self.per_second = 0.0

    def ended(self) -> None:
        self._done += 1

    def wanted(self, waiting: int, held: int) -> int:
        """How many to claim now, with so many held, some of them waiting to begin."""
        self._measure()
        ahead = min(int(self.per_second * AHEAD_SECONDS), BATCH_ITEMS_MAX)
        wanted = self._slots + ahead - held
        if waiting and wanted < (self._slots + ahead) // 4:
            return 0  # enough to go on with: let more ends come together
        return max(0, min(wanted, BATCH_ITEMS_MAX))

    def _measure(self) -> None:
        now = self._clock.monotonic()
        seconds = now - self._since
        if seconds >= WINDOW_SECONDS:
            rate = self._done / seconds
            # Slower at once, faster by and by: holding what cannot begin is the worse mistake.
            self.per_second = min(rate, self.per_second * 2 + self._slots / AHEAD_SECONDS)
            self._done, self._since = 0, now
