"""Cost: for how long a job was in somebody's hands, and what that comes to."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from msgspec import Struct

from holdfast.core.catalogue import EventType
from holdfast.core.errors import Invalid
from holdfast.core.event import Event
from holdfast.core.state import LEASED

RATE = 0.10
"""USD for an hour of compute, unless somebody says otherwise."""

RATE_MAX = 1_000_000.0
_NOTHING = timedelta(0)


class Cost(Struct, frozen=True, kw_only=True):
    """What a job took, and what that costs at `rate` USD an hour."""

    seconds: float
    rate: float

    @property
    def dollars(self) -> float:
        return self.seconds * self.rate / 3600


def cost_of(history: Sequence[Event], now: datetime, *, rate: float = RATE) -> Cost:
    """The cost of a job by its own events, in the order of their offsets: of every attempt, from its
    claim to its end. One that is under way counts up to `now`; to wait, or to be validated, costs
    nothing. The moments are for people, and so is this: a clock that was set back counts as no time."""
    held = (length for _, length in _held(history, now))
    return Cost(seconds=sum(held, _NOTHING).total_seconds(), rate=rate)


def last_attempt(history: Sequence[Event], now: datetime) -> timedelta | None:
    """How long the last attempt took, or has taken by `now`, from its claim to its end; None when there
    was none. `started_at` is no begin to count from: it is the first heartbeat, or even the end."""
    took = None
    for move, length in _held(history, now):
        took = length if took is None or move.event_type == EventType.CLAIMED else took + length
    return took


def _held(history: Sequence[Event], now: datetime) -> Iterator[tuple[Event, timedelta]]:
    """The moves that left the job in its owner's hands, each with the time until the next."""
    moves = [event for event in history if event.to_state is not None]
    ends = [*(move.occurred_at for move in moves[1:]), now]
    for move, end in zip(moves, ends, strict=False):
        if move.to_state in LEASED:
            yield move, max(end - move.occurred_at, _NOTHING)


def check_rate(text: str) -> float:
    """The rate that somebody wrote, or raise `Invalid`."""
    with suppress(ValueError):
        if 0 <= (rate := float(text)) <= RATE_MAX:
            return rate
    raise Invalid(f"A rate is USD for an hour of compute, such as {RATE:.2f}, not {text!r}.")
