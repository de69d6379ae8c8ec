"""handoff: give a registered job to its external executor."""

from holdfast.core.job import Job
from holdfast.core.lifecycle import Handoff, HandoffStep
from holdfast.registry.line import Line


async def handoff(
    line: Line,
    job_id: str,
    step: HandoffStep,
    *,
    actor: str,
    op_id: str | None,
    handle: dict[str, str] | None,
    error: str | None,
) -> Job:
    """One step: begin, done (with the executor's handle), or refused (with its error)."""
    command = Handoff(
        op_id=op_id or line.ids.new(), actor=actor, step=step, handle=handle, error=error
    )
    return await line.settle(job_id, command)
