"""The draft of a change: every move looks up the transition table, so no rule can go round it."""

from datetime import datetime
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.catalogue import EventClass, EventType
from holdfast.core.errors import Conflict, Denied, HoldfastError
from holdfast.core.event import Attributes, Event, fact_id
from holdfast.core.job import Job, Resource
from holdfast.core.state import LEASED, LEGAL, State, Transition


class Change(Struct, frozen=True, gc=False):
    """What a decision writes: all of it in one commit, or none.

    `before` is None for a new job. A change whose `after` is its `before` is the answer to a repeat:
    nothing is written. `facts` are events outside the job's version chain. `made` are new jobs that
    come with it; one whose id is taken stays as it is.
    """

    before: Job | None
    after: Job
    events: tuple[Event, ...] = ()
    published: tuple[Event, ...] = ()
    resource: Resource | None = None
    facts: tuple[Event, ...] = ()
    made: tuple["Change", ...] = ()


class Refusal(Struct, frozen=True, gc=False):
    """Why a decision writes nothing (but, perhaps, the fact that it was refused)."""

    error: HoldfastError
    job: Job | None = None
    facts: tuple[Event, ...] = ()


def fact(
    job: Job,
    event_type: EventType,
    now: datetime,
    *key: object,
    actor: str,
    reason: str,
    token: int | None = None,
    attributes: Attributes | None = None,
) -> Event:
    """A fact about a job, beside its transitions and never folded. `key` tells it from others of its type:
    the same fact told twice is one."""
    return Event(
        event_type=event_type,
        event_class=EventClass.FACT,
        occurred_at=now,
        job_id=job.job_id,
        attempt=job.attempt,
        fencing_token=job.fencing_token if token is None else token,
        actor=actor,
        reason=reason,
        correlation_id=job.correlation_id,
        trace_id=job.trace_id,
        given_id=fact_id(job.job_id, event_type, *key),
        attributes=attributes or {},
    )


def same(job: Job) -> Change:
    """The answer to a request that changes nothing."""
    return Change(job, job)


# The few arrows that a process takes all the time: a repeat costs 0.1 us, not 0.4.
@lru_cache(maxsize=1024)
def arrow(source: State | None, target: State, actor: str) -> Transition:
    """The arrow of the table, or raise `Conflict` (there is none) or `Denied` (it is not for you)."""
    legal = LEGAL.get((source, target))
    if legal is None:
        raise Conflict(f"Job is {source}; it cannot become {target}.")
    if actor.partition(":")[0] not in legal.actors:
        raise Denied(f"{actor} may not take a job from {source} to {target}.")
    return legal


_TRANSITION = EventClass.TRANSITION
_NOT_DATED = (State.QUEUED, State.SUCCEEDED)
"""Where an owner's end needs no `completed_at`: the job goes on, or `ended_at` says it."""


class Draft:
    """A job on its way to its next version, with the events that take it there."""

    __slots__ = (
        "_changes",
        "_events",
        "_transition_no",
        "_version",
        "actor",
        "attempt",
        "before",
        "by_owner",
        "job",
        "now",
        "op_id",
        "resource",
        "state",
        "token",
    )

    def __init__(
        self, job: Job, now: datetime, op_id: str, actor: str, resource: Resource | None = None
    ) -> None:
        self.before: Job | None = job
        self.job = job
        self.state = job.state
        self.by_owner = False
        self.now = now
        self.op_id = op_id
        self.actor = actor
        self.resource = resource
        self.attempt = job.attempt
        self.token = job.fencing_token
        self._version = job.version
        self._transition_no = job.transition_no
        self._events: tuple[Event, ...] = ()
        self._changes: dict[str, object] = {}

    @classmethod
    def of(cls, made: Change, *, actor: str, resource: Resource | None) -> "Draft":
        """The draft that goes on from a change which has just made the job."""
        event = made.events[0]
        draft = cls(made.after, event.occurred_at, event.op_id or "", actor, resource)
        draft.before = None
        draft._events = made.events
        return draft

    def move(
        self,
        target: State,
        *,
        reason: str | None = None,
        attributes: Attributes | None = None,
        **changes: object,
    ) -> None:
        """Take one arrow of the table, or raise what `arrow` raises."""
        job, state = self.job, self.state
        legal = arrow(state, target, self.actor)
        if legal.next_attempt:
            self.attempt += 1
        self._version += 1
        self._transition_no += 1
        event = Event(
            legal.event,
            _TRANSITION,
            self.now,
            job.job_id,
            self._version,
            self._transition_no,
            state,
            target,
            self.attempt,
            self.token or None,
            self.op_id,
            self.actor,
            reason,
            attributes or {},
            job.correlation_id,
            job.trace_id,
        )
        self._events += (event,)
        changes["reason"] = reason
        self._changes = self._changes | changes if self._changes else changes
        if state in LEASED and target not in LEASED:
            self._end_lease(target)
        self.state = target

    def note(
        self,
        event_type: EventType,
        *,
        reason: str | None = None,
        attributes: Attributes | None = None,
        **changes: object,
    ) -> None:
        """Record a control fact: it counts in the version, not among the transitions."""
        self._version += 1
        event = Event(
            event_type=event_type,
            event_class=EventClass.CONTROL,
            occurred_at=self.now,
            job_id=self.job.job_id,
            offset=self._version,
            attempt=self.attempt,
            fencing_token=self.token or None,
            op_id=self.op_id,
            actor=self.actor,
            reason=reason,
            attributes=attributes or {},
            correlation_id=self.job.correlation_id,
            trace_id=self.job.trace_id,
        )
        self._events += (event,)
        self._changes |= changes

    def add(self, *, attributes: Attributes, **changes: object) -> None:
        """Say more in the last event, and change more with it."""
        last = self._events[-1]
        said = replace(last, attributes=last.attributes | attributes)
        self._events = (*self._events[:-1], said)
        self._changes |= changes

    def _end_lease(self, target: State) -> None:
        self._changes["lease"] = None
        if self.by_owner and target not in _NOT_DATED:
            self._changes["completed_at"] = self.now
        held = self.resource
        if held is not None and held.holder == self.job.job_id:
            self.resource = Resource(held.key, held.token, None)

    def change(self) -> Change:
        """The finished change."""
        changes = self._changes
        changes["state"] = self.state
        changes["attempt"] = self.attempt
        changes["version"] = self._version
        changes["transition_no"] = self._transition_no
        changes["fencing_token"] = self.token
        changes["updated_at"] = self.now
        after = replace(self.job, **changes)
        return Change(self.before, after, self._events, resource=self.resource)
