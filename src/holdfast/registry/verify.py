"""verify: derive every job from its log again, and compare."""

from itertools import pairwise

from holdfast.core.catalogue import EventClass
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.projection import differences, fold
from holdfast.core.state import advances
from holdfast.ports import Filter, Mismatch, Verification
from holdfast.registry.line import Line

PAGE = 500


async def verify(line: Line) -> Verification:
    """Fold every job. `equal` holds when no record differs and each transition has one event."""
    cursor: str | None = None
    jobs = transitions = events = control = 0
    mismatches: list[Mismatch] = []
    while True:
        page = await line.store.list_jobs(Filter(), after=cursor, limit=PAGE)
        histories = await line.store.histories([job.job_id for job in page.jobs])
        for listed, read in zip(page.jobs, histories, strict=True):
            checked = await _check(line, listed, read)
            if checked is None:
                continue
            job, history, found = checked
            if found:
                mismatches.append(Mismatch(job.job_id, tuple(found)))
            jobs += 1
            transitions += job.transition_no
            events += sum(e.event_class is EventClass.TRANSITION for e in history)
            control += sum(e.event_class is EventClass.CONTROL for e in history)
        cursor = page.next
        if cursor is None:
            return Verification(
                jobs=jobs,
                transitions=transitions,
                events=events,
                control=control,
                mismatches=tuple(mismatches),
            )


async def _check(
    line: Line, job: Job, history: list[Event]
) -> tuple[Job, list[Event], list[str]] | None:
    """The job, its log and how they differ. A job that moved between the two readings is read again,
    for as long as it moves: only what differs while it stands still is a difference."""
    while True:
        found = [
            f"{d.field}: stored {d.stored!r}, derived {d.derived!r}"
            for d in differences(job, fold(history, job.job_id))
        ] + _backward(history)
        [now] = await line.store.get([job.job_id]) if found else [job]
        if now is None:
            return None  # pruned meanwhile
        if now.version == job.version:
            return job, history, found
        job = now
        [history] = await line.store.histories([job.job_id])


def _backward(history: list[Event]) -> list[str]:
    steps = [(e.attempt or 0, e.to_state) for e in history if e.to_state is not None]
    return [
        f"moved back: {before} to {after}"
        for before, after in pairwise(steps)
        if not advances(before, after)
    ]
