"""The job record: its state, its owner and its outcome. Values only."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.core.catalogue import ReasonCode, Stage
from holdfast.core.limits import clip
from holdfast.core.outputs import ValidationProgress, ValidationResult
from holdfast.core.spec import Json, Spec
from holdfast.core.state import ENDED, LEASED, UNSUCCESSFUL, State


class Lease(Struct, frozen=True, gc=False, omit_defaults=True):
    """The right to act on a job until `expires_at`. A lease exists only while an owner holds it. `timed`
    says that the registry enforces the job's timeout, not the owner. `moved` is by how much the store's
    clock was set while the lease was held: its instants were moved along."""

    owner: str
    expires_at: datetime
    ttl: timedelta
    granted_at: datetime
    heartbeat_at: datetime
    heartbeat_interval: timedelta | None = None
    suspected: bool = False
    timed: bool = False
    moved: timedelta | None = None

    @property
    def granted_for(self) -> timedelta:
        """How long the last grant or renewal lasts: less than `ttl` when a deadline is near."""
        return self.expires_at - self.heartbeat_at


class Failure(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What went wrong, in the owner's words. `crash` is set when the work died by a signal. `where` is the
    machine and folder the attempt ran in, as reported by its owner; the record keeps it in `check`.
    `seconds` is how long the work took by its owner's clock; only the event keeps it.

    `not_understood` is set when nothing was started, because the owner's code does not know a name in the
    job: an argument, a kind, a version. Another version of the code may know it.

    `not_started` is set when nothing was started, because the owner's machine lacks what the job asks for,
    such as its folder, or when its outputs could not be stored. Another machine may do better, or this one
    later.

    `traceback` is set when an exception ended the attempt: the text that Python would print, or what another
    language has for it; `code` is then the type of the exception."""

    message: str
    code: str = "Error"
    retryable: bool = True
    stage: Stage = Stage.EXEC
    exit_code: int | None = None
    crash: bool = False
    reason_code: ReasonCode | None = None
    where: str | None = None
    not_understood: bool = False
    not_started: bool = False
    seconds: float | None = None
    traceback: str | None = None

    @property
    def summary(self) -> str:
        """The message; of an exception, its type and message, as the last line of a traceback has them."""
        message, code = self.message, self.code
        told = message == code or message.startswith((f"{code}:", f"{code},"))
        return message if self.traceback is None or told else clip(f"{code}: {message}")


def timeout_failure(limit: timedelta, *, exit_code: int | None = None) -> Failure:
    """Return the failure of an attempt that ran longer than its timeout."""
    return Failure(
        message=f"It ran longer than its timeout of {limit.total_seconds():g} s.",
        code="Timeout",
        exit_code=exit_code,
        reason_code=ReasonCode.TIMEOUT,
    )


