"""A hold: one grant in this worker's hands, with what is known about it."""

from collections.abc import Callable

from holdfast.core.job import Job, Progress
from holdfast.core.spec import Json
from holdfast.ports import Grant
from holdfast.tracing import Span

MARGIN_SECONDS = 0.5
"""How long before its lease ends the work must have stopped: time for whoever comes next."""


class Hold:
    """`deadline` is on the worker's own monotonic clock, counted from before the lease was asked for.

    Whoever runs the job listens, and is called whenever it is lost, cancelled, given back or out of
    time. `checkpoint` is what the job kept last.
    """

    __slots__ = (
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
        "silent",
        "span",
        "timed_out",
        "urgent",
    )

    def __init__(self, grant: Grant, deadline: float) -> None:
        self.grant = grant
        self.job_id = grant.job.job_id
        self.deadline = deadline
        self.begun_at: float | None = None
        self.ended_at: float | None = None
        self.renew_at = 0.0
        self.progress: Progress | None = None
        self.checkpoint: Json = grant.job.checkpoint
        self.lost: str | None = None
        self.cancelled = False
        self.released: str | None = None
        self.timed_out = False
        self.urgent = False
        self.silent = False
        self.listener: Callable[[], None] | None = None
        self.span: Span | None = None

    @property
    def traceparent(self) -> str | None:
        """The trace that whatever the job does is part of: in the attempt's span, where there is one."""
        return self.grant.job.traceparent if self.span is None else self.span.traceparent

    @property
    def seconds(self) -> float:
        """How long its work took, or 0 when none was begun: not how long it took to tell its end."""
        if self.begun_at is None or self.ended_at is None:
            return 0.0
        return self.ended_at - self.begun_at

    def lose(self, why: str) -> None:
        """Somebody else may own the job from now on: stop, and keep the result to yourself."""
        if self.lost is None:
            self.lost = why
            self._stir()

    def give_back(self, why: str, *, now: bool = False) -> None:
        """This worker cannot go on with it: stop the work and release the job. `now`: give it no time
        to end by itself."""
        if self.released is None or (now and not self.urgent):
            self.released = self.released or why
            self.urgent = now
            self._stir()

    def time_out(self) -> None:
        """The attempt has had its time: stop the work, it has failed."""
        if not self.timed_out:
            self.timed_out = True
            self._stir()

    def abandon(self) -> None:
        """The work does not heed a cancel: let the lease run out, and the job end with it."""
        self.silent = True

    def heard(self, job: Job) -> None:
        """Take in what an answer says about the job."""
        mine = job.lease is not None and job.fencing_token == self.grant.fencing_token
        if not mine:
            self.lose(f"the job is {job.state}, attempt {job.attempt}")
        elif job.cancel is not None and not self.cancelled:
            self.cancelled = True
            self._stir()

    @property
    def stopping(self) -> bool:
        """Whether the work has to end, for whatever reason."""
        return bool(self.lost or self.cancelled or self.released or self.timed_out)

    def _stir(self) -> None:
        if self.listener is not None:
            self.listener()
