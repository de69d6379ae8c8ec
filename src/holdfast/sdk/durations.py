"""Durations as people give them: a timedelta, or a number of seconds."""

from datetime import timedelta
from typing import TypeAlias

from holdfast.core.errors import Invalid

Duration: TypeAlias = timedelta | float


def duration(value: Duration, what: str) -> timedelta:
    """The duration as a timedelta; `Invalid` for what is none."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Invalid(
            f"{what} is a timedelta or a number of seconds, not a {type(value).__name__}."
        )
    try:
        return timedelta(seconds=value)
    except (OverflowError, ValueError):
        raise Invalid(f"{what} is a timedelta or a number of seconds, not {value}.") from None
