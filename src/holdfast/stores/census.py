"""A census computed from every job: for stores that keep no counts."""

from collections.abc import Iterable
from datetime import datetime

from holdfast.core.job import Job
from holdfast.core.state import State
from holdfast.ports import Census

DUE_ITEMS = 5_000
"""How many of the jobs that are due next are read to count owners. Leased jobs come first among them,
unless deadlines are closer."""


class CensusBuilder:
    """Adds jobs to a census, a few at a time."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[State, int]] = {}
        self._ready: dict[str, datetime] = {}
        self._due: list[Job] = []

    def add(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            queue = job.spec.queue
            states = self._queues.setdefault(queue, {})
            states[job.state] = states.get(job.state, 0) + 1
            if job.state is State.QUEUED:
                self._ready[queue] = min(job.ready_at, self._ready.get(queue, job.ready_at))
            if job.due_at is not None:
                self._due.append(job)

    def census(self, limit: int, *, retries: int = 0) -> Census:
        """Return the census; the queues with the most queued jobs come first."""
        waiting = sorted(self._ready, key=lambda queue: (-self._queues[queue][State.QUEUED], queue))
        due = sorted(self._due, key=lambda job: (job.due_at, job.job_id))[:DUE_ITEMS]
        leases = [job.lease for job in due if job.lease is not None]
        return Census(
            queues=self._queues,
            ready={queue: self._ready[queue] for queue in waiting[:limit]},
            owners=len({lease.owner for lease in leases}),
            suspected=sum(lease.suspected for lease in leases),
            due_at=due[0].due_at if due else None,
            retries=retries,
        )
