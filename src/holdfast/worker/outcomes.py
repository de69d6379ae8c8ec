"""What came of work that did not simply return: the same words, whoever ran it."""

from datetime import timedelta

from holdfast.core.command import CRASH_EXITS
from holdfast.core.job import Failure, overrun
from holdfast.core.lifecycle import is_last
from holdfast.worker.executor import Ending
from holdfast.worker.hold import Hold


def stopped(hold: Hold) -> Ending:
    """The ending of work that did not end by itself."""
    return Ending(cancelled=hold.cancelled, stopped=True)


def timed_out(hold: Hold, *, exit_code: int | None = None) -> Failure:
    limit = hold.grant.job.spec.timeout or timedelta()
    return overrun(limit, exit_code=exit_code)


def too_big(limit: int) -> Failure:
    """It was killed because it used more memory than it may."""
    size = f"{limit // 10**6} MB" if limit % 10**6 == 0 else f"{limit / 2**20:g} MiB"
    words = f"It used more memory than its limit of {size}."
    return Failure(message=words, code="Memory", exit_code=CRASH_EXITS[0], crash=True)


def to_compensate(hold: Hold, ending: Ending) -> bool:
    """Whether the job ends with this, and so what it did has to be undone, if it can be."""
    failure = ending.failure
    if hold.lost or (failure is not None and ending.machine and not failure.not_started):
        return False
    if failure is not None:
        return hold.cancelled or is_last(hold.grant.job, failure)
    return ending.cancelled and (hold.cancelled or hold.released is None)
