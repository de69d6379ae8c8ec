"""cancel: ask the owner to stop, or end the job now."""

from holdfast.core.job import Job
from holdfast.core.lifecycle import Cancel
from holdfast.core.limits import check_actor, clip
from holdfast.registry.line import Line


async def cancel(
    line: Line,
    job_id: str,
    *,
    actor: str,
    op_id: str | None = None,
    reason: str | None = None,
    hard: bool = False,
) -> Job:
    """Cancelled is not stopped: a running owner learns of it with its next sign of life."""
    command = Cancel(
        op_id=line.op(op_id),
        actor=check_actor(actor),
        reason=clip(reason) if reason else None,
        hard=hard,
    )
    return await line.settle(job_id, command)
