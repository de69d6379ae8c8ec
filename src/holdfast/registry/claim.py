"""claim and acquire: become the one owner of ready jobs, or of one job by its id."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

from holdfast.core.catalogue import EventType
from holdfast.core.errors import Conflict, Invalid, Unavailable
from holdfast.core.job import Job, ResourceLock
from holdfast.core.lifecycle import Change, Claim, Enqueue, Refusal, decide
from holdfast.core.limits import BATCH_ITEMS_MAX, check_id, check_interval, check_lease, check_owner
from holdfast.core.process_spec import claim_kinds
from holdfast.ports import ById, Decision, Grant, JobRequest, Ready, Work
from holdfast.registry.commit_queue import EXPIRE_ITEMS, CommitQueue
from holdfast.registry.job_requests import create_command


async def claim(
    commits: CommitQueue,
    queues: Sequence[str],
    *,
    owner: str,
    limit: int = 1,
    op_id: str | None = None,
    kinds: Sequence[str] = (),
    lease: timedelta | None = None,
    heartbeat_interval: timedelta | None = None,
    region: str | None = None,
    executor: str | None = None,
    plain: bool = False,
    timed: bool = False,
) -> list[Grant]:
    """Return up to `limit` grants, fewer when fewer jobs are ready. Leases that are due expire with the
    same commit. `plain` and `timed` are those of the command."""
    if not queues:
        raise Invalid("Name at least one queue to claim from.")
    if not 1 <= limit <= BATCH_ITEMS_MAX:
        raise Invalid(f"A claim takes from 1 to {BATCH_ITEMS_MAX} jobs, not {limit}.")
    command = _command(
        commits,
        owner=owner,
        op_id=op_id,
        lease=lease,
        heartbeat_interval=heartbeat_interval,
        region=region,
        executor=executor,
        plain=plain,
        timed=timed,
    )
    asked = [check_id(kind, "kind") for kind in kinds]
    selection = Ready(
        queues=tuple(check_id(queue, "queue") for queue in queues),
        op_id=command.op_id,
        limit=limit,
        kinds=claim_kinds(asked, plain=plain),
        region=region,
        executor=executor,
    )
    [decisions] = await commits.submit(Work(selection, partial(decide, command), command), expire_first=True)
    return [
        await _grant_again(commits, d.after) if d.after is d.before else _grant(d.after)
        for d in decisions
        if isinstance(d, Change)
    ]


async def acquire(
    commits: CommitQueue,
    job_id: str,
    *,
    owner: str,
    op_id: str | None = None,
    lease: timedelta | None = None,
    heartbeat_interval: timedelta | None = None,
    region: str | None = None,
    executor: str | None = None,
    create: JobRequest | None = None,
    timed: bool = False,
) -> Grant:
    """Return the lease of this one job, or raise `Conflict` with its holder or another reason."""
    created = create_command(create, job_id, commits.ids, owner=owner)
    command = _command(
        commits,
        owner=owner,
        op_id=op_id,
        lease=lease,
        heartbeat_interval=heartbeat_interval,
        region=region,
        executor=executor,
        create=created,
        timed=timed,
    )
    decision = await _acquire(commits, job_id, command, repeatable=op_id is not None)
    if isinstance(decision, Refusal) and _may_be_over(decision) and await commits.expire_due(EXPIRE_ITEMS):
        decision = await _acquire(commits, job_id, command, repeatable=op_id is not None)
    if isinstance(decision, Change):
        job, known = decision.after, decision.after is decision.before
        return await _grant_again(commits, job) if known else _grant(job)
    if isinstance(decision.error, Conflict):
        job_or_created = decision.job or created
        assert job_or_created is not None  # an unknown job has no conflict
        commits.counters.kinds[job_or_created.spec.kind].conflicts += 1
    decision.error.job_id = job_id
    raise decision.error


def _may_be_over(refusal: Refusal) -> bool:
    """Whether expiring due jobs may remove the conflict: a resource lock whose holder has lapsed, or an
    attempt past its timeout."""
    job = refusal.job
    return job is not None and (job.spec.lock is not None or job.timeout_at is not None)


async def _acquire(commits: CommitQueue, job_id: str, command: Claim, *, repeatable: bool) -> Decision:
    """Decide the claim on the version of the job whose history was read, so that a claim that was granted
    before is never granted again, however late its request arrives."""
    lock = command.create.spec.lock if command.create else None
    if not repeatable:
        [[decision]] = await commits.submit(Work(ById(job_id, lock), partial(decide, command)))
        return decision
    for _ in range(_TRIES_MAX):
        [history] = await commits.store.histories([job_id])
        granted = any(e.event_type == EventType.CLAIMED and e.op_id == command.op_id for e in history)
        versioned = _VersionedClaim(len(history), granted, command)
        [[decision]] = await commits.submit(Work(ById(job_id, lock), versioned.decide))
        if not isinstance(decision, Refusal) or decision.error is not _CHANGED:
            return decision
    raise Unavailable(f"Job {job_id} changes too fast to be read.", job_id=job_id)


_TRIES_MAX = 20
_CHANGED = Conflict("The job has changed since its history was read.")


class _VersionedClaim:
    """A claim, and whether the job's history up to a version already granted it."""

    def __init__(self, version: int, granted: bool, command: Claim) -> None:
        self._version = version
        self._granted = granted
        self._command = command

    def decide(
        self, job: Job | None, now: datetime, resource: ResourceLock | None, floor: int = 0
    ) -> Change | Refusal:
        """Return its own grant to a repeated claim, or refuse it."""
        if job is None or job.claim_op_id == self._command.op_id:
            return decide(self._command, job, now, resource, floor)
        if job.version != self._version:
            return Refusal(_CHANGED, job)
        if self._granted:
            words = "This claim was granted before, and its grant is gone."
            return Refusal(Conflict(words, version=job.version), job)
        return decide(self._command, job, now, resource)


async def _grant_again(commits: CommitQueue, job: Job) -> Grant:
    """The grant of a repeated claim: only the rest of its lease counts."""
    assert job.lease is not None  # a claim leaves the job leased
    return _grant(job, max(timedelta(), job.lease.expires_at - await commits.store.now()))


def _grant(job: Job, left: timedelta | None = None) -> Grant:
    assert job.lease is not None  # a claim leaves the job leased
    length = job.lease.granted_for if left is None else left
    return Grant(
        job=job,
        fencing_token=job.fencing_token,
        attempt=job.attempt,
        lease_seconds=length.total_seconds(),
    )


def _command(
    commits: CommitQueue,
    *,
    owner: str,
    op_id: str | None,
    lease: timedelta | None,
    heartbeat_interval: timedelta | None,
    region: str | None,
    executor: str | None,
    create: Enqueue | None = None,
    plain: bool = False,
    timed: bool = False,
) -> Claim:
    for value, what in ((region, "region"), (executor, "executor")):
        if value is not None:
            check_id(value, what)
    if lease is not None:
        check_lease(lease)
    if heartbeat_interval is not None:
        check_interval(heartbeat_interval)
    return Claim(
        op_id=commits.op_id_or_new(op_id),
        owner=check_owner(owner),
        actor=f"worker:{owner}",
        lease=lease,
        heartbeat_interval=heartbeat_interval,
        region=region,
        executor=executor,
        create=create,
        plain=plain,
        timed=timed,
    )
