"""Unverified: the jobs that ended without success and whose promised outputs nobody has looked for yet.

They are known by what this process has seen end, and once, when it begins, from the newest jobs there
are: no sweep reads every job that ever ended. What is missed so is looked for when it is asked about.
"""

from holdfast.core.job import Job
from holdfast.core.outputs import TRIES_MAX
from holdfast.ports import Registry

NEWEST = 100
WAITING_MAX = 10_000
_PAGE = 200


class Unverified:
    """Jobs to look at, in the order in which they came; each until something is known of it."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._waiting: dict[str, None] = {}
        self._begun = False

    async def any(self) -> bool:
        """Whether there may be anything to look for."""
        await self._gather()
        return bool(self._waiting)

    async def page(self) -> list[Job]:
        """Some that nothing is known of, at most a page; the others of the page are forgotten. Whatever
        comes is asked for again later, after the others, until it is told to `drop`."""
        await self._gather()
        ids = list(self._waiting)[:_PAGE]
        found: list[Job] = []
        for job_id, job in zip(ids, await self._registry.get_many(ids), strict=True):
            del self._waiting[job_id]
            if job is not None and is_open(job):
                self._waiting[job_id] = None
                found.append(job)
        return found

    def drop(self, job_id: str) -> None:
        """Forget this one: it is not for us to look at."""
        self._waiting.pop(job_id, None)

    async def _gather(self) -> None:
        taken = self._registry.take_unverified()
        if not self._begun:
            newest = await self._registry.list_jobs(limit=NEWEST, newest=True)
            taken += [job.job_id for job in newest.jobs if is_open(job)]
            self._begun = True
        self._waiting |= dict.fromkeys(taken)
        while len(self._waiting) > WAITING_MAX:
            del self._waiting[next(iter(self._waiting))]


def is_open(job: Job) -> bool:
    """Whether the outputs of an unsuccessful job are still to be looked for without being asked."""
    tried = job.check.tries if job.check else 0
    return job.unverified and job.spec.outputs is not None and tried < TRIES_MAX
