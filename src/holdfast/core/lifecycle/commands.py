"""The commands: requests to change one job. Each carries its actor and, if it can be repeated, its
op_id."""

from datetime import timedelta
from enum import StrEnum
from typing import TypeAlias, final

from msgspec import Struct

from holdfast.core.event import Event
from holdfast.core.job import Failure, Progress
from holdfast.core.outputs import Output, ValidationResult
from holdfast.core.spec import Json, Spec
from holdfast.core.state import State


@final
class Enqueue(Struct, frozen=True, gc=False, kw_only=True):
    """Create a job: claimable at once, or (`register`) waiting to be handed to its executor, or succeeded
    when all its promised outputs were `found` already."""

    op_id: str
    job_id: str
    spec: Spec
    actor: str
    register: bool = False
    found: ValidationResult | None = None
    submitted_by: str | None = None
    correlation_id: str | None = None
    trace_id: str | None = None
    traceparent: str | None = None


class HandoffStep(StrEnum):
    """The steps in which a submitter gives a job to an external executor."""

    BEGIN = "begin"
    DONE = "done"
    REFUSED = "refused"


class Handoff(Struct, frozen=True, kw_only=True):
    """Give a registered job to its external executor, step by step."""

    op_id: str
    actor: str
    step: HandoffStep
    handle: dict[str, str] | None = None
    error: str | None = None


@final
class Claim(Struct, frozen=True, gc=False, kw_only=True):
    """Ask for the lease. With `create`, an unknown job is created and claimed in one write.

    `plain`: the owner can run plain commands only. `timed`: the owner does not enforce the job's timeout,
    so the registry ends an attempt that runs longer.
    """

    op_id: str
    owner: str
    actor: str
    lease: timedelta | None = None
    heartbeat_interval: timedelta | None = None
    region: str | None = None
    executor: str | None = None
    create: Enqueue | None = None
    plain: bool = False
    timed: bool = False


class Heartbeat(Struct, frozen=True, gc=False, kw_only=True):
    """Renew the lease and report progress; the first heartbeat starts the attempt."""

    token: int
    actor: str
    lease: timedelta | None = None
    progress: Progress | None = None
    checkpoint: Json = None


class Publish(Struct, frozen=True, gc=False, kw_only=True):
    """Append the worker's own events to the attempt."""

    token: int
    actor: str
    events: tuple[Event, ...]


class RefusePublish(Struct, frozen=True, kw_only=True):
    """Record on the job that something its owner published was refused, and why."""

    token: int
    actor: str
    reason: str


class Aggregate(Struct, frozen=True, kw_only=True):
    """The tasks are done; targets are being evaluated under the same lease."""

    op_id: str
    token: int
    actor: str


class Success(Struct, frozen=True, gc=False, kw_only=True):
    """The handler returned. `where` is the machine and folder it ran in: plain outputs are there. `seconds`
    is how long the work took by its owner's clock, without the time before it began and after it ended."""

    result: Json = None
    where: str | None = None
    seconds: float | None = None


class Stopped(Struct, frozen=True, kw_only=True):
    """The handler stopped because it was asked to. `where` and `seconds`: see `Success`."""

    reason: str | None = None
    where: str | None = None
    seconds: float | None = None


Outcome: TypeAlias = Success | Failure | Stopped


@final
class Complete(Struct, frozen=True, gc=False, kw_only=True):
    """End the attempt. `compensated` says whether a compensation hook succeeded, if one ran; `follow_ups`
    are jobs to create if and only if this is accepted as a success."""

    op_id: str
    token: int
    actor: str
    outcome: Outcome
    compensated: bool | None = None
    follow_ups: tuple[Enqueue, ...] = ()


class Release(Struct, frozen=True, kw_only=True):
    """Give the job back untouched; it costs neither budget."""

    op_id: str
    token: int
    actor: str
    reason: str | None = None
    delay: timedelta | None = None
    undelivered: bool = False


class Cancel(Struct, frozen=True, kw_only=True):
    """Ask the owner to stop, or (`hard`) end the job now."""

    op_id: str
    actor: str
    reason: str | None = None
    hard: bool = False


class Expire(Struct, frozen=True, kw_only=True):
    """Expire a job whose lease, timeout or deadline is over. Any process may, as often as it likes."""

    actor: str = "system:expire"


class ReportValidation(Struct, frozen=True, kw_only=True):
    """Report that the actor validates a job's outputs, and its progress; or (`trouble`) why it could not
    see them. With `version`, only while the job still has this version."""

    actor: str
    version: int | None = None
    done: int = 0
    total: int = 0
    trouble: str | None = None


class CompleteValidation(Struct, frozen=True, kw_only=True):
    """The verdict on a job's promised outputs, or an operator's `override` in its place. With `version`,
    only while the job still has the version that was validated."""

    op_id: str
    actor: str
    found: ValidationResult = ValidationResult()
    evidence: tuple[Output, ...] = ()
    version: int | None = None
    override: State | None = None
    reason: str | None = None


class Restore(Struct, frozen=True, kw_only=True):
    """The store was restored from a backup: fence every owner that the backup does not know of."""

    op_id: str
    actor: str = "system:restore"


Command: TypeAlias = (
    Enqueue
    | Handoff
    | Claim
    | Heartbeat
    | Publish
    | RefusePublish
    | Aggregate
    | Complete
    | Release
    | Cancel
    | Expire
    | ReportValidation
    | CompleteValidation
    | Restore
)
