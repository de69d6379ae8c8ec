"""resume: a new job for what an ended job lacks, linked both ways. The original stays as it is.

The id of the nth job that resumes another is derived from that job's id and n, so that of two callers that
resume it at the same moment one creates the job, and the other gets the same job.
"""

import re
from collections.abc import Sequence
from hashlib import blake2b

from msgspec.structs import replace

from holdfast.core.catalogue import EventType
from holdfast.core.errors import Exhausted, Unavailable
from holdfast.core.job import Job
from holdfast.core.limits import ID_CHARACTERS_MAX, check_actor, check_id
from holdfast.core.outputs import OutputPromise
from holdfast.core.resumption import EarlierResume, check_resumable, current_resume
from holdfast.core.spec import Spec, check_spec
from holdfast.registry.commit_queue import CommitQueue
from holdfast.registry.job_links import enqueue_linked, link_fact, linked_command

_SUFFIX = re.compile(r"-resume-[0-9a-f]{4}\Z")
_SUFFIX_CHARACTERS = len("-resume-0000")
_PLACES = 100
_TRIES = 20


async def resume(
    commits: CommitQueue,
    job_id: str,
    outputs: OutputPromise,
    *,
    actor: str,
    resume_id: str | None = None,
    again: bool = False,
) -> Job:
    """Return the new job or, unless `again`, the one that resumes it already. One `resume_id` creates at
    most one job, however often it is sent."""
    check_actor(actor)
    op_id = check_id(resume_id, "resume_id") if resume_id else commits.ids.new()
    for _ in range(_TRIES):
        original = await commits.get(job_id)
        earlier = await _earlier(commits, original)
        if resume_id and (repeated := await _made_by(commits, earlier, op_id)) is not None:
            return repeated
        check_resumable(original)
        if not again and (job := current_resume(original, earlier)) is not None:
            return job
        new_id, taken = await _free_id(commits, original, len(earlier))
        if taken is not None:  # by a caller that failed before the original was linked
            fact = link_fact(original, new_id, EventType.RESUMED, actor, taken.created_at)
            await commits.store.record([fact])
            continue
        command = linked_command(
            original,
            new_id,
            _spec(original, outputs, len(earlier) + 1),
            op_id=op_id,
            actor=actor,
            submitted_by=_submitter(original, actor),
        )
        change = await enqueue_linked(commits, command, original, EventType.RESUMED, any_op=True)
        if change.before is None:  # else another caller took the id meanwhile
            return change.after
    raise Unavailable(f"Job {job_id} is being resumed by several callers: try again.")


def resumed_id(job_id: str, number: int, place: int = 0) -> str:
    """Return the id of the resume of this number (from 0). A resume of a resume keeps the root of the name.
    Four digits collide now and then: `place` gives another id where one is taken."""
    root = _SUFFIX.sub("", job_id)[: ID_CHARACTERS_MAX - _SUFFIX_CHARACTERS]
    suffix = blake2b(f"{job_id}/{number}/{place}".encode(), digest_size=2).hexdigest()
    return f"{root}-resume-{suffix}"


async def _free_id(commits: CommitQueue, original: Job, number: int) -> tuple[str, Job | None]:
    """The id for the resume of this number, and the job if it has been created."""
    attempt = _resume_attempt(original) + number + 1
    for place in range(_PLACES):
        new_id = resumed_id(original.job_id, number, place)
        [job] = await commits.store.get([new_id])
        if job is None:
            return new_id, None
        promise = job.spec.outputs
        ours = job.spec.resumed_from == original.job_id and promise is not None
        if ours and promise is not None and promise.resume_attempt == attempt:
            return new_id, job
    raise Exhausted(f"Job {original.job_id} was resumed too often: resume the last job that resumed it.")


async def _earlier(commits: CommitQueue, original: Job) -> list[EarlierResume]:
    """The jobs that resume this one according to its log, the first one first."""
    found: dict[str, object] = {}
    cursor = None
    while True:
        part = await commits.store.logs(original.job_id, after=cursor, limit=1000, output=False)
        for event in part.events:
            if event.event_type == EventType.RESUMED:
                as_id = str(event.attributes.get("resumed_as"))
                found.setdefault(as_id, event.attributes.get("version"))
        if not part.events:
            break
        cursor = part.cursor
    jobs = await commits.store.get(list(found)) if found else []
    return [
        EarlierResume(job=job, version=version if isinstance(version, int) else None)
        for job, version in zip(jobs, found.values(), strict=True)
    ]


async def _made_by(commits: CommitQueue, earlier: Sequence[EarlierResume], op_id: str) -> Job | None:
    jobs = [one.job for one in earlier if one.job is not None]
    histories = await commits.store.histories([job.job_id for job in jobs]) if jobs else []
    for job, history in zip(jobs, histories, strict=True):
        if history and history[0].op_id == op_id:
            return job
    return None


def _resume_attempt(original: Job) -> int:
    """The number of the resume that the original itself is; 0 if it is not a resume."""
    return original.spec.outputs.resume_attempt if original.spec.outputs else 0


def _spec(original: Job, outputs: OutputPromise, number: int) -> Spec:
    spec = original.spec
    first = spec.outputs.original_total if spec.outputs else 0
    promise = replace(
        outputs,
        resume_attempt=_resume_attempt(original) + number,
        original_total=first or spec.promised_outputs,
    )
    return check_spec(
        replace(
            spec,
            outputs=promise,
            promised_outputs=promise.count,
            resumed_from=original.job_id,
            replayed_from=None,
            delay=None,
            run_at=None,
        )
    )


def _submitter(original: Job, actor: str) -> str:
    """The actor; but a job that was submitted with a key keeps that key as the submitter of its resumes."""
    submitter = original.submitted_by or actor
    return submitter if submitter.startswith("key:") else actor
