"""Endings and failures of work that was stopped, timed out or could not start, for every executor."""

import errno
from datetime import timedelta

from holdfast.core.catalogue import Stage
from holdfast.core.job import Failure, timeout_failure
from holdfast.core.lifecycle import is_last_failure
from holdfast.core.process_spec import CRASH_EXITS
from holdfast.worker.executor import Ending
from holdfast.worker.held_job import HeldJob

DRAIN_TRIES = 3
EXIT_NOT_FOUND = 127
EXIT_NOT_EXECUTABLE = 126

MACHINE_ERRNOS = frozenset(
    {
        errno.EAGAIN,
        errno.EDQUOT,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOBUFS,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.EROFS,
    }
)
"""The machine lacks descriptors, processes, memory or disk space. No job causes these by what it asks
for."""

TRANSIENT_ERRNOS = frozenset(
    {
        errno.EHOSTDOWN,
        errno.EIO,
        errno.ENODEV,
        errno.ENOEXEC,
        errno.ENOTCONN,
        errno.ENXIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.ETXTBSY,
    }
)
"""A program that exists cannot be run now: it is being written, or its network share is gone."""


def stopped(held: HeldJob) -> Ending:
    """Return the ending of work that did not end by itself."""
    return Ending(cancelled=held.cancelled, stopped=True)


def timed_out(held: HeldJob, *, exit_code: int | None = None) -> Failure:
    limit = held.grant.job.spec.timeout or timedelta()
    return timeout_failure(limit, exit_code=exit_code)


def ended_in_time(held: HeldJob, ended_at: float) -> bool:
    """Whether work that was over at this moment, on the monotonic clock, was within the job's timeout."""
    limit, begun_at = held.grant.job.spec.timeout, held.begun_at
    return not (limit is None or begun_at is None) and ended_at - begun_at < limit.total_seconds()


def memory_exceeded(limit: int) -> Failure:
    size = f"{limit // 10**6} MB" if limit % 10**6 == 0 else f"{limit / 2**20:g} MiB"
    words = f"It used more memory than its limit of {size}."
    return Failure(message=words, code="Memory", exit_code=CRASH_EXITS[0], crash=True)


def is_for_others(held: HeldJob, failure: Failure) -> bool:
    """Whether a draining worker leaves this job to other workers."""
    tries = held.grant.job.not_started + 1
    return failure.not_understood or (failure.not_started and tries >= DRAIN_TRIES)


def needs_compensation(held: HeldJob, ending: Ending) -> bool:
    """Whether the job ends with this, so that its compensation has to run, if it has one."""
    failure = ending.failure
    if held.lost or (failure is not None and ending.machine and not failure.not_started):
        return False
    if failure is not None:
        return held.cancelled or is_last_failure(held.grant.job, failure)
    return ending.cancelled and (held.cancelled or held.released is None)


def machine_fault(error: BaseException, words: str) -> Ending:
    """Return the ending of an attempt that this machine could not run, whatever the job."""
    why = getattr(error, "strerror", None) or str(error) or type(error).__name__
    failure = Failure(
        message=f"{words}: {why.rstrip('.')}.",
        code=type(error).__name__,
        stage=Stage.INPUT,
        exit_code=EXIT_NOT_EXECUTABLE,
    )
    return Ending(failure=failure, machine=True)


def start_failed(error: OSError, program: str, folder: str | None) -> Ending:
    """Return the ending of an attempt whose process could not be started in this folder."""
    words = f"{program} could not be started"
    if error.errno in MACHINE_ERRNOS:
        return machine_fault(error, words)
    in_folder = folder is not None and error.filename == folder
    missing = isinstance(error, FileNotFoundError)
    failure = Failure(
        message=f"{words}: {error.strerror}{f' ({folder})' if in_folder else ''}.",
        code=type(error).__name__,
        retryable=False,
        stage=Stage.INPUT,
        exit_code=EXIT_NOT_FOUND if missing else EXIT_NOT_EXECUTABLE,
        not_started=in_folder or error.errno in TRANSIENT_ERRNOS,
    )
    return Ending(failure=failure)
