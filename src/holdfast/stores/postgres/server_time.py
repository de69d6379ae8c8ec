"""The server's time as last read, extrapolated by this process's own clock, and whether it was set since.

PostgreSQL has no monotonic clock, but each of our processes has one, and reads the server's time with every
trip. So each compares the two before anything is decided by a time that it read.
"""

from datetime import datetime, timedelta

from msgspec import Struct

from holdfast.core.clock_step import TOLERANCE, ClockStep
from holdfast.ports import Clock

FRESH_SECONDS = 5.0
DRIFT_MAX = 0.001
STEADY_DRIFT_MAX = 0.01
"""How fast or slow a clock may run without having been set."""
WIDTH_SECONDS_MAX = 1.0
"""A reading that took longer than this is too imprecise to compare the next one with."""


class ClockStepped(Exception):
    """The server's clock was set: nothing was decided."""


class ClockReading(Struct, frozen=True, gc=False):
    """A time that the server returned, and our own clock when it was asked and when it answered."""

    server_time: datetime
    sent_at: float
    received_at: float


class ServerTime:
    """What this process knows of the server's time.

    `clock` counts seconds, those in which the machine sleeps included. `steps` is the stored text about the
    steps of the server's clock that were handled, as last read; `compared` says whether the time was
    compared with the times in the store that are older than this process.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._estimated_from: ClockReading | None = None
        self._anchor: ClockReading | None = None
        self.steps = ""
        self.compared = False

    def begin_reading(self) -> float:
        """Return our own clock before a query is sent, to be passed to `observe` with the result."""
        return self._clock.monotonic()

    def observe(self, now: datetime, asked: float) -> bool:
        """Record a time of the server; return whether it is consistent with earlier ones. The server read
        its clock at some time between query and result, so a slow result is never taken for a step."""
        reading = ClockReading(now, asked, self._clock.monotonic())
        anchor = self._anchor
        if anchor is not None and not _fits(anchor, reading):
            self._estimated_from = None
            return False
        self._estimated_from = reading
        narrow = reading.received_at - asked <= WIDTH_SECONDS_MAX
        if anchor is None or (now > anchor.server_time and narrow):
            self._anchor = reading
        return True

    def step(self, now: datetime, asked: float) -> ClockStep | None:
        """Return by how much the server's clock was set since the last consistent reading; None if it was
        not."""
        reading, anchor = ClockReading(now, asked, self._clock.monotonic()), self._anchor
        if anchor is None or _fits(anchor, reading):
            return None
        passed = (reading.sent_at + reading.received_at - anchor.sent_at - anchor.received_at) / 2
        return ClockStep(
            before=anchor.server_time + timedelta(seconds=passed),
            after=now,
            since=anchor.server_time,
        )

    def accept(self, now: datetime, asked: float, steps: str) -> None:
        """Take this as the server's time from now on; `steps` are those that were handled."""
        self._anchor = self._estimated_from = ClockReading(now, asked, self._clock.monotonic())
        self.steps = steps

    def stop_estimating(self) -> None:
        """Stop estimating: another server may answer next. The last reading is still compared with: if the
        other server's clock differs, it is handled as if the clock had been set."""
        self._estimated_from = None

    @property
    def observed(self) -> bool:
        """Whether any time was read so far."""
        return self._anchor is not None

    def estimate(self) -> datetime | None:
        """Return an estimate of the server's time; None when the last reading is too old.

        It is behind the server's time: by the latency of the last result, by a margin in case that our
        clock runs fast, and by as long as this process was frozen. The server refuses a write with an
        estimate that is too far behind.
        """
        last = self._estimated_from
        if last is None:
            return None
        passed = self._clock.monotonic() - last.received_at
        if passed > FRESH_SECONDS:
            return None
        return last.server_time + timedelta(seconds=passed * (1 - DRIFT_MAX))


def _fits(anchor: ClockReading, reading: ClockReading) -> bool:
    passed = (reading.server_time - anchor.server_time).total_seconds()
    least, most = reading.sent_at - anchor.received_at, reading.received_at - anchor.sent_at
    early = least - abs(least) * STEADY_DRIFT_MAX - _TOLERANCE
    return early <= passed <= most + most * STEADY_DRIFT_MAX + _TOLERANCE


_TOLERANCE = TOLERANCE.total_seconds()
