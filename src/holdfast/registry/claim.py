"""claim and acquire: become the one owner of ready jobs, or of one job by its id."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from holdfast.core.errors import Conflict, Invalid
from holdfast.core.job import Job
from holdfast.core.lifecycle import Change, Claim, Enqueue, decide
from holdfast.core.limits import BATCH_ITEMS_MAX, check_id
from holdfast.ports import Grant, One, Ready, Work
from holdfast.registry.line import Line


async def claim(
    line: Line,
    queues: Sequence[str],
    *,
    owner: str,
    limit: int,
    op_id: str | None,
    kinds: Sequence[str],
    lease: timedelta | None,
    heartbeat_interval: timedelta | None,
    region: str | None,
    executor: str | None,
) -> list[Grant]:
    """Up to `limit` grants, fewer when fewer jobs are ready. Expired leases are taken on the way."""
    if not queues:
        raise Invalid("Name at least one queue to claim from.")
    if not 1 <= limit <= BATCH_ITEMS_MAX:
        raise Invalid(f"A claim takes from 1 to {BATCH_ITEMS_MAX} jobs, not {limit}.")
    command = Claim(
        op_id=op_id or line.ids.new(),
        owner=check_id(owner, "owner"),
        actor=f"worker:{owner}",
        lease=lease,
        heartbeat_interval=heartbeat_interval,
        region=region,
        executor=executor,
    )
    selection = Ready(
        queues=tuple(check_id(queue, "queue") for queue in queues),
        op_id=command.op_id,
        limit=limit,
        kinds=tuple(kinds),
        region=region,
        executor=executor,
    )
    [decisions] = await line.submit(Work(selection, partial(decide, command)), sweep=True)
    return [grant_of(decision.after) for decision in decisions if isinstance(decision, Change)]


async def acquire(
    line: Line,
    job_id: str,
    *,
    owner: str,
    op_id: str | None,
    lease: timedelta | None,
    heartbeat_interval: timedelta | None,
    region: str | None,
    executor: str | None,
    create: Enqueue | None,
) -> Grant:
    """The lease of this very job, or an error that says who has it or what is in the way."""
    command = Claim(
        op_id=op_id or line.ids.new(),
        owner=check_id(owner, "owner"),
        actor=f"worker:{owner}",
        lease=lease,
        heartbeat_interval=heartbeat_interval,
        region=region,
        executor=executor,
        create=create,
    )
    lock = create.spec.lock if create else None
    [[decision]] = await line.submit(Work(One(job_id, lock), partial(decide, command)))
    if isinstance(decision, Change):
        return grant_of(decision.after)
    if isinstance(decision.error, Conflict):
        line.tally["claim_conflicts"] += 1
    decision.error.job_id = job_id
    raise decision.error


def grant_of(job: Job) -> Grant:
    """The grant a claimed job carries."""
    lease = job.lease
    assert lease is not None  # a claim leaves the job leased
    return Grant(
        job=job,
        fencing_token=job.fencing_token,
        attempt=job.attempt,
        lease_seconds=lease.granted_for.total_seconds(),
    )
