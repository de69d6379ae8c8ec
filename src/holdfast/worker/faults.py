"""Faults in the way of an attempt: whether this machine is at fault, or perhaps the job itself."""

import errno

from holdfast.core.catalogue import Stage
from holdfast.core.job import Failure
from holdfast.worker.executor import Ending

EXIT_NOT_FOUND = 127
EXIT_NOT_EXECUTABLE = 126

MACHINE = frozenset(
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
"""What only a machine lacks: descriptors, processes, memory, room on a disk. No job brings it about by what
it asks for."""

PASSING = frozenset(
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
"""Why a program that is there cannot be run now: somebody writes it, or the share it is on has gone."""


def machine_fault(error: BaseException, words: str) -> Ending:
    """The ending of an attempt that this machine could not begin, whatever the job."""
    why = getattr(error, "strerror", None) or str(error) or type(error).__name__
    failure = Failure(
        message=f"{words}: {why.rstrip('.')}.",
        code=type(error).__name__,
        stage=Stage.INPUT,
        exit_code=EXIT_NOT_EXECUTABLE,
    )
    return Ending(failure=failure, machine=True)


def not_started(error: OSError, program: str, folder: str | None) -> Ending:
    """The ending of an attempt whose process could not be started, in this folder."""
    words = f"{program} could not be started"
    if error.errno in MACHINE:
        return machine_fault(error, words)
    in_folder = folder is not None and error.filename == folder
    missing = isinstance(error, FileNotFoundError)
    failure = Failure(
        message=f"{words}: {error.strerror}{f' ({folder})' if in_folder else ''}.",
        code=type(error).__name__,
        retryable=False,
        stage=Stage.INPUT,
        exit_code=EXIT_NOT_FOUND if missing else EXIT_NOT_EXECUTABLE,
        not_started=in_folder or error.errno in PASSING,
    )
    return Ending(failure=failure)
