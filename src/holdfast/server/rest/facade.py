"""`/registry`: ownership of jobs with the states of an execution registry (PENDING, RUNNING, COMPLETED,
FAILED). Clients prove their ownership by worker id and fencing token; where keys are required, a grant is
valid only with the key it was made for."""

from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from holdfast.core.access import Scope
from holdfast.core.errors import Conflict, Fenced, NotFound
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Json, Spec
from holdfast.core.state import State
from holdfast.core.task_token import SealedGrant
from holdfast.ports import Grant, JobRequest
from holdfast.server import admission
from holdfast.server.calls import current_principal
from holdfast.server.claim_waiters import owner_of
from holdfast.server.context import ServerContext
from holdfast.server.failure_reports import is_error_reason, outcome_of
from holdfast.server.grants import grant_of
from holdfast.server.rest.forms import SpecForm, spec_of
from holdfast.server.rest.routes import Route
from holdfast.server.verbs import Verbs
from holdfast.wire.fields import (
    HeartbeatInterval,
    Id,
    LeaseTime,
    Name,
    OpId,
    Reason,
    WholeNumber,
)
from holdfast.wire.requests import Acquire, JobById
from holdfast.wire.verbs import Load

LEASE = timedelta(minutes=5)
KIND = "external"
"""The kind of a job that acquire creates: no holdfast worker claims it by mistake."""

NOT_HERE = "This grant was not made by /registry, or not for this key: its owner has a task_token for it."

FacadeState: TypeAlias = Literal["PENDING", "RUNNING", "COMPLETED", "FAILED"]

STATES: dict[State, FacadeState] = {
    State.PENDING: "PENDING",
    State.SUBMITTING: "PENDING",
    State.QUEUED: "PENDING",
    State.ASSIGNED: "RUNNING",
    State.RUNNING: "RUNNING",
    State.AGGREGATING: "RUNNING",
    State.VALIDATING: "RUNNING",
    State.SUCCEEDED: "COMPLETED",
    State.PARTIAL_SUCCESS: "FAILED",
    State.FAILED: "FAILED",
    State.CANCELLED: "FAILED",
    State.TIMEOUT: "FAILED",
    State.DEAD_LETTERED: "FAILED",
}


