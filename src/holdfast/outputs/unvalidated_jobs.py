"""The jobs that ended without success and whose promised outputs were not validated yet.

This process knows those that it has seen end, and, from its start, those among the newest jobs: no sweep
reads every job that ever ended. Any other is validated when a client asks for it.
"""

from holdfast.core.job import Job
from holdfast.core.outputs import VALIDATION_TRIES_MAX
from holdfast.ports import Registry

NEWEST = 100
WAITING_MAX = 10_000
_PAGE = 200


class UnvalidatedJobs:
    """Jobs to validate, in order of arrival, each until it has a verdict."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._waiting: dict[str, None] = {}
        self._begun = False

    async def any(self) -> bool:
        await self._collect()
        return bool(self._waiting)

    async def page(self) -> list[Job]:
        """Return a page of jobs without a verdict. Those that have one by now are forgotten; a job that is
        returned comes again later, after all others, until `drop`."""
        await self._collect()
        ids = list(self._waiting)[:_PAGE]
        found: list[Job] = []
        for job_id, job in zip(ids, await self._registry.status_many(ids), strict=True):
            del self._waiting[job_id]
            if job is not None and awaits_validation(job):
                self._waiting[job_id] = None
                found.append(job)
        return found

    def drop(self, job_id: str) -> None:
        """Forget a job that this process cannot validate."""
        self._waiting.pop(job_id, None)

    async def _collect(self) -> None:
        taken = self._registry.take_unvalidated()
        if not self._begun:
            newest = await self._registry.list_jobs(limit=NEWEST, newest=True)
            taken += [job.job_id for job in newest.jobs if awaits_validation(job)]
            self._begun = True
        self._waiting |= dict.fromkeys(taken)
        while len(self._waiting) > WAITING_MAX:
            del self._waiting[next(iter(self._waiting))]


def awaits_validation(job: Job) -> bool:
    """Return whether a sweep still validates the outputs of this unsuccessful job."""
    tried = job.check.tries if job.check else 0
    return job.unvalidated and job.spec.outputs is not None and tried < VALIDATION_TRIES_MAX
