"""verify: fold the log of every job, and compare the result with its record."""

from itertools import pairwise

from holdfast.core.catalogue import EventClass
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.projection import differences, fold
from holdfast.core.state import advances
from holdfast.ports import JobFilter, Mismatch, Verification
from holdfast.registry.commit_queue import CommitQueue

PAGE = 500


async def verify(commits: CommitQueue) -> Verification:
    """Fold every job. `equal` holds when no record differs and each transition has one event."""
    cursor: str | None = None
    jobs = transitions = events = control = 0
    mismatches: list[Mismatch] = []
    while True:
        page = await commits.store.list_jobs(JobFilter(), after=cursor, limit=PAGE)
        histories = await commits.store.histories([job.job_id for job in page.jobs])
        for listed, read in zip(page.jobs, histories, strict=True):
            checked = await _check(commits, listed, read)
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
    commits: CommitQueue, job: Job, history: list[Event]
) -> tuple[Job, list[Event], list[str]] | None:
    """The job, its log and how they differ. A job that changed between the two reads is read again until
    it does not: only a difference without a change counts."""
    while True:
        found = [
            f"{d.field}: stored {d.stored!r}, derived {d.derived!r}"
            for d in differences(job, fold(history, job.job_id))
        ] + _backward(history)
        [now] = await commits.store.get([job.job_id]) if found else [job]
        if now is None:
            return None  # pruned meanwhile
        if now.version == job.version:
            return job, history, found
        job = now
        [history] = await commits.store.histories([job.job_id])


def _backward(history: list[Event]) -> list[str]:
    steps = [(e.attempt or 0, e.to_state) for e in history if e.to_state is not None]
    return [
        f"moved back: {before} to {after}" for before, after in pairwise(steps) if not advances(before, after)
    ]
