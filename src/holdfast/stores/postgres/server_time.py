"""The server's time as last heard, carried on by our own clock."""

from datetime import datetime, timedelta

from holdfast.ports import Clock

FRESH_SECONDS = 5.0
DRIFT_MAX = 0.001


class ServerTime:
    """Spares those a trip to the server who only need to know what time it is there.

    The server looked at its clock before we heard of it, so what is guessed is behind its time: by the way
    of the answer, by a little more so that our clock may run fast, and by as long as this process was
    frozen or its machine slept. Whoever uses it says so, and the server refuses what is too far behind.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard: datetime | None = None
        self._at = 0.0

    def hear(self, now: datetime) -> None:
        self._heard, self._at = now, self._clock.monotonic()

    def forget(self) -> None:
        """Another server may answer next, whose clock is its own."""
        self._heard = None

    def guess(self) -> datetime | None:
        """What time it is there now; None when nothing was heard of late."""
        passed = self._clock.monotonic() - self._at
        if self._heard is None or passed > FRESH_SECONDS:
            return None
        return self._heard + timedelta(seconds=passed * (1 - DRIFT_MAX))
