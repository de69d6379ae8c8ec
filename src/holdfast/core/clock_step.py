"""A step of the store's clock, and how a job is adjusted to it: durations are kept, dates stay."""

from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.job import Job, Lease
from holdfast.core.state import ENDED, State

TOLERANCE = timedelta(seconds=1)
"""A smaller difference between the wall clock and the monotonic clock counts as drift."""


class ClockStep(Struct, frozen=True, kw_only=True):
    """A change of a clock: it shows `after` where it would have shown `before`.

    The change came some time after the old clock showed `since`, so the new clock has shown times from
    `since + by` to `after`, and no earlier ones. Without `since`, nothing has read the new clock yet.
    """

    before: datetime
    after: datetime
    since: datetime | None = None

    @property
    def by(self) -> timedelta:
        return self.after - self.before

    def may_have_shown(self, instant: datetime) -> bool:
        """Return whether the clock may have shown this instant after the step."""
        if self.since is None:
            return False
        return self.since + self.by - TOLERANCE <= instant <= self.after + TOLERANCE


class ClockStepSummary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a store keeps about the steps of its clock: their sum, and for the last step its size, the time
    after it, the process that noticed it and how many jobs were adjusted."""

    total: timedelta = timedelta()
    by: timedelta = timedelta()
    at: datetime | None = None
    noticed_by: str = ""
    jobs: int = 0


def carry_over(job: Job, step: ClockStep) -> Job:
    """Return the job with its lease, timeout, deadline and waiting time moved by the step.

    A ready job stays ready, but no job becomes ready before its `run_at`. A job that was last written after
    the step is returned as it is."""
    lease, by = job.lease, step.by
    if job.state in _TIMELESS or step.may_have_shown(lease.heartbeat_at if lease else job.updated_at):
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


def _ready_at(job: Job, step: ClockStep) -> datetime:
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
