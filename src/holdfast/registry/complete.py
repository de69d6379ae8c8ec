"""complete: the owner reports how its attempt ended."""

from holdfast.core.job import Job
from holdfast.core.lifecycle import Complete, Outcome
from holdfast.ports import Grant
from holdfast.registry.line import Line


async def complete(
    line: Line, grant: Grant, outcome: Outcome, *, op_id: str | None, compensated: bool | None
) -> Job:
    """End the attempt. Only the newest owner can: anybody else is `Fenced`."""
    command = Complete(
        op_id=op_id or line.ids.new(),
        token=grant.fencing_token,
        actor=f"worker:{grant.job.owner}",
        outcome=outcome,
        compensated=compensated,
    )
    return await line.settle(grant.job_id, command)
