"""Moments and damage: what rows of jobs and rows of events have in common."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache

import msgspec

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
encoder = msgspec.json.Encoder()

DAMAGED = (msgspec.DecodeError, KeyError, OverflowError, TypeError, ValueError)
"""What comes of reading a row that nobody of ours has written like this."""


# The jobs of one batch share most of their moments: a repeat costs 0.05 us, not 0.25 and 0.55.
@lru_cache(maxsize=1024)
def stamp(moment: datetime) -> int:
    """Microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def stamp_maybe(moment: datetime | None) -> int | None:
    return None if moment is None else stamp(moment)


@lru_cache(maxsize=1024)
def moment_of(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)
