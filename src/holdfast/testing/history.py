"""The history checker: is there one order of the operations that explains every response and its time?

Every response names the version of the record, so the order of a job's operations need not be searched
for: the log says which operation made which version. What is left is to find an instant for each version
inside the interval of the operation that made it, not before the start of an operation that saw the version
before it, and not after the end of an operation that saw it. Greedily: one pass up, one pass down.
"""

# ruff: noqa: PLR1730  # a comparison costs a third of a call of min, and there are half a million

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from holdfast.core.event import Event
from holdfast.core.state import ENDED, State
from holdfast.testing.job_timeline import NEVER, JobTimeline, Operation, Violation

__all__ = ["NEVER", "Entry", "Operation", "Shown", "Violation", "check", "join"]


class Shown(Struct, frozen=True, gc=False, array_like=True):
    """A job as a response showed it. A refusal shows only its version; 0 if there is no such job."""

    job_id: str
    version: int
    token: int | None = None
    state: State | None = None


class Entry(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One line of a history: a call (`invoke`) or its response, which share process and number.

    `at_ns` is CLOCK_MONOTONIC, one clock for all processes of a machine: read before the call is sent,
    and after its response.
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
    """Return the operations of a history, whose lines may come from any number of processes.

    A call without a response is `info`: its process has ended.
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
    """Add one operation for each job that the response shows; one for the call if it shows none."""
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
    """Return every contradiction between these operations and these logs (`Registry.history`, by job).

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
        for op_id in _check_job(JobTimeline(job_id, logs.get(job_id, ()), found), mine, anywhere):
            got.setdefault(op_id, []).append(job_id)
    for op_id, jobs in got.items():
        if len(jobs) > lost[op_id].limit:
            details = f"claim {op_id} of {lost[op_id].limit} got {len(jobs)}: {', '.join(jobs)}"
            found.append(Violation(jobs[-1], "I29", details))
    return found


def _check_job(
    timeline: JobTimeline, operations: list[Operation], anywhere: Mapping[str | None, int]
) -> list[str]:
    """Check one job; return the op_ids of the claims without a response that got it."""
    late = []
    for op in operations:
        if op.answer == "ok":
            if _answered(timeline, op):
                late.append(op)
        elif op.answer == "fail":
            _refused(timeline, op)
        else:
            _unknown(timeline, op)
    if late:
        sent = Counter([op.op_id for op in operations])
        _check_repeats(timeline, late, [op.op_id in anywhere or sent[op.op_id] > 1 for op in late])
    landed = timeline.attribute(anywhere)
    timeline.order()
    return landed


def _answered(timeline: JobTimeline, op: Operation) -> bool:
    """Check an operation by what it is: a claim, another mutation (it has an op_id), a call of an owner,
    or a read; True if a mutation was answered at another version than it made."""
    if op.verb in _CLAIMS:
        return _granted(timeline, op)
    if op.op_id is not None:
        return _made(timeline, op)
    return _alive(timeline, op) if op.token is not None else _read(timeline, op)


def _made(timeline: JobTimeline, op: Operation) -> bool:
    """Check that a mutation is in the log at the version of its response; True if at another one."""
    first = timeline.places.get(op.op_id or "")
    if first is None:
        _idle(timeline, op)
        return False
    last = timeline.ends[first]
    if op.start < timeline.begun[first]:
        timeline.begun[first] = op.start
    if op.end < timeline.upper[last]:
        timeline.upper[last] = op.end
    if op.token is not None and not timeline.holds(op.token, first - 1):
        timeline.add_violation("I9", f"{op.verb} made {first} under token {op.token}: not in force")
    if op.version != last:
        return True
    if op.seen_token != timeline.tokens[last] or op.state is not timeline.states[last]:
        timeline.add_shown(op, last)
    return False


def _granted(timeline: JobTimeline, op: Operation) -> bool:
    """Check a grant: its token belongs to this claim alone."""
    other = timeline.granted.setdefault(op.seen_token, op.op_id)
    if other != op.op_id:
        timeline.add_violation("I7", f"token {op.seen_token} was granted to {other} and to {op.op_id}")
    return _made(timeline, op)


def _idle(timeline: JobTimeline, op: Operation) -> None:
    """Check a mutation that is not in the log: correct only if there was nothing to do."""
    if timeline.broken:
        return
    version = op.version or 0
    if 0 < version <= timeline.count:
        state = timeline.states[version]
        if op.verb == "aggregate" and state is State.AGGREGATING:
            _alive(timeline, op)
            return
        if op.verb == "cancel" and timeline.asked <= version and state not in ENDED:
            _shown(timeline, op)
            return
        if op.verb in _ENDS and timeline.holds(op.token, version - 1) > timeline.holds(op.token, version):
            _repeated(timeline, op, version)
            return
    timeline.add_violation(_LOST.get(op.verb, "I30"), f"{op.verb} {op.op_id} was answered, and is not there")


def _repeated(timeline: JobTimeline, op: Operation, version: int) -> None:
    """Check a repeat under another op_id: its owner gets the job as the first made it; there may be newer
    versions."""
    timeline.upper[version] = min(timeline.upper[version], op.end)
    if op.state is not timeline.states[version] or op.seen_token != timeline.tokens[version]:
        timeline.add_shown(op, version)


def _alive(timeline: JobTimeline, op: Operation) -> bool:
    """Check a call of the owner: accepted only under the token in force at the version it was shown."""
    if _shown(timeline, op):
        version = op.version or 0
        late = op.verb == "publish" and timeline.late(op.token, version)
        if not late and not timeline.holds(op.token, version):
            timeline.add_violation("I9", f"{op.verb} at {version} under token {op.token}: not in force")
        if timeline.signed[version] and op.start < timeline.begun[version]:
            timeline.begun[version] = op.start
    return False


def _read(timeline: JobTimeline, op: Operation) -> bool:
    _shown(timeline, op)
    return False


def _shown(timeline: JobTimeline, op: Operation) -> bool:
    """Return whether the log has the version that was shown; if so, check state and token by it."""
    if not timeline.see(op):
        return False
    version = op.version or 0
    if op.state is not timeline.states[version] or op.seen_token != timeline.tokens[version]:
        timeline.add_shown(op, version)
    return True


def _refused(timeline: JobTimeline, op: Operation) -> None:
    """Check a definite refusal: it left nothing in the log, and the owner in force was not fenced.

    Only a heartbeat may be fenced under its own token: past the job's deadline.
    """
    first = timeline.places.get(op.op_id or "")
    if first is not None:
        timeline.refused.add(first)
    if op.version is None or not timeline.see(op):
        return
    if first is not None and first <= op.version and op.verb in _REPEATABLE:
        timeline.add_violation("I30", f"{op.verb} was refused at {op.version}, and applied at {first} before")
    fenced = op.error == "Fenced" and op.verb != "heartbeat"
    if fenced and timeline.holds(op.token, op.version):
        timeline.add_violation("I9", f"{op.verb} was fenced at {op.version} under the token in force")


def _unknown(timeline: JobTimeline, op: Operation) -> None:
    """Note when a call without a definite result began: it cannot have been applied before."""
    if op.op_id is None:
        timeline.started[op.token] = min(op.start, timeline.started.get(op.token, NEVER))
        return
    first = timeline.places.get(op.op_id)
    if first is not None:
        timeline.begun[first] = min(timeline.begun[first], op.start)


def _check_repeats(timeline: JobTimeline, late: list[Operation], repeated: list[bool]) -> None:
    """Check that only a repeated claim or enqueue gets the job as it is now."""
    for op, again in zip(late, repeated, strict=True):
        last = timeline.ends[timeline.places[op.op_id or ""]]
        if again and op.verb in (*_CLAIMS, "enqueue") and (op.version or 0) > last:
            _shown(timeline, op)
        else:
            timeline.add_violation(
                "I30", f"{op.verb} {op.op_id} was answered at {op.version}: it is at {last}"
            )


_REPEATABLE = frozenset({"aggregate", "complete", "release", "cancel"})
"""Verbs whose repeat always gets the original response: another enqueue may have had other contents, and
the grant of a claim may be gone."""
_CLAIMS = ("claim", "acquire")
_ENDS = frozenset({"complete", "release"})
_LOST = {"enqueue": "I11", "complete": "I13"}
