"""replay: run an ended job again, as a new job linked both ways. The original stays as it is."""

from datetime import datetime

from msgspec.structs import replace

from holdfast.core.catalogue import EventClass, EventType
from holdfast.core.errors import Conflict
from holdfast.core.event import Event, fact_id
from holdfast.core.job import Job
from holdfast.core.lifecycle import Change, Enqueue, Refusal, decide
from holdfast.core.limits import check_actor, check_id
from holdfast.core.naming import derived_id
from holdfast.core.state import State
from holdfast.ports import One, Work
from holdfast.registry.line import Line


async def replay(line: Line, job_id: str, *, actor: str, replay_id: str | None) -> Job:
    """The new job. One `replay_id` makes at most one, however often it is sent."""
    check_actor(actor)
    original = await line.get(job_id)
    if not original.ended or original.state is State.SUCCEEDED:
        raise Conflict(
            f"Job {job_id} is {original.state}; only a job that ended without success is run again.",
            job_id=job_id,
            version=original.version,
        )
    op_id = check_id(replay_id, "replay_id") if replay_id else line.ids.new()
    command = Enqueue(
        op_id=op_id,
        job_id=derived_id(job_id, "replay", op_id),
        spec=replace(original.spec, replayed_from=job_id, delay=None, run_at=None),
        actor=actor,
        submitted_by=actor,
        correlation_id=original.correlation_id,
        trace_id=original.trace_id,
        traceparent=original.traceparent,
    )

    def decide_linked(job: Job | None, now: datetime, *rest: object) -> Change | Refusal:
        """The new job, and in the same commit the fact about the original that links to it."""
        decision = decide(command, job, now, *rest)  # type: ignore[arg-type]
        if isinstance(decision, Change) and decision.before is None:
            return replace(decision, facts=(_link(original, command, now),))
        return decision

    [[decision]] = await line.submit(Work(One(command.job_id, command.spec.lock), decide_linked))
    if not isinstance(decision, Change):
        raise decision.error
    job = decision.after
    if decision.before is job:  # made before, perhaps by somebody who died before telling
        await line.store.record([_link(original, command, job.created_at)])
    return job


def _link(original: Job, command: Enqueue, now: datetime) -> Event:
    job_id = original.job_id
    return Event(
        event_type=EventType.REPLAYED,
        event_class=EventClass.FACT,
        occurred_at=now,
        job_id=job_id,
        actor=command.actor,
        reason=f"replayed as {command.job_id}",
        correlation_id=original.correlation_id,
        trace_id=original.trace_id,
        given_id=fact_id(job_id, EventType.REPLAYED, command.job_id),
        attributes={"replayed_as": command.job_id},
    )