class ExternalSpecForm(SpecForm, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The job to create, by default of a kind that no holdfast worker claims."""

    kind: Annotated[Name, Meta(description="What runs it.")] = KIND


class AcquireJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Claim a job; with `create`, create it first unless it exists."""

    job_id: Id
    worker_id: Id
    region: Name | None = None
    create: bool = False
    spec: Annotated[ExternalSpecForm, Meta(description="The job to create.")] | None = None
    lease: LeaseTime = None
    heartbeat_interval: HeartbeatInterval = None
    op_id: OpId = None


class HeartbeatJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Renew the lease of a job."""

    job_id: Id
    worker_id: Id
    fencing_token: WholeNumber


Result: TypeAlias = Annotated[
    Json,
    Meta(
        description="Any JSON. An object that says `success: false` reports a failure: its message is"
        " `error`, `error_message` or `message`, and it may have `code`, `exit_code` and `retryable`."
    ),
]
ReleaseReason: TypeAlias = Annotated[
    Reason, Meta(description="A text for display. One that begins with `error` reports a failure.")
]


class CompleteJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Complete a job with its result, or report a failure."""

    job_id: Id
    worker_id: Id
    fencing_token: WholeNumber
    result: Result = None
    op_id: OpId = None


class ReleaseJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Release a job: at no cost, or with an error, which is a failure of the attempt."""

    job_id: Id
    worker_id: Id
    fencing_token: WholeNumber
    reason: ReleaseReason | None = None
    op_id: OpId = None


class AcquiredJob(Struct, frozen=True, kw_only=True):
    """A grant until `lease_expiry` on the store's clock: `lease_seconds` from before the request was
    sent. Send a heartbeat every `heartbeat_seconds`: as declared, or ten times in a lease."""

    job_id: str
    fencing_token: int
    lease_expiry: datetime
    lease_seconds: float
    heartbeat_seconds: float
    attempt: int
    ttl_deadline: datetime | None


class RenewedLease(Struct, frozen=True, kw_only=True):
    """The new end of the lease. With `cancel_requested`, the worker has to stop."""

    new_lease_expiry: datetime
    lease_seconds: float
    cancel_requested: bool


class CompletedJob(Struct, frozen=True, kw_only=True):
    """The outcome is stored; `success` tells a result from a failure. After a failure the job is
    `PENDING`, with the number of its next attempt, or `FAILED` if it has none left."""

    success: bool
    state: FacadeState
    attempt: int


class ReleasedJob(Struct, frozen=True, kw_only=True):
    """Another worker may claim the job: at once, or after an error when it has waited. It is `FAILED` if
    the error was its last."""

    state: FacadeState
    attempt: int


class JobStatus(Struct, frozen=True, kw_only=True):
    """The state and the owner of a job."""

    job_id: str
    state: FacadeState
    owner: str | None
    fencing_token: int
    lease_expiry: datetime | None
    attempt: int


class Facade:
    """The handlers, one for each path."""

    def __init__(self, context: ServerContext, verbs: Verbs) -> None:
        self._context = context
        self._registry = context.registry
        self._verbs = verbs

    async def acquire_job(self, form: AcquireJob) -> AcquiredJob:
        create = None
        if form.create:
            spec = spec_of(form.spec) if form.spec else Spec(kind=KIND, lease=LEASE)
            create = JobRequest(spec=spec, job_id=form.job_id)
        request = Acquire(
            job_id=form.job_id,
            owner=form.worker_id,
            op_id=form.op_id,
            lease=form.lease or LEASE,
            heartbeat_interval=form.heartbeat_interval,
            region=form.region,
            create=create,
        )
        name = form.op_id or self._context.ids.new()
        granted = await self._verbs.attempts.acquire_under(
            request, _mark() + blake2b(name.encode(), digest_size=16).hexdigest()
        )
        job = granted.grant.job
        lease = job.lease
        assert lease is not None  # it was granted just now
        return AcquiredJob(
            job_id=job.job_id,
            fencing_token=granted.grant.fencing_token,
            lease_expiry=lease.expires_at,
            lease_seconds=granted.grant.lease_seconds,
            heartbeat_seconds=(lease.heartbeat_interval or lease.ttl / 10).total_seconds(),
            attempt=granted.grant.attempt,
            ttl_deadline=job.deadline_at,
        )

    async def heartbeat(self, form: HeartbeatJob) -> RenewedLease:
        job = await self._registry.heartbeat(await self._grant(form))
        assert job.lease is not None  # it was renewed just now
        return RenewedLease(
            new_lease_expiry=job.lease.expires_at,
            lease_seconds=job.lease.granted_for.total_seconds(),
            cancel_requested=job.cancel is not None,
        )

    async def complete_job(self, form: CompleteJob) -> CompletedJob:
        outcome = outcome_of(form.result)
        job = await self._registry.complete(await self._grant(form), outcome, op_id=form.op_id)
        success = isinstance(outcome, Success)
        return CompletedJob(success=success, state=STATES[job.state], attempt=job.attempt)

    async def release_job(self, form: ReleaseJob) -> ReleasedJob:
        grant, reason = await self._grant(form), form.reason
        if is_error_reason(reason):
            error = Failure(message=reason or "", code="Released")
            job = await self._registry.complete(grant, error, op_id=form.op_id)
        else:
            job = await self._registry.release(grant, op_id=form.op_id, reason=reason)
        return ReleasedJob(state=STATES[job.state], attempt=job.attempt)

    async def job_status(self, form: JobById) -> JobStatus:
        [job] = await self._registry.status_many([form.job_id])
        found = admission.find(current_principal.get(), job, form.job_id)
        return JobStatus(
            job_id=found.job_id,
            state=STATES[found.state],
            owner=_own_name(found.owner),
            fencing_token=found.fencing_token,
            lease_expiry=found.lease.expires_at if found.lease else None,
            attempt=found.attempt,
        )

    async def _grant(self, form: HeartbeatJob | CompleteJob | ReleaseJob) -> Grant:
        """Return the grant that a client claims to have; the commit checks whether its token is the
        newest."""
        principal = current_principal.get()
        admission.require_scope(principal, Scope.WORK)
        [job] = await self._registry.status_many([form.job_id])
        if job is None or not principal.may(Scope.WORK, job.spec.queue, job.spec.region):
            raise NotFound(f"There is no job {form.job_id}.", job_id=form.job_id)
        # Another worker may have this token by the time of the commit.
        if form.fencing_token > job.fencing_token:
            raise Fenced(
                f"Token {form.fencing_token} was not given yet: the newest is {job.fencing_token}.",
                job_id=job.job_id,
                version=job.version,
            )
        if form.fencing_token == job.fencing_token and not _holds(form.worker_id, job):
            here = job.owner in (form.worker_id, owner_of(form.worker_id))
            words = NOT_HERE if here else f"Job owned by {job.owner}."
            raise Conflict(words, job_id=job.job_id, version=job.version)
        newest = job.owner if form.fencing_token == job.fencing_token else None
        owner = newest or owner_of(form.worker_id)
        return grant_of(
            SealedGrant(
                form.job_id,
                job.attempt,
                form.fencing_token,
                job.spec.queue,
                job.spec.region,
                owner,
            )
        )


def _mark() -> str:
    """Return the prefix of the op_id of every grant that was made here for this key."""
    principal = current_principal.get()
    name = "" if principal.key_id is None else principal.name
    return f"registry:{blake2b(name.encode(), digest_size=8).hexdigest()}:"


def _own_name(owner: str | None) -> str | None:
    """Return the owner by the name that clients of this key gave it."""
    principal = current_principal.get()
    return owner and owner.removesuffix(f"@{principal.name}") if principal.key_id else owner


def _holds(worker_id: str, job: Job) -> bool:
    """Whether this worker got the job's newest token with this key, even if it has ended the job
    since."""
    if job.owner not in (None, worker_id, owner_of(worker_id)):
        return False
    return current_principal.get().key_id is None or (job.claim_op_id or "").startswith(_mark())


def _post(
    path: str,
    verb: str,
    form: type[Struct],
    returns: type[Struct],
    summary: str,
    load: Load = Load.OWNER,
) -> Route:
    idempotency_field = "op_id" if "op_id" in form.__struct_fields__ else None
    return Route(
        method="POST", path=f"/registry/{path}", verb=verb, form=form, returns=returns,
        summary=summary, idempotency_field=idempotency_field, load=load,
    )  # fmt: skip


ROUTES = (
    _post("acquire-job", "acquire_job", AcquireJob, AcquiredJob, "Claim a job.", Load.LIGHT),
    _post("heartbeat", "heartbeat", HeartbeatJob, RenewedLease, "Renew the lease of a job."),
    _post("complete-job", "complete_job", CompleteJob, CompletedJob, "Complete a job."),
    _post("release-job", "release_job", ReleaseJob, ReleasedJob, "Release a job."),
    Route(
        method="GET", path="/registry/job-status/{job_id}", verb="job_status", form=JobById,
        returns=JobStatus, changes=False, summary="Read the state and the owner of a job.", load=Load.LIGHT,
    ),
)  # fmt: skip
