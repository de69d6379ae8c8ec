"""Jobs brought into every state by the rules themselves, and one example of every command."""

from collections.abc import Callable
from datetime import datetime, timedelta

from msgspec.structs import replace

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.event import Event
from holdfast.core.job import Failure, Job, ResourceLock
from holdfast.core.lifecycle import (
    Aggregate,
    Cancel,
    Change,
    Claim,
    Command,
    Complete,
    CompleteValidation,
    Enqueue,
    Expire,
    Handoff,
    HandoffStep,
    Heartbeat,
    Outcome,
    Publish,
    Refusal,
    RefusePublish,
    Release,
    ReportValidation,
    Restore,
    Stopped,
    Success,
    decide,
)
from holdfast.core.outputs import ValidationResult
from holdfast.core.retry import OnExhausted, Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.testing.fakes import EPOCH

NOW = EPOCH
LATER = EPOCH + timedelta(seconds=61)
USER, WORKER, SYNC, VALIDATOR = "user:ana", "worker:w", "sync:k8s", "validator:v"
TRANSIENT = Failure(message="the network hiccuped", code="TransientError")
PERMANENT = Failure(message="no such model", code="PermanentError", retryable=False)


def enqueue(spec: Spec = Spec(), *, register: bool = False, actor: str = USER) -> Enqueue:
    return Enqueue(op_id="op-enqueue", job_id="job-1", spec=spec, actor=actor, register=register)


def claim(op_id: str = "op-claim", *, actor: str = WORKER, **more: object) -> Claim:
    return Claim(op_id=op_id, owner="w", actor=actor, **more)  # type: ignore[arg-type]


def heartbeat(token: int = 1, *, actor: str = WORKER, **more: object) -> Heartbeat:
    return Heartbeat(token=token, actor=actor, **more)  # type: ignore[arg-type]


def said(sequence: int, **more: object) -> Event:
    return Event(
        event_type=WorkerEventType.OUTPUT,
        event_class=EventClass.WORKER,
        occurred_at=NOW,
        sequence=sequence,
        **more,  # type: ignore[arg-type]
    )


def publish(*sequences: int, token: int = 1, actor: str = WORKER) -> Publish:
    return Publish(token=token, actor=actor, events=tuple(map(said, sequences)))


def refuse(token: int = 1, reason: str = "It is too large.") -> RefusePublish:
    return RefusePublish(token=token, actor=WORKER, reason=reason)


def aggregate(token: int = 1, *, actor: str = WORKER) -> Aggregate:
    return Aggregate(op_id="op-aggregate", token=token, actor=actor)


def complete(
    outcome: Outcome, token: int = 1, *, actor: str = WORKER, compensated: bool | None = None
) -> Complete:
    return Complete(op_id="op-complete", token=token, actor=actor, outcome=outcome, compensated=compensated)


def release(token: int = 1, *, actor: str = WORKER, **more: object) -> Release:
    return Release(op_id="op-release", token=token, actor=actor, **more)  # type: ignore[arg-type]


def cancel(*, hard: bool = False, actor: str = USER, reason: str | None = None) -> Cancel:
    return Cancel(op_id="op-cancel", actor=actor, hard=hard, reason=reason)


def handoff(step: HandoffStep, *, actor: str = SYNC, **more: object) -> Handoff:
    return Handoff(op_id=f"op-{step}", actor=actor, step=step, **more)  # type: ignore[arg-type]


def judge(verified: int, missing: int, *, actor: str = VALIDATOR, **more: object) -> CompleteValidation:
    found = ValidationResult(verified=verified, missing=missing)
    return CompleteValidation(op_id="op-judge", actor=actor, found=found, **more)  # type: ignore[arg-type]


def look(*, actor: str = VALIDATOR, **more: object) -> ReportValidation:
    return ReportValidation(actor=actor, **more)  # type: ignore[arg-type]


def changed(
    job: Job | None, command: Command, now: datetime = NOW, resource: ResourceLock | None = None
) -> Change:
    """The change this command makes; the test is wrong when it is refused."""
    decision = decide(command, job, now, resource)
    assert isinstance(decision, Change), decision
    return decision


