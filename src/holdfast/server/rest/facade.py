"""`/registry`: ownership of jobs in the words of an execution registry (PENDING, RUNNING, COMPLETED,
FAILED). Its callers prove who they are by worker and fencing token; where keys are asked for, a grant is
good only in the hands of the key it was made for."""

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
from holdfast.core.task_token import Claimed
from holdfast.ports import Grant, Request
from holdfast.server import admission
from holdfast.server.calls import who
from holdfast.server.claims import owner_of
from holdfast.server.context import Context
from holdfast.server.grants import grant_of
from holdfast.server.reports import names_error, outcome_of
from holdfast.server.rest.forms import SpecForm, spec_of
from holdfast.server.rest.routes import Route
from holdfast.server.verbs import Verbs
from holdfast.wire.asks import (
    Acquire,
    Id,
    Interval,
    LeaseTime,
    Name,
    OneJob,
    OpId,
    Reason,
    Whole,
)
from holdfast.wire.verbs import Load

LEASE = timedelta(minutes=5)
KIND = "external"
"""The kind of a job that is made by acquiring it: no worker of ours takes it by mistake."""

NOT_HERE = (
    "This grant was not made here, or not for this key: whoever made it has the task_token for it."
)

Word: TypeAlias = Literal["PENDING", "RUNNING", "COMPLETED", "FAILED"]

