"""The exceptions by which a handler decides how its attempt ends. All others are transient errors."""

from holdfast.core.durations import Duration, parse_duration


class TransientError(Exception):
    """It may work next time: try again after a delay, as long as the budget lasts."""


class PermanentError(Exception):
    """It will never work: the job ends now."""


class ValidationError(PermanentError):
    """The arguments of the job make no sense: the job becomes a dead letter."""


class Snooze(Exception):
    """Not now: run the job again after `delay`, such as 30 (seconds) or "5m". This uses up no budget."""

    def __init__(self, delay: Duration, reason: str | None = None) -> None:
        super().__init__(delay, reason)
        self.delay = parse_duration(delay, "Snooze")
        self.reason = reason


class Cancelled(Exception):
    """The handler stops because it was asked to: the job ends as cancelled."""
