"""One command on many jobs, as a value: which jobs, what is done to each, and what came of it."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from holdfast.core.derived_ids import derived_id
from holdfast.core.errors import HoldfastError, Invalid
from holdfast.core.job import Job
from holdfast.core.state import ENDED, State


class BulkVerb(StrEnum):
    """What is done to each of many jobs."""

    CANCEL = "cancel"
    REPLAY = "replay"
    VALIDATE = "validate"
    RESUME = "resume"


OPEN = frozenset(State) - ENDED
TARGETS: dict[BulkVerb, frozenset[State]] = {
    BulkVerb.CANCEL: OPEN,
    BulkVerb.REPLAY: ENDED - {State.SUCCEEDED},
    BulkVerb.VALIDATE: (ENDED - {State.SUCCEEDED}) | {State.VALIDATING},
    BulkVerb.RESUME: ENDED - {State.SUCCEEDED},
}
"""The states in which a verb has something to do. Jobs in other states are not selected by a filter."""


class JobSelection(Struct, frozen=True, kw_only=True):
    """Which jobs: those that are named, or else those that match everything that is given.

    `since` is the least time at which a job ended or, if it has not, was created. `reason_code` is why a
    dead letter was given up.
    """

    job_ids: tuple[str, ...] = ()
    queue: str | None = None
    kind: str | None = None
    states: tuple[State, ...] = ()
    labels: dict[str, str] = {}
    since: datetime | None = None
    reason_code: str | None = None


class BulkPlan(Struct, frozen=True, kw_only=True):
    """One verb on the jobs of a selection, as they were at `planned_at`: jobs that were created later are
    none of them. The same plan may be run again after it broke off: what it has done, it does not repeat.
    """

    plan_id: str
    verb: BulkVerb
    selection: JobSelection
    planned_at: datetime
    again: bool = False
    force: bool = False
    reason: str | None = None

    @property
    def states(self) -> tuple[State, ...]:
        """The states of the jobs that a filter selects, or raise `Invalid` if the verb applies to none."""
        asked = self.selection.states or tuple(State)
        states = tuple(state for state in asked if state in TARGETS[self.verb])
        if not states:
            names = ", ".join(asked)
            raise Invalid(f"There is nothing to {self.verb} in jobs that are {names}.")
        return states

    def covers(self, job: Job) -> bool:
        """Return whether the job is one of the plan, as far as a listing cannot tell."""
        which, letter = self.selection, job.dead_letter
        if which.since is not None and (job.ended_at or job.created_at) < which.since:
            return False
        if which.reason_code is not None and (letter is None or letter.reason_code != which.reason_code):
            return False
        return job.created_at <= self.planned_at

    def op_id(self, job_id: str) -> str:
        """Return the op_id of what is done to this job. The first replay of a job has the same one in every
        plan: two people who replay it at the same moment make one job."""
        first_replay = self.verb is BulkVerb.REPLAY and not self.again
        return derived_id("bulk", "first-replay" if first_replay else self.plan_id, job_id)


class BulkEffect(StrEnum):
    """What came of the verb on one job."""

    DONE = "done"
    ALREADY = "already"
    REFUSED = "refused"


class BulkResult(Struct, frozen=True, kw_only=True):
    """What came of one job: `job` is the job after it or, of a replay or resume, the new one; `note` says
    why nothing was done to a job."""

    job_id: str
    effect: BulkEffect
    job: Job | None = None
    other_id: str | None = None
    note: str | None = None
    error: HoldfastError | None = None
