"""replay: run an ended job again, as a new job linked both ways. The original stays as it is."""

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core.catalogue import EventType
from holdfast.core.derived_ids import derived_id
from holdfast.core.errors import Conflict, NotFound
from holdfast.core.job import Job
from holdfast.core.limits import check_actor, check_id
from holdfast.core.state import State
from holdfast.registry.commit_queue import CommitQueue
from holdfast.registry.job_links import enqueue_linked, link_fact, linked_command


async def replays(commits: CommitQueue, job_ids: Sequence[str]) -> list[list[str]]:
    """Return for each job the ids of the jobs that replay it, the first one first."""
    facts = await commits.store.facts(job_ids, EventType.REPLAYED) if job_ids else []
    return [[str(fact.attributes.get("replayed_as")) for fact in of_job] for of_job in facts]


async def replay(commits: CommitQueue, job_id: str, *, actor: str, replay_id: str | None = None) -> Job:
    """Return the new job. One `replay_id` makes at most one, however often it is sent."""
    check_actor(actor)
    [original] = await commits.read_batcher.get([job_id])
    if original is None:
        raise NotFound(f"There is no job {job_id}.", job_id=job_id)
    if not original.ended or original.state is State.SUCCEEDED:
        raise Conflict(
            f"Job {job_id} is {original.state}; only a job that ended without success is run again.",
            job_id=job_id,
            version=original.version,
        )
    op_id = check_id(replay_id, "replay_id") if replay_id else commits.ids.new()
    new_id = derived_id(job_id, "replay", op_id)
    spec = replace(original.spec, replayed_from=job_id, delay=None, run_at=None)
    command = linked_command(original, new_id, spec, op_id=op_id, actor=actor, submitted_by=actor)
    change = await enqueue_linked(commits, command, original, EventType.REPLAYED)
    job = change.after
    if change.before is job:
        # A repeat: in some stores the first call may have failed before the link.
        fact = link_fact(original, new_id, EventType.REPLAYED, actor, job.created_at)
        await commits.store.record([fact])
    return job
