"""Faults to plant into a recorded history: each a thing a broken registry would have told or written.

A fault takes the operations and the log of one job and gives them back with the fault in a random place,
or raises `NoPlace`. Everything else stays as it was recorded, so that only the rule which forbids the fault
can find it.
"""

from collections.abc import Callable, Mapping
from functools import partial

from msgspec.structs import replace

from holdfast.core.catalogue import EventClass, EventType
from holdfast.core.state import ENDED, LEASED, State
from holdfast.testing.history import NEVER, Operation
from verify.history_part import History, NoPlace, Part

PLANTED = "planted"


def double_grant(part: Part) -> History:
    claim = part.pick("claim")
    return [*part.operations, replace(claim, op_id=PLANTED)], part.log


def stale_complete(part: Part) -> History:
    op = part.pick("complete", "release", where=lambda op: (op.token or 0) > 1)
    return part.changed(op, token=(op.token or 0) - 1)


def stale_heartbeat(part: Part) -> History:
    claim = part.pick("claim", where=lambda op: (op.seen_token or 0) > 1)
    beat = replace(claim, verb="heartbeat", op_id=None, token=(claim.seen_token or 0) - 1)
    return [*part.operations, beat], part.log


def stale_read(part: Part) -> History:
    op = part.pick(where=lambda op: (op.version or 0) > 1)
    whole = [v for v in range(1, op.version or 0) if part.log[v].op_id != part.log[v - 1].op_id]
    return part.with_read(part.choose(whole), op.end + 1, op.end + 2)


def vanished(part: Part) -> History:
    end = part.pick("enqueue").end
    read = Operation("status", "fail", end + 1, end + 2, job_id=part.log[0].job_id, version=0)
    return [*part.operations, read], part.log


def back_in_time(part: Part) -> History:
    early = part.pick()
    late = part.pick(where=lambda op: op.start > early.end and (op.version or 0) > (early.version or 0))
    swapped = [
        replace(early, start=late.start, end=late.end),
        replace(late, start=early.start, end=early.end),
    ]
    return part.without(early, late) + swapped, part.log


def known_too_early(part: Part) -> History:
    op = part.pick("claim", "release", "complete")
    first = part.first(op)
    known = [other.end for other in part.without(op) if (other.version or 0) >= first]
    if not known:
        raise NoPlace
    return part.changed(op, start=min(known) + 1, end=max(op.end, min(known) + 1))


def half_a_commit(part: Part) -> History:
    op = part.pick("complete", "aggregate", where=lambda op: 0 < part.first(op) < (op.version or 0))
    return part.with_read(part.first(op), op.start, op.end)


def wrong_state(part: Part) -> History:
    op = part.pick()
    return part.changed(op, state=part.choose([state for state in State if state is not op.state]))


def wrong_version(part: Part) -> History:
    op = part.pick("claim", "release", "complete", where=lambda op: op.version != len(part.log))
    return part.changed(op, version=(op.version or 0) + 1)


def lost_enqueue(part: Part) -> History:
    return [part.pick("enqueue")], []


def lost_complete(part: Part) -> History:
    op = part.pick("complete")
    first = part.first(op)
    before = [other for other in part.operations if (other.version or 0) < first]
    return [*before, op], part.log[: first - 1]


def applied_refusal(part: Part) -> History:
    op = part.pick("release", "complete", "aggregate", "cancel", where=lambda op: part.first(op) > 0)
    return part.changed(op, answer="fail", error="Conflict", version=None, state=None)


def refused_repeat(part: Part) -> History:
    """The first answer was lost; the repeat saw the job as it had become, and was refused."""
    op = part.pick("release", "complete", where=lambda op: part.first(op) > 0)
    repeat = replace(op, answer="fail", error="Fenced")
    return [*part.without(op), replace(op, answer="info", end=NEVER), repeat], part.log


def hidden_grant(part: Part) -> History:
    op = part.pick("claim")
    return part.changed(op, job_id=None, version=None, seen_token=None, state=None)


def twice_applied(part: Part, answer: str = "ok") -> History:
    """Two releases become one that was sent again, and applied again."""
    op = part.pick("release")
    other = part.pick("release", where=lambda other: other is not op)
    log = [replace(e, op_id=op.op_id) if e.op_id == other.op_id else e for e in part.log]
    sent = [replace(op, answer=answer), replace(other, op_id=op.op_id, answer=answer)]
    return part.without(op, other) + sent, log


def event_of_nobody(part: Part) -> History:
    op = part.pick("release", "complete", "claim")
    log = [replace(e, op_id=PLANTED) if e.op_id == op.op_id else e for e in part.log]
    return part.without(op), log


def gap(part: Part) -> History:
    missing = part.choose(range(1, len(part.log) - 1))
    return part.operations, part.log[:missing] + part.log[missing + 1 :]


