"""The pause of a worker whose machine cannot begin jobs: it claims nothing, then one job, to see.

Without it, a machine out of descriptors takes job after job from those that could run them: nothing is
as quick as an attempt that cannot begin.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core.job import Failure
from holdfast.core.limits import clip
from holdfast.ports import Clock
from holdfast.worker.endings import Report
from holdfast.worker.executor import Ending
from holdfast.worker.hold import Hold

PAUSE_SECONDS = 1.0
PAUSE_SECONDS_MAX = 60.0
SUSPECTS_MIN = 3
"""So many different jobs that cannot begin here, and nothing that does: then it is not the jobs."""


class Pause:
    """Whether a worker may claim. `on` from a fault of the machine until it is seen to be well again.

    It lasts a second, and twice as long after each fault that follows, a minute at most. Then one job is
    claimed: work that begins ends the pause. After a fault of work that had begun, such as an output that
    could not be kept, only work that ends does. `given_back` counts the jobs that could not be begun here, or
    whose work could not be kept. A worker that is `alone` with its one job gives nothing back: it has failed.
    """

    def __init__(self, clock: Clock, report: Report, owner: str) -> None:
        self._clock = clock
        self._report = report
        self._owner = owner
        self._faults = 0
        self._until = 0.0
        self._by_end = False
        self._trial: Hold | None = None
        self._working: set[Hold] = set()
        self._suspects: set[str] = set()
        self.given_back = 0
        self.alone = False

    @property
    def on(self) -> bool:
        return self._faults > 0

    @property
    def seconds(self) -> float:
        """How long nothing may be claimed, from now."""
        return max(0.0, self._until - self._clock.monotonic()) if self._faults else 0.0

    def allowed(self, wanted: int) -> int:
        """How many jobs may be claimed, of so many wanted."""
        if not self._faults:
            return wanted
        return 0 if self._trial is not None else min(wanted, 1)

    def claimed(self, holds: Sequence[Hold]) -> None:
        if self._faults and holds:
            self._trial = holds[0]

    def begun(self, hold: Hold) -> bool:
        """The work has begun; returns whether that ends the pause."""
        self._working.add(hold)
        self._suspects.clear()
        return not self._by_end and self._end()

    def ended(self, hold: Hold, ending: Ending) -> Ending:
        """The work is over, or could not begin: returns what is to be told of it."""
        failure = ending.failure
        if self.alone and failure is not None:
            failure = replace(failure, not_started=False)
            return replace(ending, failure=failure, machine=False)
        if ending.machine and failure is not None:
            return self._machine_at_fault(hold, ending, failure)
        if failure is not None and failure.not_started:
            self._suspect(hold, failure)
        elif not ending.stopped:
            self._suspects.clear()
            self._end()
        return ending

    def over(self, hold: Hold) -> None:
        """The attempt is over, however it ended: another may be made."""
        self._working.discard(hold)
        if self._trial is hold:
            self._trial = None

    def _machine_at_fault(self, hold: Hold, ending: Ending, failure: Failure) -> Ending:
        """The job is given back; one that may be too large for this machine only so many times."""
        self.given_back += 1
        self._by_end = self._by_end or hold in self._working
        self._begin(failure.message)
        if failure.not_started:
            return ending
        hold.begun_at = None
        hold.released = hold.released or clip(f"{self._owner}: {failure.message}")
        return Ending(stopped=True)

    def _suspect(self, hold: Hold, failure: Failure) -> None:
        """The job could not begin here, by its own fault or by the machine's."""
        self.given_back += 1
        hold.begun_at = None
        self._suspects.add(hold.job_id)
        if len(self._suspects) >= SUSPECTS_MIN:
            self._begin(failure.message)

    def _begin(self, why: str) -> None:
        if self.seconds:
            return  # of jobs that were claimed before: one pause is enough for all of them
        seconds = min(PAUSE_SECONDS * 2 ** min(self._faults, 32), PAUSE_SECONDS_MAX)
        self._faults += 1
        self._until = self._clock.monotonic() + seconds
        self._report.paused(seconds, why)

    def _end(self) -> bool:
        if not self._faults:
            return False
        self._faults, self._by_end, self._trial = 0, False, None
        self._report.resumed()
        return True
