"""The record of a job, made again from what never changes about it and its log."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.core.catalogue import EventClass, EventType
from holdfast.core.errors import Corrupt
from holdfast.core.event import Event
from holdfast.core.job import CancelRequest, DeadLetter, Failure, Job, Lease
from holdfast.core.lifecycle.creation import first_record
from holdfast.core.outputs import ValidationResult
from holdfast.core.projection import fold
from holdfast.core.state import ENDED, LEASED, State

T = TypeVar("T")


def remake(
    origin: Job,
    events: Iterable[Event],
    stored: Job | None,
    *,
    published: Mapping[int, int],
    clock_was_set: bool,
) -> Job:
    """Return the record that a job must have: `stored`, if that says the same as the log, since it also has
    liveness data; else the rebuilt one. Of `origin` only what never changes about a job is used.

    `published` has the last sequence that the log has under each token: no sequence is taken twice. With
    `clock_was_set`, the times that this moves are not compared, as the log does not have them. Raise
    `Corrupt` if events are missing.
    """
    log = _chain(origin.job_id, events)
    rebuilt = rebuild(_creation(origin, log), log)
    gaps, illegal = (found := fold(log, origin.job_id)).gaps, found.illegal
    if gaps or illegal:
        missing = f"offset {gaps[0]} is missing" if gaps else f"{illegal[0].event_id} cannot follow"
        raise Corrupt(f"Job {origin.job_id} cannot be made again from its log: {missing}.")
    if stored is not None and _say_the_same(stored, rebuilt, clock_was_set=clock_was_set):
        return stored
    return replace(rebuilt, published=published.get(rebuilt.fencing_token, 0))


def _creation(origin: Job, log: list[Event]) -> Job:
    """Return the record at its first version."""
    first = log[0] if log else None
    if first is None or first.to_state is None:
        raise Corrupt(f"Job {origin.job_id} cannot be made again: its log has no first event.")
    return first_record(
        origin.job_id,
        origin.spec,
        origin.created_at,
        first.to_state,
        first.fencing_token or 0,
        submitted_by=origin.submitted_by,
        correlation_id=origin.correlation_id,
        trace_id=origin.trace_id,
        traceparent=origin.traceparent,
    )


def _say_the_same(stored: Job, rebuilt: Job, *, clock_was_set: bool) -> bool:
    one, other = without_liveness(stored), without_liveness(rebuilt)
    if clock_was_set:
        other = replace(other, ready_at=one.ready_at, started_at=one.started_at, deadline_at=one.deadline_at)
    # 1, 1.0 and True are equal, but not the same result.
    return stored.owner == rebuilt.owner and one == other and _encode(one.result) == _encode(other.result)


def claims_of(log: list[Event]) -> list[Event]:
    """Return the events by which a job was claimed. A job that succeeded as it was created was not."""
    made_by = next((event.op_id for event in log if event.offset == 1), None)
    return [event for event in log if event.event_type == EventType.CLAIMED and event.op_id != made_by]


def without_liveness(job: Job) -> Job:
    """Return the record without what changes without an event."""
    return replace(
        job,
        lease=None,
        heartbeats=0,
        published=0,
        published_bytes=0,
        progress=None,
        checkpoint=None,
        check=None,
        flaws=None,
        updated_at=job.created_at,
    )


def rebuild(created: Job, events: Iterable[Event]) -> Job:
    """Return the record that the log says: `created` is the record at its first version.

    Liveness data is in no event and starts anew. A leased job gets the lease of its spec, counted from its
    last event: its owner keeps it by a heartbeat, or loses it as after any other silence.
    """
    log = _chain(created.job_id, events)
    folded, times = fold(log, created.job_id).job, _Instants(created.ready_at, created.updated_at)
    if folded.state is None:
        return created
    claims = claims_of(log)
    for event in log:
        times.apply(event)
    lease = None
    if folded.owner is not None:
        now, ttl, end = times.updated_at, created.spec.lease, created.deadline_at
        until = now + ttl if end is None else min(now + ttl, end)
        lease = Lease(folded.owner, until, ttl, now, now)
    return replace(
        created,
        state=folded.state,
        updated_at=times.updated_at,
        ready_at=times.ready_at,
        attempt=folded.attempt,
        version=folded.version,
        transition_no=folded.transition_no,
        failures=folded.failures,
        crashes=folded.crashes,
        fencing_token=folded.fencing_token,
        lease=lease,
        claim_op_id=claims[-1].op_id if claims else None,
        cancel=times.cancel,
        started_at=times.started_at,
        ended_at=times.ended_at,
        reason=folded.reason,
        error=_converted(folded.error, Failure),
        dead_letter=_converted(folded.dead_letter, DeadLetter),
        result=folded.result,
        found=_converted(folded.found, ValidationResult),
        handle=_converted(folded.handle, dict[str, str]),
        not_understood=folded.not_understood,
        completed_at=times.completed_at,
        not_started=folded.not_started,
    )


_CHAIN = (EventClass.TRANSITION, EventClass.CONTROL)
_encode = msgspec.json.Encoder().encode
_UNSTAMPED = LEASED | {State.QUEUED, State.SUCCEEDED}


@dataclass(slots=True)
class _Instants:
    """When things happened. A fold never reads them: nothing is decided by instants."""

    ready_at: datetime
    updated_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    completed_at: datetime | None = None
    cancel: CancelRequest | None = None

    def apply(self, event: Event) -> None:
        now, target, actor = event.occurred_at, event.to_state, event.actor or ""
        self.updated_at = now
        if event.event_type == EventType.CANCEL_REQUESTED:
            self.cancel = CancelRequest(actor=actor, requested_at=now, reason=event.reason)
        self.ready_at = _converted(event.attributes.get("ready_at"), datetime) or self.ready_at
        if target is State.ASSIGNED:
            self.started_at = None
        elif target is State.RUNNING:
            self.started_at = now
        elif target in ENDED:
            self.ended_at = now
        if event.from_state in LEASED and target not in _UNSTAMPED and actor.startswith("worker:"):
            self.completed_at = now


def _chain(job_id: str, events: Iterable[Event]) -> list[Event]:
    """Return the registry's own events of the job, in order."""
    return sorted((e for e in events if e.job_id == job_id and e.event_class in _CHAIN), key=_offset)


def _offset(event: Event) -> int:
    return event.offset or 0


def _converted(value: object, kind: type[T]) -> T | None:
    return None if value is None else msgspec.convert(value, kind)
