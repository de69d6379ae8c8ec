"""resume: a new job of what a partial success lacks, linked both ways. The original stays as it is."""

import re
from datetime import datetime
from hashlib import blake2b

from msgspec.structs import replace

from holdfast.core.catalogue import EventClass, EventType
from holdfast.core.errors import Conflict, Exhausted
from holdfast.core.event import Event, fact_id
from holdfast.core.job import Job
from holdfast.core.lifecycle import Change, Enqueue, Refusal, decide
from holdfast.core.limits import ID_CHARACTERS_MAX, check_actor, check_id
from holdfast.core.outputs import Promise
from holdfast.core.spec import Spec, check_spec
from holdfast.core.state import State
from holdfast.ports import One, Work
from holdfast.registry.line import Line

_SUFFIX = re.compile(r"-resume-[0-9a-f]{4}\Z")
_SUFFIX_CHARACTERS = len("-resume-0000")
_PLACES = 100


async def resume(
    line: Line, job_id: str, outputs: Promise, *, actor: str, resume_id: str | None
) -> Job:
    """The new job. One `resume_id` makes at most one, however often it is sent."""
    check_actor(actor)
    original = await line.get(job_id)
    op_id = check_id(resume_id, "resume_id") if resume_id else line.ids.new()
    new_id, made = await _place(line, job_id, op_id)
    if made:  # perhaps by somebody who died before telling
        job = await line.get(new_id)
        await line.store.record([_link(original, new_id, actor, job.created_at)])
        return job
    if original.state is not State.PARTIAL_SUCCESS:
        raise Conflict(
            f"Job {job_id} is {original.state}: not resumable. Only a partial success lacks something"
            " that can be made.",
            job_id=job_id,
            version=original.version,
        )
    earlier = await _earlier(line, original)
    command = Enqueue(
        op_id=op_id,
        job_id=new_id,
        spec=_spec(original, replace(outputs, resume_attempt=earlier + 1)),
        actor=actor,
        submitted_by=_submitter(original, actor),
        correlation_id=original.correlation_id,
        trace_id=original.trace_id,
        traceparent=original.traceparent,
    )

    def decide_linked(job: Job | None, now: datetime, *rest: object) -> Change | Refusal:
        """The new job, and in the same commit the fact about the original that links to it."""
        decision = decide(command, job, now, *rest)  # type: ignore[arg-type]
        if isinstance(decision, Change) and decision.before is None:
            return replace(decision, facts=(_link(original, new_id, actor, now),))
        return decision

    [[decision]] = await line.submit(Work(One(new_id, command.spec.lock), decide_linked))
    if not isinstance(decision, Change):
        raise decision.error
    return decision.after


def resumed_id(job_id: str, op_id: str, number: int = 0) -> str:
    """The id of the job that resumes another: of the first one, when that resumes one itself. Four digits
    are few: `number` gives another where one is taken."""
    root = _SUFFIX.sub("", job_id)[: ID_CHARACTERS_MAX - _SUFFIX_CHARACTERS]
    suffix = blake2b(f"{job_id}/{op_id}/{number}".encode(), digest_size=2).hexdigest()
    return f"{root}-resume-{suffix}"


async def _place(line: Line, job_id: str, op_id: str) -> tuple[str, bool]:
    """The id for this resumption, and whether it made its job before."""
    for number in range(_PLACES):
        new_id = resumed_id(job_id, op_id, number)
        [history] = await line.store.histories([new_id])
        if not history or history[0].op_id == op_id:
            return new_id, bool(history)
    raise Exhausted(f"Job {job_id} was resumed too often: resume the last job that resumed it.")


async def _earlier(line: Line, original: Job) -> int:
    """How often the work was resumed before: also the original may resume another."""
    job_id, found = original.job_id, set[str]()
    before = original.spec.outputs.resume_attempt if original.spec.outputs else 0
    cursor = None
    while True:
        part = await line.store.log(job_id, after=cursor, limit=1000, output=False)
        for event in part.events:
            if event.event_type == EventType.RESUMED:
                found.add(event.event_id)
        if not part.events:
            break
        cursor = part.cursor
    return before + len(found)


def _spec(original: Job, outputs: Promise) -> Spec:
    spec = original.spec
    first = spec.outputs.original_total if spec.outputs else 0
    promise = replace(outputs, original_total=first or spec.promised_outputs)
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


def _link(original: Job, new_id: str, actor: str, now: datetime) -> Event:
    job_id = original.job_id
    return Event(
        event_type=EventType.RESUMED,
        event_class=EventClass.FACT,
        occurred_at=now,
        job_id=job_id,
        actor=actor,
        reason=f"resumed as {new_id}",
        correlation_id=original.correlation_id,
        trace_id=original.trace_id,
        given_id=fact_id(job_id, EventType.RESUMED, new_id),
        attributes={"resumed_as": new_id},
    )
