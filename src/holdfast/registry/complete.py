"""complete: the owner reports how its attempt ended."""

from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import Complete, Outcome
from holdfast.core.spec import check_struct
from holdfast.ports import Grant
from holdfast.registry.line import Line


async def complete(
    line: Line, grant: Grant, outcome: Outcome, *, op_id: str | None, compensated: bool | None
) -> Job:
    """End the attempt. Only the newest owner can: anybody else is `Fenced`."""
    command = Complete(
        op_id=line.op(op_id),
        token=grant.fencing_token,
        actor=f"worker:{grant.job.owner}",
        outcome=check_struct(outcome) if isinstance(outcome, Failure) else outcome,
        compensated=compensated,
    )
    return await line.settle(grant.job_id, command)
