"""The exceptions by which a handler decides how its attempt ends. All others are transient errors."""

from datetime import timedelta


class TransientError(Exception):
    """It may work next time: try again after a delay, as long as the budget lasts."""


class PermanentError(Exception):
    """It will never work: the job ends now."""


class ValidationError(PermanentError):
    """The arguments of the job make no sense: the job becomes a dead letter."""


class Snooze(Exception):
    """Not now: run the job again after `delay`. This uses up no budget."""

    def __init__(self, delay: timedelta | float, reason: str | None = None) -> None:
        super().__init__(delay, reason)
        self.delay = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
        self.reason = reason


class Cancelled(Exception):
    """The handler stops because it was asked to: the job ends as cancelled."""
