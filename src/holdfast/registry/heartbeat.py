"""heartbeat: an owner renews its lease and reports progress."""

from datetime import timedelta

from holdfast.core.job import Job, Progress
from holdfast.core.lifecycle import Heartbeat
from holdfast.core.limits import CHECKPOINT_BYTES_MAX
from holdfast.core.spec import Json, check_struct, check_value
from holdfast.ports import Grant
from holdfast.registry.commit_queue import CommitQueue


async def heartbeat(
    commits: CommitQueue,
    grant: Grant,
    *,
    lease: timedelta | None = None,
    progress: Progress | None = None,
    checkpoint: Json = None,
) -> Job:
    """Renew the lease. The returned job shows whether a cancel was requested."""
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
    job = await commits.execute(grant.job_id, command)
    commits.counters.kinds[job.spec.kind].renewals += 1
    return job
