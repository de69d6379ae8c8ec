"""Fencing after a restore: every live job is taken from its earlier owner, under a token that owner never
had."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from holdfast.core.errors import Conflict
from holdfast.core.job import Job
from holdfast.core.lifecycle import Change, Refusal, Restore, decide
from holdfast.core.state import ENDED, State
from holdfast.failpoint import failpoint
from holdfast.ports import ById, Decision, JobFilter, Store, Work

_PAGE = 500


async def fence_all_owners(store: Store, op_id: str) -> int:
    """Take every live job from its owner; return how many had one. With one `op_id` each job is taken
    once, however many processes do this at once: a later owner keeps its job."""
    live = JobFilter(states=tuple(state for state in State if state not in ENDED))
    cursor: str | None = None
    taken = 0
    while True:
        page = await store.list_jobs(live, after=cursor, limit=_PAGE)
        left = [job.job_id for job in page.jobs]
        while left:
            decisions = await _take(store, left, op_id)
            taken += sum(isinstance(d, Change) and _leased(d.before) for d in decisions)
            left = [d.job.job_id for d in decisions if isinstance(d, Refusal) and d.job]
        cursor = page.next
        if cursor is None:
            return taken


async def _take(store: Store, job_ids: Sequence[str], op_id: str) -> list[Decision]:
    """Fence each job at the version whose history was read, unless this operation has fenced it already."""
    works = []
    for job_id, history in zip(job_ids, await store.histories(job_ids), strict=True):
        if not any(event.op_id == op_id for event in history):
            works.append(Work(ById(job_id), partial(_restore, Restore(op_id=op_id), len(history))))
    answers = await store.transact(works) if works else []
    failpoint("restore.owners_fenced")
    return [decision for [decision] in answers]


def _restore(command: Restore, version: int, job: Job | None, now: datetime, *rest: object) -> Decision:
    if job is not None and job.version != version:
        return Refusal(Conflict("The job has changed since its history was read."), job)
    return decide(command, job, now, *rest)  # type: ignore[arg-type]


def _leased(job: Job | None) -> bool:
    return job is not None and job.leased
