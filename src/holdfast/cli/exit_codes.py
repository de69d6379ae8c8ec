"""Exit codes of the commands. `holdfast --help` lists them for people."""

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.core.job import Job


class ExitCode(IntEnum):
    """The exit codes of holdfast; a command that follows a job exits with the job's instead."""

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
    """Return the exit code for an ended job: 0 for success alone."""
    from holdfast.core.state import State

    if job.state is State.SUCCEEDED:
        return ExitCode.DONE
    # A cancelled job may still carry the error of an attempt before: that is not how it ended.
    if job.error is None or not job.error.exit_code or job.state is State.CANCELLED:
        return ExitCode.NO
    code = job.error.exit_code
    if code < 0:  # killed by a signal: 128 + its number, as a shell returns
        code = 128 - code
    return code if 0 < code < 256 else ExitCode.NO


def error_exit(error: Exception) -> int:
    """Return the exit code of an error; a class that is not listed was never expected."""
    from holdfast.core import errors

    for kind, code in (
        (errors.Invalid, ExitCode.INVALID),
        (errors.NotFound, ExitCode.NOT_FOUND),
        (errors.Conflict, ExitCode.CONFLICT),
        (errors.Fenced, ExitCode.CONFLICT),
        (errors.Exhausted, ExitCode.EXHAUSTED),
        (errors.Denied, ExitCode.DENIED),
        (errors.Unavailable, ExitCode.UNAVAILABLE),
        (errors.Corrupt, ExitCode.CORRUPT),
        (OSError, ExitCode.UNAVAILABLE),
    ):
        if isinstance(error, kind):
            return code
    return ExitCode.NO
