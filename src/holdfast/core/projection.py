"""The projection: a job's state derived from its events, in any order, with any repeats."""

from collections.abc import Iterable
from operator import attrgetter

import msgspec
from msgspec import Struct

from holdfast.core.catalogue import EventClass, EventType
from holdfast.core.event import Attributes, Event
from holdfast.core.job import Job
from holdfast.core.outputs import to_json_value
from holdfast.core.state import ENDED, LEASED, LEGAL, UNSUCCESSFUL, State


class FoldedJob(Struct, kw_only=True):
    """A job as its log gives it: everything but liveness data, instants and the spec."""

    state: State | None = None
    version: int = 0
    transition_no: int = 0
    attempt: int = 0
    failures: int = 0
    crashes: int = 0
    not_understood: int = 0
    not_started: int = 0
    fencing_token: int = 0
    owner: str | None = None
    lock: str | None = None
    cancel_requested: bool = False
    reason: str | None = None
    error: object = None
    dead_letter: object = None
    result: object = None
    found: object = None
    handle: object = None


class Projection(Struct, frozen=True, kw_only=True):
    """A folded job, and the anomalies in its log."""

    job: FoldedJob
    late: tuple[Event, ...] = ()
    duplicates: int = 0
    gaps: tuple[int, ...] = ()
    illegal: tuple[Event, ...] = ()


def fold(events: Iterable[Event], job_id: str) -> Projection:
    """Derive the job from its log.

    Only the registry's own events count, each once, in the order of their offsets; arrival order,
    timestamps and observability ids are never read. Events of other jobs, or of none, are ignored.
    Events after the end are listed, not applied.
    """
    chain: dict[int, Event] = {}
    others: list[Event] = []
    duplicates = 0
    for event in events:
        if event.job_id != job_id:
            continue
        if event.offset is None or event.event_class not in _FOLDED_CLASSES:
            others.append(event)
        elif event.offset in chain:
            duplicates += 1
        else:
            chain[event.offset] = event
    folded, late, illegal = FoldedJob(), [], []
    for offset in sorted(chain):
        event = chain[offset]
        if folded.state in ENDED and not _follows(folded.state, event):
            late.append(event)
        elif event.event_class is EventClass.TRANSITION and not _follows(folded.state, event):
            illegal.append(event)
        else:
            _apply(folded, event)
    ended_at = max((e.log_id or 0 for e in chain.values() if e.to_state in ENDED), default=0)
    if folded.state in ENDED and ended_at:
        late += [e for e in _once(others) if (e.log_id or 0) > ended_at]
    return Projection(
        job=folded,
        late=tuple(late),
        duplicates=duplicates + len(others) - len(_once(others)),
        gaps=tuple(n for n in range(1, max(chain, default=0) + 1) if n not in chain),
        illegal=tuple(illegal),
    )


_FOLDED_CLASSES = (EventClass.TRANSITION, EventClass.CONTROL)


def _once(events: list[Event]) -> list[Event]:
    return list({event.event_id: event for event in sorted(events, key=_log_id)}.values())


def _log_id(event: Event) -> int:
    return event.log_id or 0


def _follows(state: State | None, event: Event) -> bool:
    if event.event_type == EventType.OUTPUTS_VERIFIED:
        return state is State.PARTIAL_SUCCESS or state in UNSUCCESSFUL
    legal = LEGAL.get((state, event.to_state)) if event.to_state else None
    return legal is not None and legal.event == event.event_type and event.from_state == state


def _apply(folded: FoldedJob, event: Event) -> None:
    attributes = event.attributes
    folded.version = event.offset or 0
    folded.attempt = event.attempt or folded.attempt
    folded.fencing_token = event.fencing_token or folded.fencing_token
    folded.found = attributes.get("found", folded.found)
    if event.event_class is EventClass.CONTROL:
        folded.cancel_requested |= event.event_type == EventType.CANCEL_REQUESTED
        return
    folded.transition_no = event.transition_no or 0
    folded.state = event.to_state
    folded.reason = event.reason
    folded.failures = _number(attributes, "failures", folded.failures)
    folded.crashes = _number(attributes, "crashes", folded.crashes)
    folded.not_understood = _number(attributes, "not_understood", folded.not_understood)
    folded.not_started = _number(attributes, "not_started", folded.not_started)
    if event.event_type == EventType.CLAIMED:
        folded.owner = claimed_by(event)
        folded.lock = _text(attributes, "lock")
    elif event.to_state not in LEASED:
        folded.owner = folded.lock = None
    if event.to_state in (State.SUCCEEDED, State.VALIDATING, State.PARTIAL_SUCCESS):
        folded.error = None
    folded.error = attributes.get("error", folded.error)
    folded.result = attributes.get("result", folded.result)
    folded.dead_letter = attributes.get("dead_letter", folded.dead_letter)
    folded.handle = attributes.get("handle", folded.handle)


def claimed_by(claim: Event) -> str:
    """Return the owner to whom this event gives the job."""
    return _text(claim.attributes, "owner") or (claim.actor or "").partition(":")[2]


def _number(attributes: Attributes, name: str, default: int) -> int:
    value = attributes.get(name, default)
    return value if isinstance(value, int) else default


def _text(attributes: Attributes, name: str) -> str | None:
    value = attributes.get(name)
    return value if isinstance(value, str) else None


def folded_view(job: Job) -> FoldedJob:
    """Return a stored record in the form of a folded job, to compare it with a fold."""
    return FoldedJob(
        state=job.state,
        version=job.version,
        transition_no=job.transition_no,
        attempt=job.attempt,
        failures=job.failures,
        crashes=job.crashes,
        not_understood=job.not_understood,
        not_started=job.not_started,
        fencing_token=job.fencing_token,
        owner=job.owner,
        lock=job.spec.lock if job.leased else None,
        cancel_requested=job.cancel is not None,
        reason=job.reason,
        error=None if job.error is None else msgspec.to_builtins(job.error),
        dead_letter=None if job.dead_letter is None else msgspec.to_builtins(job.dead_letter),
        result=job.result,
        found=to_json_value(job.found),
        handle=job.handle,
    )


class Difference(Struct, frozen=True):
    """One field in which the record and its log disagree."""

    field: str
    stored: object
    derived: object


def differences(job: Job, projection: Projection) -> list[Difference]:
    """Return where the record and its log disagree: empty in a healthy store."""
    stored, derived = folded_view(job), projection.job
    found = [
        Difference(name, getattr(stored, name), getattr(derived, name))
        for name in FoldedJob.__struct_fields__
        if getattr(stored, name) != getattr(derived, name)
    ]
    if projection.gaps:
        found.append(Difference("gaps", (), projection.gaps))
    if projection.illegal:
        ids = tuple(map(attrgetter("event_id"), projection.illegal))
        found.append(Difference("illegal", (), ids))
    return found
