"""Durations as users give them: a timedelta, or a number of seconds."""

from datetime import timedelta
from typing import TypeAlias

from holdfast.core.errors import Invalid

Duration: TypeAlias = timedelta | float


def duration(value: Duration, what: str) -> timedelta:
    """Return the duration as a timedelta; `Invalid` for anything that is not one."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Invalid(f"{what} is a timedelta or a number of seconds, not a {type(value).__name__}.")
    try:
        return timedelta(seconds=value)
    except (OverflowError, ValueError):
        raise Invalid(f"{what} is a timedelta or a number of seconds, not {value}.") from None
