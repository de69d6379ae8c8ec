"""The history checker: could what callers were told, and when, have happened in one order?

Every answer names the version of the record, so the order of a job's operations need not be searched
for: the log says which operation made which version. What is left is to find an instant for each version
inside the interval of whoever made it, not before the start of anybody who saw the version before it, and
not after the end of anybody who was told of it. Greedily: one pass up, one pass down.
"""

# ruff: noqa: PLR1730  # a comparison costs a third of a call of min, and there are half a million

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from holdfast.core.event import Event
from holdfast.core.state import ENDED, State
from holdfast.testing.life import NEVER, Life, Operation, Violation

__all__ = ["NEVER", "Entry", "Operation", "Shown", "Violation", "check", "join"]


class Shown(Struct, frozen=True, gc=False, array_like=True):
    """A job as an answer showed it. A refusal shows its version only; 0 when there is no such job."""

    job_id: str
    version: int
    token: int | None = None
    state: State | None = None


class Entry(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One line of a history: a call (`invoke`) or its answer, which share process and number.

    `at_ns` is CLOCK_MONOTONIC, one clock for all processes of a machine: read before the call is sent,
    and after it was answered.
    """

    process: str
    number: int
    at_ns: int
    type: Literal["invoke", "ok", "fail", "info"]
    verb: str | None = None
    op_id: str | None = None
    job_id: str | None = None
    token: int | None = None
    limit: int = 1
    shown: tuple[Shown, ...] = ()
    error: str | None = None


def join(entries: Iterable[Entry]) -> list[Operation]:
    """The operations of a history, whose lines may come from any number of processes.

    A call without an answer is `info`: whoever sent it is gone.
    """
    calls: dict[tuple[str, int], Entry] = {}
    operations: list[Operation] = []
    for entry in entries:
        key = (entry.process, entry.number)
        if entry.type == "invoke":
            calls[key] = entry
        else:
            _add(operations, calls.pop(key), entry.type, entry)
    for call in calls.values():
        gone = Entry(process=call.process, number=call.number, at_ns=NEVER, type="info")
        _add(operations, call, "info", gone)
    return operations


def _add(
    operations: list[Operation], call: Entry, kind: Literal["ok", "fail", "info"], answer: Entry
) -> None:
    """One operation for each job the answer shows; one for what was asked when it shows none."""
    verb, start, end = call.verb or "", call.at_ns, answer.at_ns
    op_id, token, error, limit = call.op_id, call.token, answer.error, call.limit
    for job in answer.shown:
        operations.append(
            Operation(
                verb,
                kind,
                start,
                end,
                op_id,
                job.job_id,
                token,
                job.version,
                job.token,
                job.state,
                error,
                limit,
            )
        )
    if not answer.shown:
        operations.append(
            Operation(verb, kind, start, end, op_id, call.job_id, token, error=error, limit=limit)
        )


def check(operations: Sequence[Operation], logs: Mapping[str, Sequence[Event]]) -> list[Violation]:
    """Every way in which these operations and these logs (`Registry.history`, by job) disagree.

    The history is complete: an event that no operation in it can have written is a violation. Time is
    linear in operations and events.
    """
    by_job: dict[str, list[Operation]] = {job_id: [] for job_id in logs}
    lost: dict[str | None, Operation] = {}
    for op in operations:
        if op.job_id is not None:
            by_job.setdefault(op.job_id, []).append(op)
        elif op.answer == "info" and (op.op_id not in lost or op.start < lost[op.op_id].start):
            lost[op.op_id] = op
    anywhere = {op_id: op.start for op_id, op in lost.items()}
    found: list[Violation] = []
    got: dict[str, list[str]] = {}
    for job_id, mine in by_job.items():
        for op_id in _check_job(Life(job_id, logs.get(job_id, ()), found), mine, anywhere):
            got.setdefault(op_id, []).append(job_id)
    for op_id, jobs in got.items():
        if len(jobs) > lost[op_id].limit:
            details = f"claim {op_id} of {lost[op_id].limit} got {len(jobs)}: {', '.join(jobs)}"
            found.append(Violation(jobs[-1], "I29", details))
    return found


def _check_job(
    life: Life, operations: list[Operation], anywhere: Mapping[str | None, int]
) -> list[str]:
    """One job, from its log to its order; of the claims whose answer was lost, those that got it."""
    late = []
    for op in operations:
        if op.answer == "ok":
            if _ANSWERED[op.verb](life, op):
                late.append(op)
        elif op.answer == "fail":
            _refused(life, op)
        else:
            _unknown(life, op)
    if late:
        sent = Counter([op.op_id for op in operations])
        _check_repeats(life, late, [op.op_id in anywhere or sent[op.op_id] > 1 for op in late])
    landed = life.attribute(anywhere)
    life.order()
    return landed


def _made(life: Life, op: Operation) -> bool:
    """An answered mutation is in the log at the version of its answer; True if at another one."""
    first = life.places.get(op.op_id or "")
    if first is None:
        _idle(life, op)
        return False
    last = life.ends[first]
    if op.start < life.begun[first]:
        life.begun[first] = op.start
    if op.end < life.upper[last]:
        life.upper[last] = op.end
    if op.token is not None and not life.holds(op.token, first - 1):
        life.blame("I9", f"{op.verb} made {first} under token {op.token}: not in force")
    if op.version != last:
        return True
    if op.seen_token != life.tokens[last] or op.state is not life.states[last]:
        life.blame_shown(op, last)
    return False


def _granted(life: Life, op: Operation) -> bool:
    """A grant: its token belongs to this claim alone."""
    other = life.granted.setdefault(op.seen_token, op.op_id)
    if other != op.op_id:
        life.blame("I7", f"token {op.seen_token} was granted to {other} and to {op.op_id}")
    return _made(life, op)


def _idle(life: Life, op: Operation) -> None:
    """An answered mutation that is not in the log: right only if there was nothing left to do."""
    if life.broken:
        return
    version = op.version or 0
    if 0 < version <= life.count:
        state = life.states[version]
        if op.verb == "aggregate" and state is State.AGGREGATING:
            _alive(life, op)
            return
        if op.verb == "cancel" and life.asked <= version and state not in ENDED:
            _shown(life, op)
            return
        if op.verb in _ENDS and life.holds(op.token, version - 1) > life.holds(op.token, version):
            _repeated(life, op, version)
            return
    life.blame(_LOST.get(op.verb, "I30"), f"{op.verb} {op.op_id} was answered, and is not there")


def _repeated(life: Life, op: Operation, version: int) -> None:
    """Its owner had said so before, under another op_id: it is shown the job as it was then, and there may
    be newer versions by now."""
    life.upper[version] = min(life.upper[version], op.end)
    if op.state is not life.states[version] or op.seen_token != life.tokens[version]:
        life.blame_shown(op, version)


def _alive(life: Life, op: Operation) -> bool:
    """A sign of life: accepted only under the token in force at the version it was shown."""
    if _shown(life, op):
        version = op.version or 0
        late = op.verb == "publish" and life.late(op.token, version)
        if not late and not life.holds(op.token, version):
            life.blame("I9", f"{op.verb} at {version} under token {op.token}: not in force")
        if life.signed[version] and op.start < life.begun[version]:
            life.begun[version] = op.start
    return False


def _read(life: Life, op: Operation) -> bool:
    _shown(life, op)
    return False


def _shown(life: Life, op: Operation) -> bool:
    """Whether the log has the version that was shown; if so, the rest must be what it says."""
    if not life.see(op):
        return False
    version = op.version or 0
    if op.state is not life.states[version] or op.seen_token != life.tokens[version]:
        life.blame_shown(op, version)
    return True


def _refused(life: Life, op: Operation) -> None:
    """A definite refusal left nothing in the log, and an owner in force is not taken for a stale one.

    A heartbeat alone may be fenced under its own token: past the job's deadline.
    """
    first = life.places.get(op.op_id or "")
    if first is not None:
        life.refused.add(first)
    if op.version is None or not life.see(op):
        return
    if first is not None and first <= op.version and op.verb in _REPEATABLE:
        life.blame("I30", f"{op.verb} was refused at {op.version}, and applied at {first} before")
    fenced = op.error == "Fenced" and op.verb != "heartbeat"
    if fenced and life.holds(op.token, op.version):
        life.blame("I9", f"{op.verb} was fenced at {op.version} under the token in force")


def _unknown(life: Life, op: Operation) -> None:
    """Whether it was applied, and when, is for the log to say; it cannot be before it began."""
    if op.op_id is None:
        life.started[op.token] = min(op.start, life.started.get(op.token, NEVER))
        return
    first = life.places.get(op.op_id)
    if first is not None:
        life.begun[first] = min(life.begun[first], op.start)


def _check_repeats(life: Life, late: list[Operation], repeated: list[bool]) -> None:
    """A claim or an enqueue that was sent again is shown the job as it is by now; nothing else is."""
    for op, again in zip(late, repeated, strict=True):
        last = life.ends[life.places[op.op_id or ""]]
        if again and op.verb in ("claim", "enqueue") and (op.version or 0) > last:
            _shown(life, op)
        else:
            life.blame("I30", f"{op.verb} {op.op_id} was answered at {op.version}: it is at {last}")


_REPEATABLE = frozenset({"aggregate", "complete", "release", "cancel"})
"""Verbs whose repeat always gets the original answer: an enqueue may have asked for something else, and the
grant of a claim may be gone."""
_ENDS = frozenset({"complete", "release"})
_LOST = {"enqueue": "I11", "complete": "I13"}
_ANSWERED: dict[str, Callable[[Life, Operation], bool]] = {
    "enqueue": _made,
    "claim": _granted,
    "heartbeat": _alive,
    "publish": _alive,
    "aggregate": _made,
    "complete": _made,
    "release": _made,
    "cancel": _made,
    "get": _read,
}
