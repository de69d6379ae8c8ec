"""The record of a job, made again from the record of its creation and its log."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.core.catalogue import EventClass, EventType
from holdfast.core.event import Event
from holdfast.core.job import CancelRequest, DeadLetter, Failure, Job, Lease
from holdfast.core.outputs import ValidationResult
from holdfast.core.projection import fold
from holdfast.core.state import ENDED, LEASED, State

T = TypeVar("T")


def rebuild(created: Job, events: Iterable[Event]) -> Job:
    """Return the record that a job must have: `created` is the record at its first version.

    Liveness data is in no event and starts anew. A leased job gets the lease of its spec, counted from its
    last event: its owner keeps it by a heartbeat, or loses it as after any other silence.
    """
    log = list(events)
    folded, times = fold(log, created.job_id).job, _Instants(created.ready_at, created.updated_at)
    if folded.state is None:
        return created
    for event in sorted(log, key=_offset):
        if event.job_id == created.job_id and event.event_class in _CHAIN:
            times.apply(event)
    lease = None
    if folded.owner is not None:
        now, ttl = times.updated_at, created.spec.lease
        lease = Lease(folded.owner, now + ttl, ttl, now, now)
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
        claim_op_id=times.claim_op_id,
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
_UNSTAMPED = LEASED | {State.QUEUED, State.SUCCEEDED}


@dataclass(slots=True)
class _Instants:
    """When things happened, and by which op. A fold never reads them: nothing is decided by instants."""

    ready_at: datetime
    updated_at: datetime
    created_by: str | None = None
    claim_op_id: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    completed_at: datetime | None = None
    cancel: CancelRequest | None = None

    def apply(self, event: Event) -> None:
        now, target, actor = event.occurred_at, event.to_state, event.actor or ""
        self.updated_at = now
        if event.event_type == EventType.CANCEL_REQUESTED:
            self.cancel = CancelRequest(actor=actor, requested_at=now, reason=event.reason)
        if event.offset == 1:
            self.created_by = event.op_id
        if target is None:
            return
        self.ready_at = _converted(event.attributes.get("ready_at"), datetime) or self.ready_at
        if target is State.ASSIGNED:
            self.started_at = None
            if event.op_id != self.created_by:  # else nobody claimed it: its outputs existed before
                self.claim_op_id = event.op_id
        elif target is State.RUNNING:
            self.started_at = now
        elif target in ENDED:
            self.ended_at = now
        if event.from_state in LEASED and target not in _UNSTAMPED and actor.startswith("worker:"):
            self.completed_at = now


def _offset(event: Event) -> int:
    return event.offset or 0


def _converted(value: object, kind: type[T]) -> T | None:
    return None if value is None else msgspec.convert(value, kind)
