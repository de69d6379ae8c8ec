"""What a handler raises to say how its attempt ends. Any other exception is a transient error."""

from datetime import timedelta


class TransientError(Exception):
    """It may work next time: try again after a while, as far as the budget goes."""


class PermanentError(Exception):
    """It will never work: the job ends now."""


class ValidationError(PermanentError):
    """What the job was given makes no sense: the job is parked among the dead letters."""


class Snooze(Exception):
    """Not now: run the job again after `delay`. It costs neither budget."""

    def __init__(self, delay: timedelta | float, reason: str | None = None) -> None:
        super().__init__(delay, reason)
        self.delay = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
        self.reason = reason


class Cancelled(Exception):
    """The handler stops because it was asked to: the job ends cancelled."""
