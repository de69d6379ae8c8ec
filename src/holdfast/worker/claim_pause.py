"""The pause of a worker whose machine cannot start jobs: it claims nothing, then a single job as a trial.

Without it, a machine out of descriptors would take job after job from workers that could run them: no
attempt is as quick as one that cannot begin.
"""

import os
from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core.job import Failure
from holdfast.core.limits import clip
from holdfast.ports import Clock
from holdfast.worker.completion_reporter import WorkerObserver
from holdfast.worker.executor import Ending
from holdfast.worker.held_job import HeldJob

PAUSE_SECONDS = 1.0
PAUSE_SECONDS_MAX = 60.0
SUSPECTS_MIN = 3
"""When this many different jobs in a row cannot begin here, the machine is at fault and not the jobs."""
RESERVE_MAX = 4
"""Descriptors held back: as many as a few connections to the store need."""


class ClaimPause:
    """Whether a worker may claim. `on` from a fault of the machine until a job has run again.

    It lasts a second, twice as long after each further fault, a minute at most. Then one job is claimed:
    the pause ends when its work begins. After a fault in work that had begun, such as output that could not
    be stored, it ends when a job has ended. `given_back` counts the jobs that could not begin here, or
    whose output could not be stored. With `alone`, the worker has only one job and gives nothing back: it
    fails.
    """

    def __init__(self, clock: Clock, observer: WorkerObserver, owner: str) -> None:
        self._clock = clock
        self._observer = observer
        self._owner = owner
        self._faults = 0
        self._until = 0.0
        self._ends_with_job = False
        self._trial: HeldJob | None = None
        self._suspects: set[str] = set()
        self.given_back = 0
        self.alone = False

    @property
    def on(self) -> bool:
        return self._faults > 0

    @property
    def seconds(self) -> float:
        """How long from now nothing may be claimed."""
        return max(0.0, self._until - self._clock.monotonic()) if self._faults else 0.0

    def allowed(self, wanted: int) -> int:
        """Return how many of the `wanted` jobs may be claimed."""
        if not self._faults:
            return wanted
        return 0 if self._trial is not None else min(wanted, 1)

    def claimed(self, held_jobs: Sequence[HeldJob]) -> None:
        if self._faults and held_jobs:
            self._trial = held_jobs[0]

    @property
    def idle(self) -> bool:
        """Whether there was no fault lately: then work that has ended by itself tells nothing new."""
        return not (self._faults or self._suspects)

    def begun(self, held_jobs: Sequence[HeldJob]) -> bool:
        """The work of these jobs has begun. Return whether that ends the pause."""
        for held in held_jobs:
            held.work_begun = True
        self._suspects.clear()
        return not self._ends_with_job and self._end()

    def ended(self, held: HeldJob, ending: Ending) -> Ending:
        """The work is over, or could not begin. Return the ending to report."""
        failure = ending.failure
        if self.alone and failure is not None:
            failure = replace(failure, not_started=False)
            return replace(ending, failure=failure, machine=False)
        if ending.machine and failure is not None:
            return self._machine_at_fault(held, ending, failure)
        if failure is not None and failure.not_started:
            self._suspect(held, failure)
        elif not ending.stopped:
            self._suspects.clear()
            self._end()
        return ending

    def closed(self, held_jobs: Sequence[HeldJob]) -> None:
        """These attempts are reported: another trial may follow."""
        if self._trial is not None and self._trial in held_jobs:
            self._trial = None

    def _machine_at_fault(self, held: HeldJob, ending: Ending, failure: Failure) -> Ending:
        """The job is given back. A `not_started` failure is reported: the registry counts those."""
        self.given_back += 1
        self._ends_with_job = self._ends_with_job or held.work_begun
        self._begin(failure.message)
        if failure.not_started:
            return ending
        held.begun_at = None
        held.released = held.released or clip(f"{self._owner}: {failure.message}")
        return Ending(stopped=True)

    def _suspect(self, held: HeldJob, failure: Failure) -> None:
        """The job could not begin here, by its own fault or the machine's."""
        self.given_back += 1
        held.begun_at = None
        self._suspects.add(held.job_id)
        if len(self._suspects) >= SUSPECTS_MIN:
            self._begin(failure.message)

    def _begin(self, why: str) -> None:
        if self.seconds:
            return  # a job that was claimed before the pause: one pause is enough for all of them
        seconds = min(PAUSE_SECONDS * 2 ** min(self._faults, 32), PAUSE_SECONDS_MAX)
        self._faults += 1
        self._until = self._clock.monotonic() + seconds
        self._observer.paused(seconds, why)

    def _end(self) -> bool:
        if not self._faults:
            return False
        self._faults, self._ends_with_job, self._trial = 0, False, None
        self._observer.resumed()
        return True


class DescriptorReserve:
    """Descriptors held open. A worker without any could not give its jobs back: it frees these when its
    machine cannot run jobs, since reporting that may need another connection to the store."""

    def __init__(self) -> None:
        self._held: list[int] = []

    def take(self) -> None:
        """Open them, as far as the machine has any left."""
        try:
            while len(self._held) < RESERVE_MAX:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            return  # none are left: those that are held must do

    def free(self) -> None:
        while self._held:
            os.close(self._held.pop())
