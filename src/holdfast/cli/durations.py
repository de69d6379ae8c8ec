"""Durations and instants as people write them: 30s, 5m, 1.5h, 2d, 90; 2030-01-01T09:00."""

import re
from datetime import datetime, timedelta

import click

from holdfast.core.explanation import format_duration

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "": 1}
_DURATION = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(ms|s|m|h|d|w|)\Z", re.ASCII)


class Duration(click.ParamType[timedelta]):
    """A number with a unit, or plain seconds; with `unit`, the unit is required."""

    name = "duration"

    def __init__(
        self, *, unit: bool = False, least: timedelta | None = None, most: timedelta | None = None
    ) -> None:
        self._unit = unit
        self._least, self._most = least or timedelta(), most or timedelta.max

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = _DURATION.match(str(value).strip().lower())
        if match is None or (self._unit and not match[2]):
            self.fail(f"{value!r} is not a duration; write 30s, 5m, 1.5h or 2d.", param, ctx)
        try:
            length = timedelta(seconds=float(match[1]) * _UNITS[match[2]])
        except OverflowError:
            self.fail(f"{value!r} is too long a duration.", param, ctx)
        if not self._least <= length <= self._most:
            self.fail(
                f"{value!r} is not from {format_duration(self._least)} to {format_duration(self._most)}.",
                param,
                ctx,
            )
        return length


class Since(click.ParamType[datetime | timedelta]):
    """How long ago, or when."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime | timedelta:
        if isinstance(value, datetime | timedelta):
            return value
        if _DURATION.match(str(value).strip().lower()):
            return Duration(unit=True).convert(value, param, ctx)
        return Instant().convert(value, param, ctx)


class Instant(click.ParamType[datetime]):
    """A date and time in ISO 8601; without a zone, in the zone of this machine."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            instant = datetime.fromisoformat(str(value).strip())
            return instant if instant.tzinfo is not None else instant.astimezone()
        except (ValueError, OverflowError, OSError):
            self.fail(
                f"{value!r} is not a time; write 2030-01-31T09:00 or 2030-01-31T09:00+01:00.",
                param,
                ctx,
            )