STATES: dict[State, Word] = {
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
    """What to make, of a kind that no worker of ours takes unless it says so."""

    kind: Annotated[Name, Meta(description="What runs it.")] = KIND


class AcquireJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Take a job. One that nobody knows is made, if `create` says so."""

    job_id: Id
    worker_id: Id
    region: Name | None = None
    create: bool = False
    spec: Annotated[ExternalSpecForm, Meta(description="What to make.")] | None = None
    lease: LeaseTime = None
    heartbeat_interval: Interval = None
    op_id: OpId = None


class Held(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Show a sign of life."""

    job_id: Id
    worker_id: Id
    fencing_token: Whole


Result: TypeAlias = Annotated[
    Json,
    Meta(
        description="Any JSON. An object that says `success: false` reports a failure: its words are"
        " `error`, `error_message` or `message`, and it may have `code`, `exit_code` and `retryable`."
    ),
]
Returned: TypeAlias = Annotated[
    Reason, Meta(description="For people. One that begins with the word `error` reports a failure.")
]


class CompleteJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hand in the result, or say that there is none."""

    job_id: Id
    worker_id: Id
    fencing_token: Whole
    result: Result = None
    op_id: OpId = None


class ReleaseJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Give the job back: at no cost, or because of an error, which is a failure of the attempt."""

    job_id: Id
    worker_id: Id
    fencing_token: Whole
    reason: Returned | None = None
    op_id: OpId = None


class AcquiredJob(Struct, frozen=True, kw_only=True):
    """Yours until `lease_expiry` on the store's clock: `lease_seconds` from before you asked. Show a sign
    of life every `heartbeat_seconds`: as you declared, or ten times in a lease."""

    job_id: str
    fencing_token: int
    lease_expiry: datetime
    lease_seconds: float
    heartbeat_seconds: float
    attempt: int
    ttl_deadline: datetime | None


class Renewed(Struct, frozen=True, kw_only=True):
    """Yours for so much longer, unless `cancel_requested`: then stop."""

    new_lease_expiry: datetime
    lease_seconds: float
    cancel_requested: bool


class Completed(Struct, frozen=True, kw_only=True):
    """What was said is kept. `success`: it was a result. After a failure the job is `PENDING`, and
    `attempt` is the next one; or `FAILED`, when there is none left."""

    success: bool
    state: Word
    attempt: int


class Released(Struct, frozen=True, kw_only=True):
    """Others may take it: at once, or after an error when it has waited. It is `FAILED` when that was
    the last error it had."""

    state: Word
    attempt: int


class JobStatus(Struct, frozen=True, kw_only=True):
    """Where a job is, and whose."""

    job_id: str
    state: Word
    owner: str | None
    fencing_token: int
    lease_expiry: datetime | None
    attempt: int


class Facade:
    """The handlers, one for each path."""

    def __init__(self, context: Context, verbs: Verbs) -> None:
        self._context = context
        self._registry = context.registry
        self._verbs = verbs

    async def acquire_job(self, form: AcquireJob) -> AcquiredJob:
        create = None
        if form.create:
            spec = spec_of(form.spec) if form.spec else Spec(kind=KIND, lease=LEASE)
            create = Request(spec=spec, job_id=form.job_id)
        ask = Acquire(
            job_id=form.job_id,
            owner=form.worker_id,
            op_id=form.op_id,
            lease=form.lease or LEASE,
            heartbeat_interval=form.heartbeat_interval,
            region=form.region,
            create=create,
        )
        name = form.op_id or self._context.ids.new()
        granted = await self._verbs.attempts.acquired(
            ask, _mark() + blake2b(name.encode(), digest_size=16).hexdigest()
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

    async def heartbeat(self, form: Held) -> Renewed:
        job = await self._registry.heartbeat(await self._grant(form))
        assert job.lease is not None  # it was renewed just now
        return Renewed(
            new_lease_expiry=job.lease.expires_at,
            lease_seconds=job.lease.granted_for.total_seconds(),
            cancel_requested=job.cancel is not None,
        )

    async def complete_job(self, form: CompleteJob) -> Completed:
        outcome = outcome_of(form.result)
        job = await self._registry.complete(await self._grant(form), outcome, op_id=form.op_id)
        success = isinstance(outcome, Success)
        return Completed(success=success, state=STATES[job.state], attempt=job.attempt)

    async def release_job(self, form: ReleaseJob) -> Released:
        grant, reason = await self._grant(form), form.reason
        if names_error(reason):
            error = Failure(message=reason or "", code="Released")
            job = await self._registry.complete(grant, error, op_id=form.op_id)
        else:
            job = await self._registry.release(grant, op_id=form.op_id, reason=reason)
        return Released(state=STATES[job.state], attempt=job.attempt)

    async def job_status(self, form: OneJob) -> JobStatus:
        [job] = await self._registry.get_many([form.job_id])
        found = admission.find(who.get(), job, form.job_id)
        return JobStatus(
            job_id=found.job_id,
            state=STATES[found.state],
            owner=_said(found.owner),
            fencing_token=found.fencing_token,
            lease_expiry=found.lease.expires_at if found.lease else None,
            attempt=found.attempt,
        )

    async def _grant(self, form: Held | CompleteJob | ReleaseJob) -> Grant:
        """The grant that a caller claims to have. Whether its token is the newest is for the commit."""
        principal = who.get()
        admission.demand(principal, Scope.WORK)
        [job] = await self._registry.get_many([form.job_id])
        if job is None or not principal.may(Scope.WORK, job.spec.queue, job.spec.region):
            raise NotFound(f"There is no job {form.job_id}.", job_id=form.job_id)
        if form.fencing_token > job.fencing_token:  # it may be somebody's by the time of the commit
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
            Claimed(
                form.job_id,
                job.attempt,
                form.fencing_token,
                job.spec.queue,
                job.spec.region,
                owner,
            )
        )


def _mark() -> str:
    """What the op_id of every grant begins with that was made here for this key."""
    principal = who.get()
    name = "" if principal.key_id is None else principal.name
    return f"registry:{blake2b(name.encode(), digest_size=8).hexdigest()}:"


def _said(owner: str | None) -> str | None:
    """The owner as callers of this key have named it themselves."""
    principal = who.get()
    return owner and owner.removesuffix(f"@{principal.name}") if principal.key_id else owner


def _holds(worker_id: str, job: Job) -> bool:
    """Whether this worker, with this key, was given the job's newest token; who ended it still counts."""
    if job.owner not in (None, worker_id, owner_of(worker_id)):
        return False
    return who.get().key_id is None or (job.claim_op_id or "").startswith(_mark())


def _post(
    path: str,
    verb: str,
    form: type[Struct],
    says: type[Struct],
    summary: str,
    load: Load = Load.OWNER,
) -> Route:
    named = "op_id" if "op_id" in form.__struct_fields__ else None
    return Route(
        method="POST", path=f"/registry/{path}", verb=verb, form=form, says=says,
        summary=summary, named=named, load=load,
    )  # fmt: skip


ROUTES = (
    _post("acquire-job", "acquire_job", AcquireJob, AcquiredJob, "Take a job.", Load.LIGHT),
    _post("heartbeat", "heartbeat", Held, Renewed, "Keep a job."),
    _post("complete-job", "complete_job", CompleteJob, Completed, "Hand in the result of a job."),
    _post("release-job", "release_job", ReleaseJob, Released, "Give a job back."),
    Route(
        method="GET", path="/registry/job-status/{job_id}", verb="job_status", form=OneJob,
        says=JobStatus, changes=False, summary="Where a job is, and whose.", load=Load.LIGHT,
    ),
)  # fmt: skip
