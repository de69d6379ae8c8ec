"""A job's timeline: what its log says of each version, and when a history allows it to have been made."""

# ruff: noqa: PLR1730  # a comparison costs a third of a call of min, and there are half a million

from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import gt
from typing import Literal

from msgspec import Struct

from holdfast.core.catalogue import EventClass, EventType
from holdfast.core.event import Event
from holdfast.core.state import ENDED, LEASED, LEGAL, State

NEVER = 2**63
"""The end of an operation without a response."""

_OPEN = LEASED | {State.QUEUED}


class Operation(Struct, gc=False):
    """One call on one job, from before it was sent until after its response, in nanoseconds.

    `answer` is `ok`, `fail` (certainly not applied) or `info` (perhaps applied). `token` is the one the
    caller acted under; `version`, `seen_token` and `state` are what the response showed. A claim that
    got nothing has no `job_id`; one that got several jobs, at most `limit`, is one operation for each.
    """

    verb: str
    answer: Literal["ok", "fail", "info"]
    start: int
    end: int
    op_id: str | None = None
    job_id: str | None = None
    token: int | None = None
    version: int | None = None
    seen_token: int | None = None
    state: State | None = None
    error: str | None = None
    limit: int = 1


class Violation(Struct, frozen=True):
    """A promise that a history breaks, by its number in docs/simulation.md."""

    job_id: str
    invariant: str
    details: str


