"""When a failed attempt is tried again: exponential back-off with full jitter, and two budgets."""

from datetime import timedelta
from enum import StrEnum
from hashlib import blake2b

from msgspec import Struct

from holdfast.core.errors import Invalid
from holdfast.core.limits import ATTEMPTS_MAX


class OnExhausted(StrEnum):
    """How a job ends when a budget is used up."""

    DEAD_LETTER = "dead_letter"
    FAIL = "fail"
    TIMEOUT = "timeout"


class Retry(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """`max_failures` counts errors the owner reported, `max_crashes` owners that vanished."""

    max_failures: int = 5
    max_crashes: int = 5
    backoff: timedelta = timedelta(milliseconds=500)
    factor: float = 2.0
    backoff_max: timedelta = timedelta(seconds=60)
    on_exhausted: OnExhausted = OnExhausted.DEAD_LETTER

    def check(self) -> None:
        if not 1 <= self.max_failures <= ATTEMPTS_MAX or not 1 <= self.max_crashes <= ATTEMPTS_MAX:
            raise Invalid(f"max_failures and max_crashes are from 1 to {ATTEMPTS_MAX}.")
        if self.backoff < timedelta() or self.backoff_max < self.backoff or self.factor < 1:
            raise Invalid("The back-off must not be negative, nor shrink.")


COMMAND_RETRY = Retry(max_failures=1, on_exhausted=OnExhausted.FAIL)
"""A command that exits with an error has failed, unless its submitter says otherwise."""


def backoff(retry: Retry, failures: int, chance: str) -> timedelta:
    """The wait before the next attempt: full jitter below `backoff * factor ** (failures - 1)`.

    `chance` names the draw, so that a decision made again after a conflict waits just as long.
    """
    doublings = min(failures - 1, 64)
    ceiling = min(retry.backoff * retry.factor**doublings, retry.backoff_max)
    draw = int.from_bytes(blake2b(chance.encode(), digest_size=6).digest(), "big")
    return ceiling * (draw / 2**48)
