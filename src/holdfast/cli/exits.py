"""Exit codes: what the shell learns from us. `holdfast --help` lists them for people."""

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.core.job import Job


class Exit(IntEnum):
    """The codes of our own; a command that follows a job passes on the job's instead."""

    DONE = 0
    NO = 1
    INVALID = 2
    NOT_FOUND = 3
    CONFLICT = 4
    EXHAUSTED = 5
    DENIED = 6
    CORRUPT = 70
    UNAVAILABLE = 75
    RUN_FAILED = 125
    INTERRUPTED = 130
    NO_READER = 141


def outcome_exit(job: "Job") -> int:
    """The exit code that tells how an ended job ended: 0 for success alone."""
    from holdfast.core.state import State

    if job.state is State.SUCCEEDED:
        return Exit.DONE
    # A cancelled job may still carry the error of an attempt before: that is not how it ended.
    if job.error is None or not job.error.exit_code or job.state is State.CANCELLED:
        return Exit.NO
    code = job.error.exit_code
    if code < 0:  # killed by a signal: the shell says 128 + its number
        code = 128 - code
    return code if 0 < code < 256 else Exit.NO


def error_exit(error: Exception) -> int:
    """The exit code of an error; a class we do not know is one that was never expected."""
    from holdfast.core import errors

    for kind, code in (
        (errors.Invalid, Exit.INVALID),
        (errors.NotFound, Exit.NOT_FOUND),
        (errors.Conflict, Exit.CONFLICT),
        (errors.Fenced, Exit.CONFLICT),
        (errors.Exhausted, Exit.EXHAUSTED),
        (errors.Denied, Exit.DENIED),
        (errors.Unavailable, Exit.UNAVAILABLE),
        (errors.Corrupt, Exit.CORRUPT),
        (OSError, Exit.UNAVAILABLE),
    ):
        if isinstance(error, kind):
            return code
    return Exit.NO
