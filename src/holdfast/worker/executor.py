"""What a worker and its executors expect of each other; an executor runs jobs of the kinds it knows."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.job import Failure, Progress
from holdfast.core.lifecycle import Outcome, Stopped, Success
from holdfast.core.spec import Json
from holdfast.ports import Clock, Completion, Grant, JobRequest
from holdfast.worker.held_job import HeldJob
from holdfast.worker.output import AttemptOutput
from holdfast.worker.redaction import Redactor


class Ending(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """How an attempt ended, by its executor. `stopped`: it did not end by itself.

    `result` and `follow_ups` are JSON, so that an ending can be sent over a socket and kept in a file.
    `where` is the machine and folder it ran in, if its promised outputs are there. `seconds` is how long the
    work took, where that is worth telling.

    `machine`: the failure is this machine's, and the worker claims nothing for a while. The job is given
    back at no cost. Where its failure is `not_started` too, the job may be too large for any machine, and
    the registry limits how often that may happen.
    """

    result: bytes = b"null"
    failure: Failure | None = None
    cancelled: bool = False
    snooze: timedelta | None = None
    reason: str | None = None
    stopped: bool = False
    compensated: bool | None = None
    follow_ups: bytes = b""
    where: str | None = None
    machine: bool = False
    seconds: float | None = None

    @property
    def outcome(self) -> Outcome:
        where, seconds = self.where, self.seconds
        if self.failure is not None:
            plain = where is None and seconds is None
            return self.failure if plain else replace(self.failure, where=where, seconds=seconds)
        if self.cancelled:
            return Stopped(reason=self.reason, where=where, seconds=seconds)
        if self.result == b"null" and where is None and seconds is None:
            return NOTHING
        return Success(result=_decode(self.result), where=where, seconds=seconds)

    def redacted(self, redactor: Redactor) -> "Ending":
        """Return the same ending without secrets in its texts. Follow-ups are left as they are: they are
        the input of other jobs, and not shown with this one."""
        failure = self.failure
        if not redactor.hides:
            return self
        if failure is not None:
            message, code = redactor.text(failure.message), redactor.text(failure.code)
            trace = None if failure.traceback is None else redactor.text(failure.traceback)
            failure = replace(failure, message=message, code=code, traceback=trace)
        result, reason = redactor.document(self.result), redactor.value(self.reason)
        return replace(self, failure=failure, result=result, reason=reason)

    def completion(self, grant: Grant, op_id: str) -> Completion:
        follow_ups = tuple(_requests.decode(self.follow_ups)) if self.follow_ups else ()
        return Completion(grant, self.outcome, op_id, self.compensated, follow_ups)


NOTHING = Success()
RETURNED = Ending()
"""The ending of a handler that returned nothing."""

_requests = msgspec.json.Decoder(list[JobRequest])


def _decode(document: bytes) -> Json:
    return msgspec.json.decode(document)


EndedJob: TypeAlias = tuple[HeldJob, Ending]
"""A job whose attempt is over, and how it ended."""


class Host(Protocol):
    """What a worker does for its executors."""

    clock: Clock

    def output(self, held: HeldJob) -> AttemptOutput:
        """Return where the attempt's output and events go; made at the first call."""
        ...

    def begun(self, held_jobs: Sequence[HeldJob]) -> None:
        """The work of these attempts has begun."""
        ...

    def ended(self, endings: Sequence[EndedJob]) -> None:
        """These attempts are over. To be called once for every job that was passed to `run`."""
        ...

    def progress(self, held: HeldJob, progress: Progress) -> None: ...

    async def checkpoint(self, held: HeldJob, value: Json) -> None:
        """Store the value for the next attempt. Raise what `heartbeat` raises."""
        ...

    def trouble(self, why: str) -> None: ...


class Executor(Protocol):
    """How a worker runs the kinds of jobs it takes."""

    kinds: tuple[str, ...]

    async def open(self, host: Host) -> None:
        """Get ready; `kinds` is known from then on."""
        ...

    def run(self, held_jobs: Sequence[HeldJob]) -> None:
        """Begin these now, stop each when its `listener` is called, and tell the host of each end, once."""
        ...

    def renewed(self, held: HeldJob) -> None:
        """The lease was renewed: `held.deadline` has moved."""
        ...

    async def close(self) -> None:
        """Stop the attempts that are left."""
        ...
