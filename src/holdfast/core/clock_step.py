"""A step of the store's clock, and what it does to a job: durations go on, dates stay."""

from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.job import Job, Lease
from holdfast.core.state import ENDED, State

TOLERANCE = timedelta(seconds=1)
"""A smaller difference between a clock and a counter of seconds is taken for drift."""


class Step(Struct, frozen=True, kw_only=True):
    """A clock that was set: it tells `after` where it would have told `before`.

    It was set some time after the old clock told `since`, so the new one has told times from `since + by`
    to `after`, and none that are earlier. Without `since`, nobody has gone by the new clock yet.
    """

    before: datetime
    after: datetime
    since: datetime | None = None

    @property
    def by(self) -> timedelta:
        return self.after - self.before

    def told(self, instant: datetime) -> bool:
        """Whether the clock may have told this instant after it was set."""
        if self.since is None:
            return False
        return self.since + self.by - TOLERANCE <= instant <= self.after + TOLERANCE


class Steps(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a store remembers of the steps of its clock: by how much it was set in all, and of the last
    step when the new clock told which time, who noticed it, and how many jobs were carried over."""

    total: timedelta = timedelta()
    by: timedelta = timedelta()
    at: datetime | None = None
    noticed_by: str = ""
    jobs: int = 0


def carried(job: Job, step: Step) -> Job:
    """The job with what was measured by the old clock counted on from the new time: its lease, its timeout,
    its deadline and the time until it is ready. What is ready stays ready, but nothing is before the date
    that was asked for (`run_at`). A job that was last heard of when the clock had been set stays as it is."""
    lease, by = job.lease, step.by
    if job.state in _TIMELESS or step.told(lease.heartbeat_at if lease else job.updated_at):
        return job
    ready_at = _ready_at(job, step)
    kept = ready_at == job.ready_at and job.updated_at <= step.after
    if lease is None and job.deadline_at is None and kept:
        return job
    return replace(
        job,
        lease=None if lease is None else _moved(lease, by),
        started_at=None if job.started_at is None else job.started_at + by,
        deadline_at=None if job.deadline_at is None else job.deadline_at + by,
        ready_at=ready_at,
        updated_at=job.updated_at + by,
    )


_TIMELESS = ENDED | {State.VALIDATING}


def _ready_at(job: Job, step: Step) -> datetime:
    date = job.spec.run_at
    if job.ready_at == date:
        return date
    was_ready = job.ready_at <= step.before
    ready_at = min(job.ready_at, step.after) if was_ready else job.ready_at + step.by
    return ready_at if date is None else max(ready_at, date)


def _moved(lease: Lease, by: timedelta) -> Lease:
    return replace(
        lease,
        expires_at=lease.expires_at + by,
        granted_at=lease.granted_at + by,
        heartbeat_at=lease.heartbeat_at + by,
        moved=(lease.moved or timedelta()) + by,
    )
