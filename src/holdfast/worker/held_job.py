"""A job that this worker holds: its grant, its deadline and whether it has to stop."""

from collections.abc import Callable
from datetime import timedelta

from holdfast.core.explanation import format_duration
from holdfast.core.job import Job, Progress
from holdfast.core.spec import Json
from holdfast.ports import Grant
from holdfast.tracing import Span

MARGIN_SECONDS = 0.5
"""How long before the end of its lease the work must have stopped, so that the next owner finds it
ended."""


class HeldJob:
    """One grant. `deadline` is on the worker's own monotonic clock, counted from before the claim was sent.

    The executor sets `listener`, which is called when the job is lost, cancelled, given back or out of
    time. `checkpoint` is the last one that the job stored. `running`: it has a slot; `work_begun`: its
    process or runner has it. If the machine was asleep for `slept` seconds while the lease ended, the work
    goes on until `renewed_by`: the lease must have been renewed by then.
    """

    __slots__ = (
        "abandoned",
        "begun_at",
        "cancelled",
        "checkpoint",
        "deadline",
        "ended_at",
        "grant",
        "job_id",
        "listener",
        "lost",
        "progress",
        "released",
        "renew_at",
        "renewed_by",
        "running",
        "slept",
        "span",
        "timed_out",
        "urgent",
        "work_begun",
    )

    def __init__(self, grant: Grant, deadline: float) -> None:
        job = grant.job
        self.grant = grant
        self.job_id = job.job_id
        self.deadline = deadline
        self.running = self.work_begun = False
        self.begun_at: float | None = None
        self.ended_at: float | None = None
        self.renew_at = 0.0
        self.renewed_by = 0.0
        self.slept = 0.0
        self.progress: Progress | None = None
        self.checkpoint: Json = job.checkpoint
        self.lost: str | None = None
        self.cancelled = False
        self.released: str | None = None
        self.timed_out = False
        self.urgent = False
        self.abandoned = False
        self.listener: Callable[[], None] | None = None
        self.span: Span | None = None

    @property
    def traceparent(self) -> str | None:
        """The trace context of the work: the attempt's span, or else the job's own."""
        return self.grant.job.traceparent if self.span is None else self.span.traceparent

    @property
    def work_seconds(self) -> float:
        """How long the work took, without the time it took to report its end; 0 when it did not begin."""
        if self.begun_at is None or self.ended_at is None:
            return 0.0
        return self.ended_at - self.begun_at

    @property
    def ends_at(self) -> float:
        """When the work must have stopped at the latest, with the margin for its next owner."""
        return max(self.deadline, self.renewed_by + MARGIN_SECONDS) if self.slept else self.deadline

    def lose(self, why: str) -> None:
        """Another worker may own the job from now on: stop the work and discard its result."""
        if self.lost is None:
            asleep = f"this machine was asleep for {_rounded(self.slept)}: " if self.slept else ""
            self.lost = asleep + why
            self._notify()

    def give_back(self, why: str, *, now: bool = False) -> None:
        """Stop the work and release the job. `now`: give it no time to end by itself."""
        if self.released is None or (now and not self.urgent):
            self.released = self.released or why
            self.urgent = now
            self._notify()

    def time_out(self) -> None:
        """The job's timeout has passed: stop the work, the attempt has failed."""
        if not self.timed_out:
            self.timed_out = True
            self._notify()

    def abandon(self) -> None:
        """The work ignores a cancel: renew the lease no more, the job ends with it."""
        self.abandoned = True

    def update(self, job: Job) -> None:
        """Compare with the job as the registry has it now: it may be lost or cancelled."""
        mine = job.lease is not None and job.fencing_token == self.grant.fencing_token
        if not mine:
            self.lose(f"the job is {job.state}, attempt {job.attempt}")
        elif job.cancel is not None and not self.cancelled:
            self.cancelled = True
            self._notify()

    @property
    def must_stop(self) -> bool:
        """Whether the work has to end, for whatever reason."""
        return bool(self.lost or self.cancelled or self.released or self.timed_out)

    def _notify(self) -> None:
        if self.listener is not None:
            self.listener()


def _rounded(seconds: float) -> str:
    return format_duration(timedelta(seconds=seconds))
