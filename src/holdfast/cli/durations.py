"""Durations and instants as people write them: 90, 5m, 1h30m, PT5M; 2030-01-01T09:00."""

from datetime import datetime, timedelta

import click

from holdfast.core.durations import has_unit, parse_duration
from holdfast.core.errors import Invalid
from holdfast.core.explanation import format_duration


class Duration(click.ParamType[timedelta]):
    """A duration as `parse_duration` reads it; with `unit`, a number alone is refused."""

    name = "duration"

    def __init__(
        self, *, unit: bool = False, least: timedelta | None = None, most: timedelta | None = None
    ) -> None:
        self._unit = unit
        self._least, self._most = least or timedelta(), most or timedelta.max

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        try:
            length = parse_duration(value)
        except Invalid as error:
            self.fail(error.message, param, ctx)
        if self._unit and isinstance(value, str) and not has_unit(value):
            self.fail(f"{value!r} needs a unit here; write 90s, 5m, 1h30m or 30d.", param, ctx)
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
        try:
            parse_duration(value)
        except Invalid:
            return Instant().convert(value, param, ctx)
        return Duration(unit=True).convert(value, param, ctx)


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
