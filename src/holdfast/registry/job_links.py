"""Linked jobs: a new job made from an ended one, and the fact on the ended job that names the new one."""

from datetime import datetime

from msgspec.structs import replace

from holdfast.core.catalogue import EventClass, EventType
from holdfast.core.event import Event, fact_id
from holdfast.core.job import Job
from holdfast.core.lifecycle import Change, Enqueue, Refusal, decide
from holdfast.core.spec import Spec
from holdfast.ports import ById, Work
from holdfast.registry.commit_queue import CommitQueue

_WORDS = {EventType.REPLAYED: "replayed", EventType.RESUMED: "resumed"}


def linked_command(
    original: Job, job_id: str, spec: Spec, *, op_id: str, actor: str, submitted_by: str
) -> Enqueue:
    """Return the command that creates the new job, in the trace of the original."""
    return Enqueue(
        op_id=op_id,
        job_id=job_id,
        spec=spec,
        actor=actor,
        submitted_by=submitted_by,
        correlation_id=original.correlation_id,
        trace_id=original.trace_id,
        traceparent=original.traceparent,
    )


async def enqueue_linked(
    commits: CommitQueue, command: Enqueue, original: Job, kind: EventType, *, any_op: bool = False
) -> Change:
    """Create the new job, and in the same commit the link to it.

    If the job exists already, the change has it as `before`, and nothing is written: only for a repeat of
    the op that created it or, with `any_op`, for any op; else the refusal is raised.
    """

    def decide_linked(job: Job | None, now: datetime, *rest: object) -> Change | Refusal:
        if job is not None and any_op:
            return Change(job, job)
        decision = decide(command, job, now, *rest)  # type: ignore[arg-type]
        if isinstance(decision, Change) and decision.before is None:
            return replace(decision, facts=(link_fact(original, command.job_id, kind, actor, now),))
        return decision

    actor = command.actor
    [[decision]] = await commits.submit(Work(ById(command.job_id, command.spec.lock), decide_linked))
    if not isinstance(decision, Change):
        raise decision.error
    return decision


def link_fact(original: Job, new_id: str, kind: EventType, actor: str, now: datetime) -> Event:
    """Return the fact about the original that names the new job. A repeat of it is the same fact."""
    word = _WORDS[kind]
    attributes: dict[str, object] = {f"{word}_as": new_id}
    if kind is EventType.RESUMED:
        attributes["version"] = original.version
    return Event(
        event_type=kind,
        event_class=EventClass.FACT,
        occurred_at=now,
        job_id=original.job_id,
        actor=actor,
        reason=f"{word} as {new_id}",
        correlation_id=original.correlation_id,
        trace_id=original.trace_id,
        given_id=fact_id(original.job_id, kind, new_id),
        attributes=attributes,
    )
