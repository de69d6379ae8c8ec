"""Moments: instants on their way to the server and back.

The jobs of one batch share most of theirs. Looked up, one costs 0.15 us each way; worked out anew by the
driver it is 1.0 and 0.7, and a job has eleven of them.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import asyncpg

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_ENDS = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def sent(moment: datetime) -> tuple[int]:
    """Microseconds since 2000, as PostgreSQL counts."""
    # In other zones two instants may be equal: those of the hour that comes twice in autumn.
    return _sent(moment) if moment.tzinfo is UTC else _sent.__wrapped__(moment)


@lru_cache(maxsize=4096)
def _sent(moment: datetime) -> tuple[int]:
    return ((moment - _EPOCH) // _MICROSECOND,)


@lru_cache(maxsize=4096)
def received(counted: tuple[int]) -> datetime:
    """The instant; the first or last of all for what lies beyond, such as infinity."""
    try:
        return _EPOCH + timedelta(microseconds=counted[0])
    except OverflowError:
        return _ENDS[counted[0] > 0]


async def teach(connection: "asyncpg.Connection[Any]") -> None:
    """Have the connection send and receive instants like this."""
    await connection.set_type_codec(
        "timestamptz", schema="pg_catalog", encoder=sent, decoder=received, format="tuple"
    )
