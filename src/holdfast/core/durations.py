"""Durations as people write them: one grammar for flags, settings, Python and REST."""

import re
from datetime import timedelta
from typing import TypeAlias

from holdfast.core.errors import Invalid
from holdfast.core.limits import clip

Duration: TypeAlias = timedelta | float | str
"""A timedelta, a number of seconds, or a text such as 5m, 1h30m or PT5M."""

DURATION_EXAMPLES = "90 (seconds), 500ms, 5m, 1h30m, 1.5h, 2d or PT5M"
_NUMBER = r"(?:\d+(?:\.\d+)?|\.\d+)"
_UNITS = (("weeks", "w"), ("days", "d"), ("hours", "h"), ("minutes", "m"), ("seconds", "s"))


def _parts(*units: tuple[str, str]) -> str:
    return "".join(rf"(?:(?P<{name}>{_NUMBER}) *{unit} *)?" for name, unit in units)


_SECONDS = re.compile(rf"(?P<seconds>{_NUMBER})\Z", re.ASCII)
_UNITED = re.compile(rf"(?=\S){_parts(*_UNITS, ('milliseconds', 'ms'))}\Z", re.ASCII)
_ISO = re.compile(rf"p(?=\S){_parts(*_UNITS[:2])}(?:t(?=\S){_parts(*_UNITS[2:])})?\Z", re.ASCII)


def parse_duration(value: object, what: str | None = None) -> timedelta:
    """Return the duration as a timedelta; raises `Invalid`, beginning with `what`, for anything else."""
    if isinstance(value, timedelta):
        return value
    try:
        if isinstance(value, str):
            return _from_text(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            return timedelta(seconds=value)
    except (OverflowError, ValueError):
        pass
    place = f"{what}: " if what else ""
    raise Invalid(f"{place}{clip(repr(value), 80)} is not a duration; write {DURATION_EXAMPLES}.")


def has_unit(text: str) -> bool:
    """Whether the text is more than a number: where seconds are rarely meant, a unit is required."""
    return _SECONDS.match(text.strip(" ")) is None


def _from_text(text: str) -> timedelta:
    written = text.strip(" ").lower()
    match = _SECONDS.match(written) or _UNITED.match(written) or _ISO.match(written)
    if match is None:
        raise ValueError(text)
    return timedelta(**{name: float(number) for name, number in match.groupdict().items() if number})
