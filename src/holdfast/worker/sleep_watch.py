"""Notices that the machine was asleep: that nothing of this worker ran for a while, as with a closed lid."""

from collections.abc import Callable

from holdfast.ports import Clock

ASLEEP_SECONDS = 1.0
"""What comes so much later than it was due was not held up by other work."""
RENEW_SECONDS = 3.0
"""How long after it woke a worker tries to renew the leases that were over meanwhile."""
YIELD_SECONDS = 1.0
"""How long after it woke a worker expires no leases, and claims nothing: other workers slept as well."""


class SleepWatch:
    """Each loop of a worker says when it was to run again: if that is long ago, the machine was asleep.

    `suspended` returns the seconds that the machine has slept without its monotonic clock.
    """

    def __init__(self, clock: Clock, suspended: Callable[[], float] = lambda: 0.0) -> None:
        self._clock = clock
        self._suspended = suspended
        self._before = suspended()
        self._woke_at = float("-inf")
        self.wakes = 0
        self.slept = 0.0
        """How often the machine has woken, and how many seconds it had slept the last time."""

    def late(self, due_at: float) -> bool:
        """Return whether the machine has just woken from a sleep, for what was due at this time."""
        now = self._clock.monotonic()
        suspended = self._suspended()
        late = max(0.0, now - due_at) + suspended - self._before
        if late < ASLEEP_SECONDS:
            return False
        self._before = suspended
        if now - self._woke_at >= ASLEEP_SECONDS:  # another loop has not noticed the same
            self.wakes += 1
            self._woke_at, self.slept = now, late
        return True

    @property
    def yielding(self) -> float:
        """For how many seconds from now leases that are over are left to their owners, which may have slept
        as well."""
        return max(0.0, self._woke_at + YIELD_SECONDS - self._clock.monotonic())
