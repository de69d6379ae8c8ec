"""The one state machine: states, their ranks, and every legal transition with who may request it."""

from enum import StrEnum

from msgspec import Struct

from holdfast.core.catalogue import EventType


class State(StrEnum):
    """The state of a job. Inside one attempt the rank only grows."""

    PENDING = "pending"
    SUBMITTING = "submitting"
    QUEUED = "queued"
    ASSIGNED = "assigned"
    RUNNING = "running"
    AGGREGATING = "aggregating"
    VALIDATING = "validating"
    PARTIAL_SUCCESS = "partial_success"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    DEAD_LETTERED = "dead_lettered"

    # The enum's own hash is a Python function; states are looked up several times in every decision.
    __hash__ = str.__hash__


S = State

RANK: dict[State, int] = {
    S.PENDING: 0,
    S.SUBMITTING: 1,
    S.QUEUED: 2,
    S.ASSIGNED: 3,
    S.RUNNING: 4,
    S.AGGREGATING: 5,
    S.VALIDATING: 6,
    S.PARTIAL_SUCCESS: 7,
    S.SUCCEEDED: 8,
    S.FAILED: 8,
    S.CANCELLED: 8,
    S.TIMEOUT: 8,
    S.DEAD_LETTERED: 8,
}

LEASED = frozenset({S.ASSIGNED, S.RUNNING, S.AGGREGATING})
ENDED = frozenset({S.PARTIAL_SUCCESS, S.SUCCEEDED, S.FAILED, S.CANCELLED, S.TIMEOUT, S.DEAD_LETTERED})
UNSUCCESSFUL = frozenset({S.FAILED, S.CANCELLED, S.TIMEOUT, S.DEAD_LETTERED})
"""The ended states that no verdict on outputs changes: the result of a validation is recorded beside
them."""


class Transition(Struct, frozen=True):
    """One legal transition. `sources` holds None where the job does not exist yet."""

    number: str
    sources: tuple[State | None, ...]
    target: State
    event: EventType
    actors: frozenset[str]
    next_attempt: bool = False
    note: str = ""


def _by(*kinds: str) -> frozenset[str]:
    return frozenset(kinds)


_ANYONE = _by("user", "worker", "system", "sync", "validator")
_SUBMITTER = _by("user", "worker", "system", "sync")
_HOLDER = _by("worker", "sync", "validator")
_CLOSER = _by("worker", "sync", "system")

TRANSITIONS: tuple[Transition, ...] = (
    Transition("T0", (None,), S.PENDING, EventType.REGISTERED, _SUBMITTER),
    Transition("T1", (None,), S.QUEUED, EventType.QUEUED, _ANYONE),
    Transition("T2", (S.PENDING,), S.SUBMITTING, EventType.SUBMITTING, _SUBMITTER),
    Transition("T3", (S.SUBMITTING,), S.QUEUED, EventType.QUEUED, _SUBMITTER),
    Transition("T4", (S.SUBMITTING,), S.FAILED, EventType.FAILED, _SUBMITTER),
    Transition(
        "T5",
        (S.PENDING, S.QUEUED),
        S.CANCELLED,
        EventType.CANCELLED,
        _SUBMITTER,
        note="a cancel during submitting waits for T3",
    ),
    Transition("T6", (S.QUEUED,), S.ASSIGNED, EventType.CLAIMED, _HOLDER, note="fencing token + 1"),
    Transition("T7", (S.ASSIGNED,), S.RUNNING, EventType.STARTED, _HOLDER, note="first heartbeat"),
    Transition("T8", (S.RUNNING,), S.AGGREGATING, EventType.AGGREGATING, _HOLDER),
    Transition(
        "T9",
        (S.RUNNING, S.AGGREGATING),
        S.SUCCEEDED,
        EventType.SUCCEEDED,
        _HOLDER,
        note="no outputs promised",
    ),
    Transition(
        "T10",
        (S.RUNNING, S.AGGREGATING),
        S.VALIDATING,
        EventType.VALIDATING,
        _HOLDER,
        note="outputs promised; the lease ends",
    ),
    Transition("T11", (S.VALIDATING,), S.SUCCEEDED, EventType.SUCCEEDED, _by("validator", "user")),
    Transition(
        "T12",
        (S.VALIDATING,),
        S.PARTIAL_SUCCESS,
        EventType.PARTIALLY_SUCCEEDED,
        _by("validator"),
    ),
    Transition("T13", (S.VALIDATING,), S.FAILED, EventType.FAILED, _by("validator", "user")),
    Transition(
        "T14",
        (S.PARTIAL_SUCCESS,),
        S.SUCCEEDED,
        EventType.SUCCEEDED,
        _by("validator"),
        note="the only way out of an ended state",
    ),
    Transition("T15", (S.ASSIGNED, S.RUNNING, S.AGGREGATING), S.FAILED, EventType.FAILED, _CLOSER),
    Transition(
        "T16",
        (S.ASSIGNED, S.RUNNING, S.AGGREGATING),
        S.QUEUED,
        EventType.REQUEUED,
        _CLOSER,
        next_attempt=True,
        note="closes this attempt and opens the next",
    ),
    Transition(
        "T17",
        (S.QUEUED, S.ASSIGNED, S.RUNNING, S.AGGREGATING),
        S.DEAD_LETTERED,
        EventType.DEAD_LETTERED,
        _CLOSER,
    ),
    Transition(
        "T18",
        (S.QUEUED, S.ASSIGNED, S.RUNNING, S.AGGREGATING),
        S.TIMEOUT,
        EventType.TIMED_OUT,
        _CLOSER,
    ),
    Transition(
        "T19",
        (S.ASSIGNED, S.RUNNING, S.AGGREGATING),
        S.CANCELLED,
        EventType.CANCELLED,
        _by("user", "worker", "sync", "system"),
    ),
)

# T5 and T19 share a target, T15 and T4 and T13 too: the source distinguishes them, so one key is enough.
LEGAL: dict[tuple[State | None, State], Transition] = {
    (source, transition.target): transition for transition in TRANSITIONS for source in transition.sources
}


def advances(before: tuple[int, State], after: tuple[int, State]) -> bool:
    """Return whether (attempt, rank) strictly increases: no job ever moves back."""
    return (before[0], RANK[before[1]]) < (after[0], RANK[after[1]])
