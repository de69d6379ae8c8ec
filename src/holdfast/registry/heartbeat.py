"""heartbeat and aggregate: an owner shows that it lives, and how far it is."""

from datetime import timedelta

from holdfast.core.job import Job, Progress
from holdfast.core.lifecycle import Aggregate, Heartbeat
from holdfast.core.limits import CHECKPOINT_BYTES_MAX
from holdfast.core.spec import Json, check_struct, check_value
from holdfast.ports import Grant
from holdfast.registry.line import Line


async def heartbeat(
    line: Line,
    grant: Grant,
    *,
    lease: timedelta | None = None,
    progress: Progress | None = None,
    checkpoint: Json = None,
) -> Job:
    """Renew the lease. The answer shows whether a cancel was asked for."""
    if checkpoint is not None:
        checkpoint = check_value(checkpoint, "checkpoint", CHECKPOINT_BYTES_MAX)
    if progress is not None:
        progress = check_struct(progress)
    command = Heartbeat(
        token=grant.fencing_token,
        actor=f"worker:{grant.job.owner}",
        lease=lease,
        progress=progress,
        checkpoint=checkpoint,
    )
    job = await line.settle(grant.job_id, command)
    line.counted.kinds[job.spec.kind].renewals += 1
    return job


async def aggregate(line: Line, grant: Grant, *, op_id: str | None = None) -> Job:
    """The tasks are done; targets are being evaluated."""
    command = Aggregate(
        op_id=line.op(op_id),
        token=grant.fencing_token,
        actor=f"worker:{grant.job.owner}",
    )
    return await line.settle(grant.job_id, command)
