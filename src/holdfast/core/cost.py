"""Cost: how long the attempts of a job took, and the price of that time."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from msgspec import Struct

from holdfast.core.catalogue import EventType
from holdfast.core.errors import Invalid
from holdfast.core.event import Event
from holdfast.core.state import LEASED

RATE = 0.10
"""USD for an hour of compute, by default."""

RATE_MAX = 1_000_000.0
_NOTHING = timedelta(0)


class Cost(Struct, frozen=True, kw_only=True):
    """The time that a job took, and its price at `rate` USD an hour."""

    seconds: float
    rate: float

    @property
    def dollars(self) -> float:
        return self.seconds * self.rate / 3600


def cost_of(history: Sequence[Event], now: datetime, *, rate: float = RATE) -> Cost:
    """Return the cost of a job from its events, in the order of their offsets: the sum over its attempts,
    each from claim to end, or to `now` while it runs. Waiting and validation cost nothing. The instants of
    events are for people only, and so is the cost: where a clock was set back, no time is counted."""
    held = (length for _, length in _held(history, now))
    return Cost(seconds=sum(held, _NOTHING).total_seconds(), rate=rate)


def last_attempt_duration(history: Sequence[Event], now: datetime) -> timedelta | None:
    """Return how long the last attempt took, or has taken by `now`; None without an attempt.

    Where its owner has said how long the work took, it is that: the time between claim and end contains
    the wait for a slot, and an outage of the store. `started_at` is not used, because it is the first
    heartbeat, or even the end.
    """
    took = None
    for move, length in _held(history, now):
        took = length if took is None or move.event_type == EventType.CLAIMED else took + length
    worked: object = None
    for event in history:
        worked = None if event.event_type == EventType.CLAIMED else event.attributes.get("seconds", worked)
    return timedelta(seconds=worked) if isinstance(worked, int | float) else took


def _held(history: Sequence[Event], now: datetime) -> Iterator[tuple[Event, timedelta]]:
    """The transitions into a leased state, each with the time until the next one."""
    moves = [event for event in history if event.to_state is not None]
    ends = [*(move.occurred_at for move in moves[1:]), now]
    for move, end in zip(moves, ends, strict=False):
        if move.to_state in LEASED:
            yield move, max(end - move.occurred_at, _NOTHING)


def parse_rate(text: str) -> float:
    """Return the rate in the text, or raise `Invalid`."""
    with suppress(ValueError):
        if 0 <= (rate := float(text)) <= RATE_MAX:
            return rate
    raise Invalid(f"A rate is USD for an hour of compute, such as {RATE:.2f}, not {text!r}.")
