"""When a failed attempt is tried again: exponential back-off with full jitter, and two budgets."""

from datetime import timedelta
from enum import StrEnum
from hashlib import blake2b
from math import inf

from msgspec import Struct

from holdfast.core.errors import Invalid
from holdfast.core.limits import (
    ATTEMPTS_MAX,
    DELAY_MAX,
    FACTOR_MAX,
    NOT_UNDERSTOOD_DELAY_MAX,
)


class OnExhausted(StrEnum):
    """How a job ends when a budget is used up."""

    DEAD_LETTER = "dead_letter"
    FAIL = "fail"
    TIMEOUT = "timeout"


class Retry(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """How often a job is tried, and how long it waits in between.

    `max_failures` counts errors the owner reported, `max_crashes` owners that vanished. After the first
    failure the job waits for a random time up to `backoff`, then each time up to `factor` times as long, and
    never longer than `backoff_max`. When a budget is used up, the job ends as `on_exhausted` says.

    What is not given is as the registry has it, for jobs of every kind: five failures within a few seconds.
    `@app.job` without `retry` is more patient (`FUNCTION_RETRY`): ten failures, waits of up to 5 s, 10 s,
    20 s and so on, 15 minutes at most.
    """

    max_failures: int = 5
    """How many attempts may fail."""
    max_crashes: int = 5
    """How many workers may be lost with the job, or crash."""
    backoff: timedelta = timedelta(milliseconds=500)
    """The wait after the first failure is anything below this."""
    factor: float = 2.0
    """The bound of the wait grows by this with each failure."""
    backoff_max: timedelta = timedelta(seconds=60)
    """The bound of the wait is never more than this."""
    on_exhausted: OnExhausted = OnExhausted.DEAD_LETTER
    """How the job ends when a budget is used up."""

    def check(self) -> None:
        """Raise `Invalid` for a budget or a wait that is out of range."""
        if not 1 <= self.max_failures <= ATTEMPTS_MAX or not 1 <= self.max_crashes <= ATTEMPTS_MAX:
            raise Invalid(f"max_failures and max_crashes are from 1 to {ATTEMPTS_MAX}.")
        if not timedelta() <= self.backoff <= self.backoff_max <= DELAY_MAX:
            raise Invalid(f"The back-off is from 0 to its maximum, at most {DELAY_MAX.days} days.")
        if not 1 <= self.factor <= FACTOR_MAX:
            raise Invalid(f"The back-off grows by a factor from 1 to {FACTOR_MAX}, not {self.factor}.")


COMMAND_RETRY = Retry(max_failures=1, on_exhausted=OnExhausted.FAIL)
"""The default of commands: one that exits with an error has failed."""
FUNCTION_RETRY = Retry(max_failures=10, backoff=timedelta(seconds=5), backoff_max=timedelta(minutes=15))
"""The default of `@app.job`, which the SDK writes into the spec: what a function needs is often away for
minutes."""


def backoff(retry: Retry, failures: int, chance: str) -> timedelta:
    """Return the wait before the next attempt: full jitter below `backoff * factor ** (failures - 1)`.

    `chance` seeds the jitter, so that a decision made again after a conflict waits just as long.
    """
    draw = int.from_bytes(blake2b(chance.encode(), digest_size=6).digest(), "big")
    return timedelta(seconds=_ceiling(retry, failures) * draw / 2**48)


def _ceiling(retry: Retry, failures: int) -> float:
    """Return the most seconds of the wait after so many failures."""
    try:
        grown = retry.backoff.total_seconds() * retry.factor ** (failures - 1)
    except OverflowError:
        grown = inf
    return min(grown, retry.backoff_max.total_seconds())


def expected_waits(retry: Retry, failures: int, tries: int) -> timedelta:
    """Return how long the waits after the next failures take together, on average, until the last of
    `tries` begins: each is half of its ceiling."""
    return timedelta(seconds=sum(_ceiling(retry, n) for n in range(failures + 1, tries)) / 2)


def give_back_wait(times: int) -> timedelta:
    """Return the wait of a job that was given back `times` times because no worker understood it or could
    start it: a second, then twice as long each time, so that it costs the other workers little."""
    return min(timedelta(seconds=2 ** min(times - 1, 32)), NOT_UNDERSTOOD_DELAY_MAX)