class DeadLetter(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What an operator needs to know about a dead letter months later."""

    reason_code: ReasonCode
    last_error: str
    attempts: int
    stage: Stage
    correlation_id: str
    last_owner: str | None = None
    last_lease_expires_at: datetime | None = None


class CancelRequest(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A request to the owner to stop."""

    actor: str
    requested_at: datetime
    reason: str | None = None


class Progress(Struct, frozen=True, gc=False, omit_defaults=True):
    """The progress that the current attempt reports."""

    done: int
    total: int | None = None
    message: str | None = None


class Flaws(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What is wrong with what the last attempt published: `missed` sequences that never arrived, `refused`
    publishes with the `reason` of the last one, an `exit_code` of its process other than 0, and
    `dropped_bytes` beyond what an attempt may publish."""

    missed: int = 0
    refused: int = 0
    reason: str | None = None
    exit_code: int | None = None
    dropped_bytes: int = 0


class ResourceLock(Struct, frozen=True, gc=False):
    """The lock on a resource that several jobs share: its rising token, and the id of the job that holds
    it."""

    key: str
    token: int = 0
    holder: str | None = None


class Job(Struct, frozen=True, gc=False, omit_defaults=True):
    """One job. `version` is the offset of its last registry event; `claim_op_id` names its last claim;
    `not_understood` is how often workers gave it back because they did not understand it, `not_started` how
    often because they could not start it or store its outputs.

    `lease`, `heartbeats`, `published`, `published_bytes`, `progress`, `checkpoint`, `check` and `flaws` are
    liveness data: they change without an event, guarded by the fencing token, and are not part of a fold.
    `published_bytes` is the size of the attempt's events, which is bounded. `completed_at` is when the
    owner itself ended the job without success, or reported that its work is done.
    """

    job_id: str
    """Its id."""
    spec: Spec
    """What was asked for."""
    state: State
    """Where it is now."""
    created_at: datetime
    updated_at: datetime
    ready_at: datetime
    """When it may be claimed."""
    attempt: int = 1
    """The number of the attempt, from 1."""
    version: int = 0
    """The number of its registry events."""
    transition_no: int = 0
    failures: int = 0
    """How many attempts have failed."""
    crashes: int = 0
    """How many workers were lost with it."""
    fencing_token: int = 0
    """The rising number of its owners."""
    lease: Lease | None = None
    """Who has it, and until when; None while nobody has."""
    claim_op_id: str | None = None
    cancel: CancelRequest | None = None
    """A request to stop that its owner has not met yet."""
    deadline_at: datetime | None = None
    """When it is given up (`ttl`)."""
    started_at: datetime | None = None
    """When the current attempt began."""
    ended_at: datetime | None = None
    """When it ended."""
    reason: str | None = None
    """Why it is in its state, in a few words."""
    error: Failure | None = None
    """The last failure: its message, code and attributes."""
    dead_letter: DeadLetter | None = None
    """What was known when it was given up."""
    result: Json = None
    """What the handler returned."""
    found: ValidationResult | None = None
    """Which promised outputs were found."""
    handle: dict[str, str] | None = None
    submitted_by: str | None = None
    """Who enqueued it."""
    correlation_id: str | None = None
    trace_id: str | None = None
    traceparent: str | None = None
    heartbeats: int = 0
    published: int = 0
    progress: Progress | None = None
    """How far the attempt says it is."""
    checkpoint: Json = None
    """What the next attempt goes on from."""
    check: ValidationProgress | None = None
    not_understood: int = 0
    completed_at: datetime | None = None
    flaws: Flaws | None = None
    published_bytes: int = 0
    not_started: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the job as plain JSON values, as `holdfast status --json` shows it; fields that have their
        default are left out."""
        fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return fields

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yield the items of `to_dict`: `dict(job)`, which web frameworks call to write a value as JSON."""
        return iter(self.to_dict().items())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> dict[str, Any]:
        """Tell pydantic that a job is written by `to_dict`. A schema is a plain dict: nothing is imported."""
        return {"type": "any", "serialization": {"type": "function-plain", "function": cls.to_dict}}

    @property
    def owner(self) -> str | None:
        """The name of the worker that has it."""
        return self.lease.owner if self.lease else None

    @property
    def ended(self) -> bool:
        """Whether nothing happens to it any more."""
        return self.state in ENDED

    @property
    def leased(self) -> bool:
        """Whether a worker has it."""
        return self.state in LEASED

    @property
    def unvalidated(self) -> bool:
        """Whether the job ended without success and its promised outputs have not been validated."""
        promises = self.spec.promised_outputs > 0
        return promises and self.found is None and self.state in UNSUCCESSFUL

    @property
    def resumable(self) -> bool:
        """Whether the job has ended and some of its promised outputs are known to be missing."""
        ended = self.state is State.PARTIAL_SUCCESS or self.state in UNSUCCESSFUL
        return ended and self.found is not None and self.found.missing > 0

    @property
    def owner_ended_at(self) -> datetime | None:
        """When the owner itself ended the job, or reported that its work is done; None if it did neither.
        A success without outputs uses `ended_at`: a second instant in every record would cost 40 bytes."""
        if self.completed_at is None and self.state is State.SUCCEEDED:
            return self.ended_at
        return self.completed_at

    @property
    def missing_outputs(self) -> int | None:
        """How many promised outputs are missing; None before the first validation."""
        return self.found.missing if self.found else None

    @property
    def correlation(self) -> str:
        """The id that ties this job to its cause; by default its own."""
        return self.correlation_id or self.job_id

    @property
    def timeout_at(self) -> datetime | None:
        """When the registry ends the running attempt; None if its owner does, or it has no timeout."""
        lease, limit, started_at = self.lease, self.spec.timeout, self.started_at
        if lease is None or not lease.timed or limit is None or started_at is None:
            return None
        return started_at + limit

    @property
    def due_at(self) -> datetime | None:
        """When this job has to be expired if nothing happens before; None for never."""
        lease = self.lease
        if lease is not None:
            due = lease.expires_at
            if lease.heartbeat_interval is not None and not lease.suspected:
                due = min(due, lease.heartbeat_at + 2 * lease.heartbeat_interval)
            return due if (end := self.timeout_at) is None else min(due, end)
        return None if self.state in _TIMELESS else self.deadline_at


_TIMELESS = ENDED | {State.VALIDATING}

JOB_BYTES = 500
"""The approximate size of a job's record without payload, result and checkpoint."""


def job_bytes(job: Job) -> int:
    """Return the approximate size of the job's record, with payload, result and checkpoint."""
    size = JOB_BYTES + memoryview(job.spec.payload).nbytes
    for value in (job.result, job.checkpoint, job.spec.outputs, job.found):
        if value is not None:
            size += len(msgspec.json.encode(value))
    return size
