"""A hold: one grant in this worker's hands, with what is known about it."""

import asyncio

from holdfast.core.job import Job
from holdfast.ports import Grant


class Hold:
    """`deadline` is on the worker's own monotonic clock, counted from before the lease was asked for.

    `lost` and `cancelled` only ever go from no to yes; `stirred` is set whenever one does.
    """

    def __init__(self, grant: Grant, deadline: float) -> None:
        self.grant = grant
        self.deadline = deadline
        self.group: int | None = None
        self.lost: str | None = None
        self.cancelled = False
        self.released: str | None = None
        self.stirred = asyncio.Event()

    @property
    def job_id(self) -> str:
        return self.grant.job_id

    def lose(self, why: str) -> None:
        """Somebody else may own the job from now on: stop, and keep the result to yourself."""
        self.lost = self.lost or why
        self.stirred.set()

    def give_back(self, why: str) -> None:
        """This worker is leaving: stop the work and release the job."""
        self.released = self.released or why
        self.stirred.set()

    def heard(self, job: Job) -> None:
        """Take in what an answer says about the job."""
        mine = job.lease is not None and job.fencing_token == self.grant.fencing_token
        if not mine:
            self.lose(f"the job is {job.state}, attempt {job.attempt}")
        elif job.cancel is not None and not self.cancelled:
            self.cancelled = True
            self.stirred.set()