def reused_token(part: Part) -> History:
    token = part.pick("claim", where=lambda op: (op.seen_token or 0) > 1).seen_token or 0
    return _renumbered(part, token, token - 1)


def fallen_token(part: Part) -> History:
    token = part.pick("claim", where=lambda op: (op.seen_token or 0) > 1).seen_token or 0
    return _renumbered(part, token, 0)


def _renumbered(part: Part, old: int, new: int) -> History:
    """A token becomes another wherever it occurs."""

    def changed(value: int | None) -> int | None:
        return new if value == old else value

    log = [replace(event, fencing_token=changed(event.fencing_token)) for event in part.log]
    operations = [
        replace(op, token=changed(op.token), seen_token=changed(op.seen_token)) for op in part.operations
    ]
    return operations, log


def wrong_token(part: Part) -> History:
    claim = part.pick("claim")
    return part.changed(claim, seen_token=max(part.tokens) + 1)


def wrong_attempt(part: Part) -> History:
    place = part.choose(range(len(part.log)))
    event = replace(part.log[place], attempt=(part.log[place].attempt or 0) + 1)
    return part.operations, [*part.log[:place], event, *part.log[place + 1 :]]


def version_of_nothing(part: Part) -> History:
    op = part.pick("status")
    return part.changed(op, version=len(part.log) + 1)


def claim_after_the_end(part: Part) -> History:
    changes = {"event_type": EventType.CLAIMED, "to_state": State.ASSIGNED}
    return _after_the_end(part, "claim", State.ASSIGNED, 1, changes)


def cancel_after_the_end(part: Part) -> History:
    changes = {
        "event_type": EventType.CANCEL_REQUESTED,
        "event_class": EventClass.CONTROL,
        "to_state": None,
    }
    return _after_the_end(part, "cancel", part.states[-1], 0, changes)


def _after_the_end(
    part: Part, verb: str, state: State | None, grants: int, changes: Mapping[str, object]
) -> History:
    """The history goes on with an operation that is right in all but that the job had ended."""
    if part.states[-1] not in ENDED:
        raise NoPlace
    number, token = len(part.log) + 1, part.tokens[-1] + grants
    more = {"offset": number, "from_state": part.states[-1], "fencing_token": token}
    event = replace(part.log[-1], op_id=PLANTED, **more, **changes)
    start = max(op.start for op in part.operations) + 1
    op = Operation(verb, "ok", start, start + 1, PLANTED, event.job_id, None, number)
    op.seen_token, op.state = token, state
    return [*part.operations, op], [*part.log, event]


def fenced_owner(part: Part) -> History:
    op = part.pick("heartbeat", "publish", where=lambda op: op.state in LEASED)
    refusal = replace(op, verb="release", op_id=PLANTED, answer="fail", error="Fenced")
    return [*part.operations, refusal], part.log


FAULTS: dict[str, tuple[Callable[[Part], History], str]] = {
    "two claimers were granted one token": (double_grant, "I7"),
    "a complete or release under an older token was accepted": (stale_complete, "I9"),
    "a heartbeat was accepted after a newer claim": (stale_heartbeat, "I9"),
    "a read showed an older version than an answer before it": (stale_read, "I8"),
    "a job was not found after its enqueue was answered": (vanished, "I8"),
    "the versions of two answers went back in real time": (back_in_time, "I8"),
    "a version was known before its maker had begun": (known_too_early, "I8"),
    "a read showed half of a commit": (half_a_commit, "I8"),
    "an answer showed a state that the log does not have": (wrong_state, "I5"),
    "an answer named another version than the log": (wrong_version, "I30"),
    "an acknowledged enqueue is missing": (lost_enqueue, "I11"),
    "an acknowledged complete is missing": (lost_complete, "I13"),
    "a refused operation is in the log": (applied_refusal, "I30"),
    "a repeat of an applied operation was refused": (refused_repeat, "I30"),
    "a claim was told of nothing and got the job": (hidden_grant, "I11"),
    "one op_id is in the log twice, both acknowledged": (twice_applied, "I2"),
    "one op_id is in the log twice, both answers lost": (
        partial(twice_applied, answer="info"),
        "I2",
    ),
    "an event is in the log that nobody asked for": (event_of_nobody, "I11"),
    "the log has a gap": (gap, "I1"),
    "a token was granted a second time": (reused_token, "I6"),
    "a token fell": (fallen_token, "I6"),
    "a claimer was told another token than the log": (wrong_token, "I5"),
    "an event counts an attempt that nobody made": (wrong_attempt, "I4"),
    "an answer showed a version that the log does not have": (version_of_nothing, "I8"),
    "a job was claimed after its end": (claim_after_the_end, "I3"),
    "a job was asked to stop after its end": (cancel_after_the_end, "I13"),
    "an owner was fenced under the token in force": (fenced_owner, "I9"),
}
"""By what they do: each with the invariant that must name it."""
