"""resume: a new job of what an ended job lacks, linked both ways. The original stays as it is.

The nth job that resumes another has an id that follows from both, so that of two who resume it at the
same moment one makes the job, and the other is given it.
"""

import re
from collections.abc import Sequence
from hashlib import blake2b

from msgspec.structs import replace

from holdfast.core.catalogue import EventType
from holdfast.core.errors import Exhausted, Unavailable
from holdfast.core.job import Job
from holdfast.core.limits import ID_CHARACTERS_MAX, check_actor, check_id
from holdfast.core.outputs import Promise
from holdfast.core.resumption import Earlier, check_resumable, standing
from holdfast.core.spec import Spec, check_spec
from holdfast.registry.line import Line
from holdfast.registry.linked import link, linked_command, submit_linked

_SUFFIX = re.compile(r"-resume-[0-9a-f]{4}\Z")
_SUFFIX_CHARACTERS = len("-resume-0000")
_PLACES = 100
_TRIES = 20


async def resume(
    line: Line,
    job_id: str,
    outputs: Promise,
    *,
    actor: str,
    resume_id: str | None = None,
    again: bool = False,
) -> Job:
    """The new job, or the one that resumes it already, unless `again`. One `resume_id` makes at most one,
    however often it is sent."""
    check_actor(actor)
    op_id = check_id(resume_id, "resume_id") if resume_id else line.ids.new()
    for _ in range(_TRIES):
        original = await line.get(job_id)
        earlier = await _earlier(line, original)
        if resume_id and (mine := await _made_by(line, earlier, op_id)) is not None:
            return mine
        check_resumable(original)
        if not again and (job := standing(original, earlier)) is not None:
            return job
        new_id, taken = await _place(line, original, len(earlier))
        if taken is not None:  # by a caller that failed before the original was linked
            fact = link(original, new_id, EventType.RESUMED, actor, taken.created_at)
            await line.store.record([fact])
            continue
        command = linked_command(
            original,
            new_id,
            _spec(original, outputs, len(earlier) + 1),
            op_id=op_id,
            actor=actor,
            submitted_by=_submitter(original, actor),
        )
        change = await submit_linked(line, command, original, EventType.RESUMED, any_op=True)
        if change.before is None:  # else another caller took the id meanwhile
            return change.after
    raise Unavailable(f"Job {job_id} is resumed by many at once: ask again.")


def resumed_id(job_id: str, number: int, place: int = 0) -> str:
    """The id of the job that resumes another for this time (from 0): of the first one, when that resumes
    one itself. Four digits are few: `place` gives another where one is taken."""
    root = _SUFFIX.sub("", job_id)[: ID_CHARACTERS_MAX - _SUFFIX_CHARACTERS]
    suffix = blake2b(f"{job_id}/{number}/{place}".encode(), digest_size=2).hexdigest()
    return f"{root}-resume-{suffix}"


async def _place(line: Line, original: Job, number: int) -> tuple[str, Job | None]:
    """The id for the resumption of this number, and the job if it has been made."""
    time = _times(original) + number + 1
    for place in range(_PLACES):
        new_id = resumed_id(original.job_id, number, place)
        [job] = await line.store.get([new_id])
        if job is None:
            return new_id, None
        promise = job.spec.outputs
        ours = job.spec.resumed_from == original.job_id and promise is not None
        if ours and promise is not None and promise.resume_attempt == time:
            return new_id, job
    raise Exhausted(
        f"Job {original.job_id} was resumed too often: resume the last job that resumed it."
    )


async def _earlier(line: Line, original: Job) -> list[Earlier]:
    """The jobs that resume this one, as its log tells, the first first."""
    found: dict[str, object] = {}
    cursor = None
    while True:
        part = await line.store.log(original.job_id, after=cursor, limit=1000, output=False)
        for event in part.events:
            if event.event_type == EventType.RESUMED:
                as_id = str(event.attributes.get("resumed_as"))
                found.setdefault(as_id, event.attributes.get("version"))
        if not part.events:
            break
        cursor = part.cursor
    jobs = await line.store.get(list(found)) if found else []
    return [
        Earlier(job=job, version=version if isinstance(version, int) else None)
        for job, version in zip(jobs, found.values(), strict=True)
    ]


async def _made_by(line: Line, earlier: Sequence[Earlier], op_id: str) -> Job | None:
    jobs = [one.job for one in earlier if one.job is not None]
    histories = await line.store.histories([job.job_id for job in jobs]) if jobs else []
    for job, history in zip(jobs, histories, strict=True):
        if history and history[0].op_id == op_id:
            return job
    return None


def _times(original: Job) -> int:
    """For which time the original itself resumes another."""
    return original.spec.outputs.resume_attempt if original.spec.outputs else 0


def _spec(original: Job, outputs: Promise, number: int) -> Spec:
    spec = original.spec
    first = spec.outputs.original_total if spec.outputs else 0
    promise = replace(
        outputs,
        resume_attempt=_times(original) + number,
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
    """Who asks. What was asked for with a key stays that key's: who resumes it for them does not own it."""
    asked = original.submitted_by or actor
    return asked if asked.startswith("key:") else actor