def refused(
    job: Job | None, command: Command, now: datetime = NOW, resource: ResourceLock | None = None
) -> Refusal:
    """The refusal this command meets; the test is wrong when it is granted."""
    decision = decide(command, job, now, resource)
    assert isinstance(decision, Refusal), decision
    return decision


def after(*commands: Command, now: datetime = NOW) -> Job:
    """The job after these commands, the first of which makes it."""
    job: Job | None = None
    for command in commands:
        job = changed(job, command, now).after
    assert job is not None
    return job


def lived(*commands: Command) -> tuple[Job, list[Event]]:
    """A job and its log, numbered as a store would."""
    job: Job | None = None
    log: list[Event] = []
    for command in commands:
        change = changed(job, command)
        job, log = change.after, log + list(change.events)
    assert job is not None
    return job, [replace(event, log_id=n) for n, event in enumerate(log, start=1)]


PROMISING = Spec(promised_outputs=8)
ONCE = Spec(retry=Retry(max_failures=1))
HURRIED = Spec(ttl=timedelta(seconds=1), retry=Retry(on_exhausted=OnExhausted.TIMEOUT))
BEGIN, DONE, REFUSED = HandoffStep.BEGIN, HandoffStep.DONE, HandoffStep.REFUSED

_LIVES: dict[State, Callable[[], Job]] = {
    State.PENDING: lambda: after(enqueue(register=True)),
    State.SUBMITTING: lambda: after(enqueue(register=True), handoff(BEGIN)),
    State.QUEUED: lambda: after(enqueue()),
    State.ASSIGNED: lambda: after(enqueue(), claim()),
    State.RUNNING: lambda: after(enqueue(), claim(), heartbeat()),
    State.AGGREGATING: lambda: after(enqueue(), claim(), aggregate()),
    State.VALIDATING: lambda: after(enqueue(PROMISING), claim(), complete(Success())),
    State.PARTIAL_SUCCESS: lambda: after(enqueue(PROMISING), claim(), complete(Success()), judge(5, 3)),
    State.SUCCEEDED: lambda: after(enqueue(), claim(), complete(Success(result=1))),
    State.FAILED: lambda: after(enqueue(), claim(), complete(PERMANENT)),
    State.CANCELLED: lambda: after(enqueue(), cancel()),
    State.TIMEOUT: lambda: changed(after(enqueue(HURRIED)), Expire(), LATER).after,
    State.DEAD_LETTERED: lambda: after(enqueue(ONCE), claim(), complete(TRANSIENT)),
}


def job_in(state: State) -> Job:
    """A job that came into this state by legal commands."""
    return _LIVES[state]()


COMMANDS: dict[str, Command] = {
    "enqueue": enqueue(Spec(kind="other")),
    "claim": claim("op-other-claim"),
    "heartbeat": heartbeat(),
    "publish": publish(1, 2),
    "note a refusal": refuse(),
    "aggregate": aggregate(),
    "succeed": complete(Success(result={"answer": 42})),
    "fail": complete(TRANSIENT),
    "fail for good": complete(PERMANENT),
    "stop": complete(Stopped()),
    "release": release(),
    "stale heartbeat": heartbeat(9),
    "stale publish": publish(1, token=9),
    "note a stale refusal": refuse(9),
    "stale complete": complete(Success(), 9),
    "stale release": release(9),
    "stale aggregate": aggregate(9),
    "cancel": cancel(),
    "hard cancel": cancel(hard=True),
    "expire": Expire(),
    "begin handoff": handoff(BEGIN),
    "finish handoff": handoff(DONE, handle={"name": "pod-1"}),
    "refuse handoff": handoff(REFUSED),
    "look": look(),
    "look in vain": look(trouble="the bucket does not answer"),
    "judge all": judge(8, 0),
    "judge some": judge(5, 3),
    "judge none": judge(0, 8),
    "restore": Restore(op_id="op-restore"),
}
