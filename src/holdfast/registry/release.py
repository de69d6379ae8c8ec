"""release: the owner gives a job back, at no cost to its budgets."""

from datetime import timedelta

from holdfast.core.job import Job
from holdfast.core.lifecycle import Release
from holdfast.ports import Grant
from holdfast.registry.line import Line


async def release(
    line: Line,
    grant: Grant,
    *,
    op_id: str | None = None,
    reason: str | None = None,
    delay: timedelta | None = None,
    undelivered: bool = False,
) -> Job:
    """Open the next attempt at once (or after `delay`), in the job's old place in the queue."""
    command = Release(
        op_id=line.op(op_id),
        token=grant.fencing_token,
        actor=f"worker:{grant.job.owner}",
        reason=reason,
        delay=delay,
        undelivered=undelivered,
    )
    return await line.settle(grant.job_id, command)
