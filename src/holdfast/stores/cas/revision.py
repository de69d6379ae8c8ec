"""A document's next revision: the record, its events and its markers, in one value. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.catalogue import EventType
from holdfast.core.event import Event
from holdfast.core.job import Job, Resource
from holdfast.core.lifecycle import Change
from holdfast.core.state import State
from holdfast.ports import Decide, Decision
from holdfast.stores.cas import keys
from holdfast.stores.cas.documents import Document, Entry, Held
from holdfast.stores.cas.locks import Looked


class Step(Struct, frozen=True):
    """One decision to take on a job; `lock` is the lock of a job that it would make."""

    decide: Decide
    lock: str | None = None


class Played(Struct, frozen=True, kw_only=True):
    """The decisions of all steps. `missing` is a lock that has to be looked at first."""

    record: Job | None = None
    answers: tuple[Decision, ...] = ()
    events: tuple[Event, ...] = ()
    owed: tuple[Event, ...] = ()
    made: tuple[Change, ...] = ()
    taken: Resource | None = None
    missing: str | None = None


def play(
    record: Job | None, steps: Sequence[Step], now: datetime, locks: dict[str, Resource]
) -> Played:
    """Let each step decide on what the one before has left: all of them become one write."""
    answers: list[Decision] = []
    events: list[Event] = []
    owed: list[Event] = []
    made: list[Change] = []
    taken: Resource | None = None
    locks = dict(locks)
    for step in steps:
        key = record.spec.lock if record is not None else step.lock
        if key is not None and key not in locks:
            return Played(missing=key)
        lock = locks[key] if key is not None else None
        decision = step.decide(record, now, lock)
        answers.append(decision)
        if not isinstance(decision, Change) or decision.after is decision.before:
            continue
        record = decision.after
        own = [fact for fact in decision.facts if fact.job_id == record.job_id]
        events += (*decision.events, *decision.published, *own)
        owed += [fact for fact in decision.facts if fact.job_id != record.job_id]
        made += decision.made
        if lock is not None and decision.resource is not None:
            locks[lock.key] = decision.resource
            if decision.resource.token > lock.token:
                taken = decision.resource
    return Played(
        record=record,
        answers=tuple(answers),
        events=tuple(events),
        owed=tuple(owed),
        made=tuple(made),
        taken=taken,
    )


class Taking(Struct, frozen=True):
    """A lock to take, and how it was found."""

    looked: Looked
    taken: Resource


class Proposal(Struct, frozen=True, kw_only=True):
    """What somebody would like to write over a document. `move_due` writes the due marker anew; `pay`
    leaves the document as it is, but for its debts."""

    record: Job | None
    answers: tuple[Decision, ...] = ()
    events: tuple[Event, ...] = ()
    owed: tuple[Event, ...] = ()
    made: tuple[Change, ...] = ()
    taking: Taking | None = None
    move_due: bool = False
    pay: bool = False

    def writes(self, held: Held) -> bool:
        changes = self.record is not held.record or bool(self.events)
        return changes or self.move_due or self.pay


class Kept(Struct, frozen=True):
    """What stays in the outbox, and how far the log has been spilled into segments."""

    entries: tuple[Entry, ...] = ()
    spilled: int = 0


def revise(
    held: Held, proposal: Proposal, kept: Kept, *, parcel: str, nonce: str, order: int
) -> Document:
    """The next document. `order` is for a job that is made by it."""
    old, record = held.document, proposal.record
    serial = held.serial + 1
    logged = old.logged if old else 0
    fresh = tuple(
        Entry(replace(event, log_id=number), parcel)
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
        barred=old.barred if old else (),
        owed=proposal.owed,
        made=proposal.made,
        claimed=(*(old.claimed if old else ()), *_claims(proposal.events)),
    )


def _claims(events: Sequence[Event]) -> Iterator[tuple[str, int]]:
    for event in events:
        if event.event_type == EventType.CLAIMED:
            yield event.op_id or "", event.fencing_token or 0


def _ready(
    old: Document | None, record: Job | None, order: int, serial: int, nonce: str
) -> str | None:
    """The marker of a queued job: the one it has, while its place stays the same."""
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


def _due(
    old: Document | None, record: Job | None, serial: int, nonce: str, *, move: bool
) -> str | None:
    """A marker no later than the job is due. An earlier one will do, so heartbeats write none."""
    if record is None or record.due_at is None:
        return None
    due_at = keys.microseconds(record.due_at)
    known = old.due if old is not None and not move else None
    if known is not None and keys.due_marker(known).due_at <= due_at:
        return known
    return keys.DueMarker(due_at, record.job_id, serial, nonce).key


def new_markers(old: Document | None, new: Document) -> list[str]:
    """What has to be there before the document is: a marker without a job is garbage, a job without
    its marker would be lost."""
    made = [new.ready, new.due]
    known = (old.ready, old.due) if old else ()
    if new.record is not None and (old is None or old.record is None):
        made.append(keys.index(new.order, new.record.job_id))
    return [key for key in made if key is not None and key not in known]


def old_markers(old: Document | None, new: Document | None) -> list[str]:
    """What nobody needs any more, when the one document is there and not the other."""
    if old is None:
        return []
    kept = (new.ready, new.due) if new else ()
    return [key for key in (old.ready, old.due) if key is not None and key not in kept]
