"""handoff: give a registered job to its external executor."""

from holdfast.core.job import Job
from holdfast.core.lifecycle import Handoff, HandoffStep
from holdfast.core.limits import MESSAGE_CHARACTERS_MAX, check_actor, check_text
from holdfast.registry.commit_queue import CommitQueue


async def handoff(
    commits: CommitQueue,
    job_id: str,
    step: HandoffStep,
    *,
    actor: str,
    op_id: str | None = None,
    handle: dict[str, str] | None = None,
    error: str | None = None,
) -> Job:
    """Take one step: begin, done (with the executor's handle), or refused (with its error)."""
    check_actor(actor)
    for key, value in (handle or {}).items():
        check_text(f"{key}{value}", "handle", MESSAGE_CHARACTERS_MAX)
    handle = {str(key): str(value) for key, value in handle.items()} if handle else handle
    command = Handoff(op_id=commits.op_id_or_new(op_id), actor=actor, step=step, handle=handle, error=error)
    return await commits.execute(job_id, command)
