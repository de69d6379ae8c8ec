"""The server's time: as last heard, carried on by our own clock, and whether it was set since.

PostgreSQL has no clock that cannot be set, but every process of ours has one, and hears the server's time
with every trip. So each compares the two before anything is decided on a time that it heard.
"""

from datetime import datetime, timedelta

from msgspec import Struct

from holdfast.core.clock_step import TOLERANCE, Step
from holdfast.ports import Clock

FRESH_SECONDS = 5.0
DRIFT_MAX = 0.001
STEADY_DRIFT_MAX = 0.01
"""How fast or slow a clock may run that was not set."""
WIDTH_SECONDS_MAX = 1.0
"""A time that took longer to ask for says too little to compare the next one with."""


class Stepped(Exception):
    """The server's clock does not tell the time that it should: nothing was decided."""


class Reading(Struct, frozen=True, gc=False):
    """A time that the server told between two moments of our own clock."""

    told: datetime
    asked: float
    heard: float


class ServerTime:
    """What a process knows of the server's time.

    `clock` counts seconds that include a sleep of the machine. `steps` is the text that says which steps of
    the server's clock had been dealt with when it was last looked at, `compared` whether the time fits those
    that the store was told before this process came.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._guessed_from: Reading | None = None
        self._anchor: Reading | None = None
        self.steps = ""
        self.compared = False

    def ask(self) -> float:
        """The moment at which a question is sent: what its answer is heard with."""
        return self._clock.monotonic()

    def hear(self, told: datetime, asked: float) -> bool:
        """Take in what the server told; returns whether it fits what it told before. The server looked at its
        clock at some moment between question and answer, so a slow answer is never taken for a step."""
        reading = Reading(told, asked, self._clock.monotonic())
        anchor = self._anchor
        if anchor is not None and not _fits(anchor, reading):
            self._guessed_from = None
            return False
        self._guessed_from = reading
        narrow = reading.heard - asked <= WIDTH_SECONDS_MAX
        if anchor is None or (told > anchor.told and narrow):
            self._anchor = reading
        return True

    def step(self, told: datetime, asked: float) -> Step | None:
        """By how much the server's clock was set since the last time that fitted; None if it was not."""
        reading, anchor = Reading(told, asked, self._clock.monotonic()), self._anchor
        if anchor is None or _fits(anchor, reading):
            return None
        passed = (reading.asked + reading.heard - anchor.asked - anchor.heard) / 2
        return Step(before=anchor.told + timedelta(seconds=passed), after=told, since=anchor.told)

    def accept(self, told: datetime, asked: float, steps: str) -> None:
        """What the server tells is its time, and these steps of it were dealt with."""
        self._anchor = self._guessed_from = Reading(told, asked, self._clock.monotonic())
        self.steps = steps

    def forget(self) -> None:
        """Guess no more: another server may answer next. What is compared with stays: if that one's clock
        tells another time, it is as if the clock had been set."""
        self._guessed_from = None

    @property
    def heard(self) -> bool:
        """Whether any time was heard so far."""
        return self._anchor is not None

    def guess(self) -> datetime | None:
        """What time it is there now; None when nothing was heard of late.

        It is behind the server's time: by the way of the answer, by a little more so that our clock may run
        fast, and by as long as this process was frozen. The server refuses what is too far behind.
        """
        last = self._guessed_from
        if last is None:
            return None
        passed = self._clock.monotonic() - last.heard
        if passed > FRESH_SECONDS:
            return None
        return last.told + timedelta(seconds=passed * (1 - DRIFT_MAX))


def _fits(anchor: Reading, reading: Reading) -> bool:
    told = (reading.told - anchor.told).total_seconds()
    least, most = reading.asked - anchor.heard, reading.heard - anchor.asked
    early = least - abs(least) * STEADY_DRIFT_MAX - _TOLERANCE
    return early <= told <= most + most * STEADY_DRIFT_MAX + _TOLERANCE


_TOLERANCE = TOLERANCE.total_seconds()
