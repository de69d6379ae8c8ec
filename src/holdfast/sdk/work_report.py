"""What a worker from Python has done: counted, and logged as `holdfast.worker`."""

import logging
from collections import Counter
from datetime import timedelta

from msgspec import Struct

from holdfast.core.explanation import describe_retry, format_duration
from holdfast.core.job import Job
from holdfast.core.state import State
from holdfast.ports import Clock, Grant

log = logging.getLogger("holdfast.worker")


class WorkSummary(Struct, frozen=True):
    """What a worker has done."""

    states: dict[State, int]
    """How many jobs have ended, by their state."""
    tried_again: int
    """How many attempts have failed, of jobs that are tried again."""
    given_back: int
    """How many jobs were given back, at no cost."""
    lost: int
    """How many jobs went to other workers, because their leases had ended."""
    seconds: float
    """How long it has worked."""

    @property
    def jobs(self) -> int:
        """How many jobs have ended."""
        return sum(self.states.values())

    @property
    def succeeded(self) -> int:
        """How many jobs have succeeded."""
        return self.states.get(State.SUCCEEDED, 0)

    def __repr__(self) -> str:
        states = [f"{number:,} {state.replace('_', ' ')}" for state, number in self.states.items()]
        others = {"tried again": self.tried_again, "given back": self.given_back, "lost": self.lost}
        states += [f"{number:,} {what}" for what, number in others.items() if number]
        return f"<{', '.join(states) or 'no jobs'} in {self.seconds:.1f} s>"


class WorkReport:
    """Counts what a worker does. Whatever is not a success is a warning, which Python shows on stderr unless
    the program says otherwise."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_at = clock.monotonic()
        self._states: Counter[State] = Counter()
        self._others: Counter[str] = Counter()
        self._running: dict[str, Grant] = {}

    def summary(self) -> WorkSummary:
        others = self._others
        return WorkSummary(
            dict(self._states),
            others["tried again"],
            others["given back"],
            others["lost"],
            self._clock.monotonic() - self._began_at,
        )

    def started(self, grant: Grant) -> None:
        self._running[grant.job_id] = grant

    def ended(self, job: Job, seconds: float) -> None:
        grant = self._running.pop(job.job_id, None)
        if job.state is State.SUCCEEDED:
            self._states[job.state] += 1
            log.info("%s %s succeeded in %s", job.job_id, job.spec.kind, _text(seconds))
        elif job.state is State.QUEUED:
            self._queued(job, grant)
        elif job.ended:
            self._states[job.state] += 1
            why = job.reason or (job.error.message if job.error else "no reason was given")
            log.warning("%s %s: %s after %s: %s", job.job_id, job.spec.kind, job.state, _text(seconds), why)

    def _queued(self, job: Job, grant: Grant | None) -> None:
        before = 0 if grant is None else grant.job.failures + grant.job.crashes
        if grant is not None and job.error is not None and job.failures + job.crashes > before:
            self._others["tried again"] += 1
            words = (job.job_id, job.spec.kind, describe_retry(job), job.error.message)
            log.warning("%s %s failed, %s: %s", *words)
        else:
            self._others["given back"] += 1
            log.warning(
                "%s %s was given back: %s", job.job_id, job.spec.kind, job.reason or "it is tried again"
            )

    def lost(self, grant: Grant, why: str) -> None:
        self._running.pop(grant.job_id, None)
        self._others["lost"] += 1
        log.warning("%s %s was lost: %s", grant.job_id, grant.job.spec.kind, why)

    def trouble(self, why: str) -> None:
        log.warning("%s", why)

    def paused(self, seconds: float, why: str) -> None:
        log.error("this machine cannot run jobs; none is claimed for %g s: %s", seconds, why)

    def resumed(self) -> None:
        log.warning("this machine runs jobs again")

    def recovered(self, attempts: int) -> None:
        log.warning("closed %d attempts that a killed worker had left", attempts)


def _text(seconds: float) -> str:
    return format_duration(timedelta(seconds=seconds))
