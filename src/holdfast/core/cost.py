"""Cost: for how long a job was in somebody's hands, and what that comes to."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from msgspec import Struct

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
    moves = [event for event in history if event.to_state is not None]
    ends = [*(move.occurred_at for move in moves[1:]), now]
    held = (
        max(end - move.occurred_at, _NOTHING)
        for move, end in zip(moves, ends, strict=False)
        if move.to_state in LEASED
    )
    return Cost(seconds=sum(held, _NOTHING).total_seconds(), rate=rate)


def check_rate(text: str) -> float:
    """The rate that somebody wrote, or raise `Invalid`."""
    with suppress(ValueError):
        if 0 <= (rate := float(text)) <= RATE_MAX:
            return rate
    raise Invalid(f"A rate is USD for an hour of compute, such as {RATE:.2f}, not {text!r}.")
