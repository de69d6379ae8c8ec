"""The next revision of a document: its record, events and markers, in one value. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.catalogue import EventType
from holdfast.core.event import Event
from holdfast.core.job import Job, ResourceLock
from holdfast.core.lifecycle import Change
from holdfast.core.state import State
from holdfast.ports import Decide, Decision
from holdfast.stores.cas import keys
from holdfast.stores.cas.documents import Document, LoadedDocument, OutboxEntry
from holdfast.stores.cas.locks import LockState


class DecidedStep(Struct, frozen=True):
    """One decision to make on a job; `lock` is that of the job if the decision creates it."""

    decide: Decide
    lock: str | None = None


class DecidedSteps(Struct, frozen=True, kw_only=True):
    """The decisions of all steps, and what follows from them. `missing` is a lock that must be read
    first."""

    record: Job | None = None
    answers: tuple[Decision, ...] = ()
    events: tuple[Event, ...] = ()
    pending_facts: tuple[Event, ...] = ()
    made: tuple[Change, ...] = ()
    taken: ResourceLock | None = None
    missing: str | None = None


def decide_steps(
    record: Job | None, steps: Sequence[DecidedStep], now: datetime, locks: dict[str, ResourceLock]
) -> DecidedSteps:
    """Let each step decide on the result of the one before: all of them become one write."""
    answers: list[Decision] = []
    events: list[Event] = []
    pending_facts: list[Event] = []
    made: list[Change] = []
    taken: ResourceLock | None = None
    locks = dict(locks)
    for step in steps:
        key = record.spec.lock if record is not None else step.lock
        if key is not None and key not in locks:
            return DecidedSteps(missing=key)
        lock = locks[key] if key is not None else None
        decision = step.decide(record, now, lock)
        answers.append(decision)
        if not isinstance(decision, Change) or decision.after is decision.before:
            continue
        record = decision.after
        own = [fact for fact in decision.facts if fact.job_id == record.job_id]
        events += (*decision.events, *decision.published, *own)
        pending_facts += [fact for fact in decision.facts if fact.job_id != record.job_id]
        made += decision.made
        if lock is not None and decision.resource is not None:
            locks[lock.key] = decision.resource
            if decision.resource.token > lock.token:
                taken = decision.resource
    return DecidedSteps(
        record=record,
        answers=tuple(answers),
        events=tuple(events),
        pending_facts=tuple(pending_facts),
        made=tuple(made),
        taken=taken,
    )


class LockToTake(Struct, frozen=True):
    """A lock to take, and as it was read."""

    state: LockState
    taken: ResourceLock


class Proposal(Struct, frozen=True, kw_only=True):
    """What a caller wants to write over a document. `move_due` writes the due marker anew; `clear_pending`
    leaves the document as it is, without its pending facts and jobs."""

    record: Job | None
    answers: tuple[Decision, ...] = ()
    events: tuple[Event, ...] = ()
    pending_facts: tuple[Event, ...] = ()
    made: tuple[Change, ...] = ()
    taking: LockToTake | None = None
    move_due: bool = False
    clear_pending: bool = False

    def writes(self, loaded: LoadedDocument) -> bool:
        changes = self.record is not loaded.record or bool(self.events)
        return changes or self.move_due or self.clear_pending


class RemainingOutbox(Struct, frozen=True):
    """The entries that stay in the outbox, and up to which number the log is in segments."""

    entries: tuple[OutboxEntry, ...] = ()
    spilled: int = 0


def revise(
    loaded: LoadedDocument,
    proposal: Proposal,
    kept: RemainingOutbox,
    *,
    tag: str,
    nonce: str,
    order: int,
) -> Document:
    """Return the next document. `order` is used for a job that it creates."""
    old, record = loaded.document, proposal.record
    serial = loaded.serial + 1
    logged = old.logged if old else 0
    fresh = tuple(
        OutboxEntry(replace(event, log_id=number), tag)
        for number, event in enumerate(proposal.events, logged + 1)
    )
    if old is not None and old.record is not None:
        order = old.order
    return Document(
        serial=serial,
        nonce=nonce,
        record=record,
        order=order if record is not None else 0,
        outbox=kept.entries + fresh,
        logged=logged + len(fresh),
        spilled=kept.spilled,
        ready=_ready(old, record, order, serial, nonce),
        due=_due(old, record, serial, nonce, move=proposal.move_due),
        closed_tags=old.closed_tags if old else (),
        pending_facts=proposal.pending_facts,
        made=proposal.made,
        claimed=(*(old.claimed if old else ()), *_claims(proposal.events)),
    )


def _claims(events: Sequence[Event]) -> Iterator[tuple[str, int]]:
    for event in events:
        if event.event_type == EventType.CLAIMED:
            yield event.op_id or "", event.fencing_token or 0


def _ready(old: Document | None, record: Job | None, order: int, serial: int, nonce: str) -> str | None:
    """Return the marker of a queued job: the one it has, as long as its place is the same."""
    if record is None or record.state is not State.QUEUED:
        return None
    wanted = keys.ReadyMarker(
        queue=record.spec.queue,
        priority=record.spec.priority,
        ready_at=keys.microseconds(record.ready_at),
        order=order,
        job_id=record.job_id,
        serial=serial,
        nonce=nonce,
    )
    known = old.ready if old is not None else None
    if known is not None and keys.ready_marker(known).place == wanted.place:
        return known
    return wanted.key


def _due(old: Document | None, record: Job | None, serial: int, nonce: str, *, move: bool) -> str | None:
    """Return a marker no later than the job is due. An earlier one is enough, so heartbeats write none."""
    if record is None or record.due_at is None:
        return None
    due_at = keys.microseconds(record.due_at)
    known = old.due if old is not None and not move else None
    if known is not None and keys.due_marker(known).due_at <= due_at:
        return known
    return keys.DueMarker(due_at, record.job_id, serial, nonce).key


def new_markers(old: Document | None, new: Document) -> list[str]:
    """Return the markers that must exist before the document is written: a marker without a job is garbage,
    a job without its marker would be lost."""
    made = [new.ready, new.due]
    known = (old.ready, old.due) if old else ()
    if new.record is not None and (old is None or old.record is None):
        made.append(keys.index(new.order, new.record.job_id))
    return [key for key in made if key is not None and key not in known]


def old_markers(old: Document | None, new: Document | None) -> list[str]:
    """Return the markers of `old` that `new` does not use."""
    if old is None:
        return []
    kept = (new.ready, new.due) if new else ()
    return [key for key in (old.ready, old.due) if key is not None and key not in kept]