class JobTimeline:
    """A job, version by version; 0 is the job that does not exist yet.

    A commit may make several versions: `places` says where an op_id begins, `ends` where it ends.
    `ended_by_owner` is whether its owner had ended the job itself. `begun` is when the first call began
    that may have made a version, `lower` when the last call began that saw the one before, `upper` when the
    first call ended that knew of it.
    """

    def __init__(self, job_id: str, log: Sequence[Event], found: list[Violation]) -> None:
        self.job_id = job_id
        self._found = found
        self.states: list[State | None] = [None]
        self.tokens = [0]
        self.ended_by_owner = [False]
        self.places: dict[str, int] = {}
        self.ends = [0]
        self.signed = [False]
        self.asked = NEVER
        self.broken = False
        self._halves: set[int] = set()
        self._follow(log)
        self.count = len(self.tokens) - 1
        self.begun = [NEVER] * (self.count + 2)
        self.lower = [0] * (self.count + 2)
        self.upper = [NEVER] * (self.count + 2)
        self.granted: dict[int | None, str | None] = {}
        self.refused: set[int] = set()
        self.started: dict[int | None, int] = {}

    def add_violation(self, invariant: str, details: str) -> None:
        self._found.append(Violation(self.job_id, invariant, details))

    def add_shown(self, op: Operation, version: int) -> None:
        known = f"{self.tokens[version]} {self.states[version]}"
        self.add_violation("I5", f"{op.verb} was shown {op.seen_token} {op.state} at {version}: {known}")

    def holds(self, token: int | None, version: int) -> bool:
        """Return whether this token was in force at this version."""
        return self.tokens[version] == token and self.states[version] in LEASED

    def late(self, token: int | None, version: int) -> bool:
        """Return whether the owner of this token had ended the job: its output is accepted for a while
        then."""
        return self.tokens[version] == token and self.ended_by_owner[version]

    def _follow(self, log: Sequence[Event]) -> None:
        """Check the log: offsets without a gap, legal transitions, rising tokens, each op_id once."""
        state: State | None = None
        token, attempt, by_owner = 0, 1, False
        last, last_type = "", ""
        for number, event in enumerate(log, 1):
            if event.offset != number:
                self.add_violation("I1", f"offset {event.offset} is in the place of {number}")
                self.broken = True
                return
            op_id, event_type = event.op_id or "", event.event_type
            now = event.fencing_token or 0
            if event.event_class is EventClass.TRANSITION:
                arrow = _ARROWS.get((state, event.to_state, event_type))
                if arrow is None or event.from_state is not state:
                    self.add_violation("I3", f"{number}: {state} cannot become {event.to_state}")
                attempt += bool(arrow)
                if state in LEASED:
                    by_owner = (event.actor or "").startswith("worker:")
                state = event.to_state
                by_owner = by_owner and state not in _OPEN
            elif state in ENDED and event_type != EventType.OUTPUTS_VERIFIED:
                self.add_violation("I13", f"{number}: {event_type} after the end")
            if event.attempt != attempt:
                self.add_violation("I4", f"{number}: attempt {event.attempt}, not {attempt}")
            if (now <= token) if event_type in _RAISING else (now != token and number > 1):
                self.add_violation("I6", f"{number}: {event_type} has token {now} after {token}")
            self._place(number, op_id, again=op_id == last and event_type != last_type)
            if event_type == EventType.CANCEL_REQUESTED:
                self.asked = min(self.asked, number)
            self.states.append(state)
            self.tokens.append(now)
            self.ended_by_owner.append(by_owner)
            token, last, last_type = now, op_id, event_type

    def _place(self, number: int, op_id: str, *, again: bool) -> None:
        """Note where an op_id is in the log: one event, or several of one commit (`again`)."""
        self.ends.append(number)
        self.signed.append(op_id.startswith("start:"))
        if again:
            self._halves.add(number - 1)
            self.ends[self.places[op_id]] = number
        elif op_id in self.places:
            self.add_violation("I2", f"{number}: {op_id} was applied at {self.places[op_id]} already")
        else:
            self.places[op_id] = number

    def see(self, op: Operation) -> bool:
        """Note that an operation saw the job at a version: after that was made, and before the next was."""
        version = op.version
        if version is None or not 0 <= version <= self.count:
            if not self.broken:
                self.add_violation("I8", f"{op.verb} was shown version {version} of {self.count}")
            return False
        if op.start > self.lower[version + 1]:
            self.lower[version + 1] = op.start
        if op.end < self.upper[version]:
            self.upper[version] = op.end
        if version in self._halves:
            self.add_violation("I8", f"{op.verb} was shown version {version}, half of a commit")
        return True

    def attribute(self, anywhere: Mapping[str | None, int]) -> list[str]:
        """Check that every event has an operation that may have written it, after that operation began.

        `anywhere` has the claims without a response, whose jobs are unknown, and when they began. Return
        those that got this job.
        """
        landed = []
        signed, made, lower = self.signed, self.begun, self.lower
        for op_id, first in self.places.items():
            begun = made[first]
            if signed[first]:
                begun = min(begun, self.started.get(self.tokens[first], NEVER))
            elif op_id in anywhere:
                begun = min(begun, anywhere[op_id])
                landed.append(op_id)
            if begun != NEVER:
                if begun > lower[first]:
                    lower[first] = begun
            elif first in self.refused:
                self.add_violation("I30", f"{op_id} was refused, and is in the log at {first}")
            elif not op_id.startswith("expire:"):
                self.add_violation("I11", f"{op_id} is in the log at {first}, and no operation wrote it")
        return landed

    def order(self) -> None:
        """Check I8: there is an instant for every version, in order, between `lower` and `upper`."""
        lower = list(accumulate(self.lower[: self.count + 1], max))
        upper = list(accumulate(reversed(self.upper), min))[::-1]
        if any(map(gt, lower, upper)):
            version = next(v for v, low in enumerate(lower) if low > upper[v])
            self.add_violation(
                "I8",
                f"version {version} was known at {upper[version]} ns,"
                f" and cannot have been made before {lower[version]} ns",
            )


_RAISING = frozenset({EventType.CLAIMED, EventType.RESTORED})
_ARROWS: dict[tuple[State | None, State | None, str], bool] = {
    (source, target, legal.event): legal.next_attempt for (source, target), legal in LEGAL.items()
}
