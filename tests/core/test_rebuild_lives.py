"""Whatever happened to a job, its log gives its record back."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.core import rebuild
from holdfast.core.catalogue import EventClass, EventType
from holdfast.core.errors import Corrupt
from holdfast.core.event import Event
from holdfast.core.job import CancelRequest, Flaws, Job, Lease, Progress
from holdfast.core.lifecycle import Change, Command, Expire, Restore, Stopped, Success, decide
from holdfast.core.outputs import ValidationProgress, ValidationResult
from holdfast.core.retry import OnExhausted, Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from tests.core.sample_jobs import (
    BEGIN,
    DONE,
    NOW,
    PERMANENT,
    PROMISING,
    REFUSED,
    TRANSIENT,
    VALIDATOR,
    WORKER,
    aggregate,
    cancel,
    claim,
    complete,
    enqueue,
    handoff,
    heartbeat,
    judge,
    release,
    said,
)

HOUR = timedelta(hours=1)
FOUND = ValidationResult(verified=8, missing=0)
ONE_CRASH = Spec(retry=Retry(max_crashes=1))
TIMED = Spec(ttl=timedelta(minutes=1), retry=Retry(on_exhausted=OnExhausted.TIMEOUT))

LIVES: dict[str, list[Command]] = {
    "delayed": [enqueue(Spec(delay=HOUR))],
    "registered": [enqueue(register=True)],
    "registered by a worker": [enqueue(register=True, actor=WORKER)],
    "handed off": [enqueue(register=True), handoff(BEGIN), handoff(DONE, handle={"name": "pod-1"})],
    "refused by its executor": [enqueue(register=True), handoff(BEGIN), handoff(REFUSED)],
    "claimed": [enqueue(Spec(delay=timedelta(seconds=1))), claim()],
    "running": [enqueue(), claim(), heartbeat()],
    "aggregating": [enqueue(), claim(), heartbeat(), aggregate()],
    "succeeded": [enqueue(), claim(), complete(Success(result={"n": 1}))],
    "succeeded at the second try": [
        enqueue(),
        claim(),
        heartbeat(),
        complete(TRANSIENT),
        claim("op-2"),
        complete(Success(), 2),
    ],
    "waiting for its second try": [enqueue(), claim(), heartbeat(), complete(TRANSIENT)],
    "claimed for its second try": [enqueue(), claim(), heartbeat(), complete(TRANSIENT), claim("op-2")],
    "failed": [enqueue(), claim(), heartbeat(), complete(PERMANENT)],
    "given up after failures": [
        enqueue(Spec(retry=Retry(max_failures=1))),
        claim(),
        complete(TRANSIENT),
    ],
    "given up after a crash": [enqueue(ONE_CRASH), claim(), heartbeat(), Expire()],
    "not understood": [
        enqueue(),
        claim(),
        complete(replace(PERMANENT, not_understood=True)),
    ],
    "not started": [enqueue(), claim(), complete(replace(PERMANENT, not_started=True))],
    "released": [enqueue(), claim(), heartbeat(), release(delay=HOUR)],
    "released once by a hurried worker": [enqueue(), claim(), release()],
    "asked to stop": [enqueue(), claim(), heartbeat(), cancel(reason="enough")],
    "stopped": [
        enqueue(),
        claim(),
        heartbeat(),
        cancel(reason="enough"),
        complete(Stopped(reason="as asked")),
    ],
    "cancelled by force": [enqueue(), claim(), heartbeat(), cancel(hard=True)],
    "cancelled before it was claimed": [enqueue(), cancel()],
    "timed out": [enqueue(TIMED), Expire()],
    "validating": [enqueue(PROMISING), claim(), heartbeat(), complete(Success())],
    "validated": [enqueue(PROMISING), claim(), complete(Success()), judge(8, 0)],
    "validated in part": [enqueue(PROMISING), claim(), complete(Success()), judge(5, 3)],
    "found without its outputs": [enqueue(PROMISING), claim(), complete(Success()), judge(0, 8)],
    "failed, and validated then": [enqueue(PROMISING), claim(), complete(PERMANENT), judge(5, 3)],
    "restored": [enqueue(), claim(), heartbeat(), Restore(op_id="op-restore")],
    "made of outputs that were there": [replace(enqueue(PROMISING, actor=VALIDATOR), found=FOUND)],
}


def life(*commands: Command) -> tuple[Job, list[Event]]:
    """The job after these commands, and its log: its owner is quick, all others come an hour later."""
    job: Job | None = None
    log: list[Event] = []
    now = NOW
    for command in commands:
        owned = job is not None and job.leased and not isinstance(command, Expire)
        now += timedelta(seconds=1) if owned else HOUR
        change = decide(command, job, now)
        assert isinstance(change, Change), change
        job = change.after
        log += change.events
    assert job is not None
    return job, log


def remade(origin: Job, log: list[Event]) -> Job:
    return rebuild.remake(origin, log, None, published={}, clock_was_set=False)


@pytest.mark.parametrize("name", LIVES)
def test_the_log_of_any_life_gives_its_record(name: str) -> None:
    job, log = life(*LIVES[name])

    made = remade(job, log)

    assert rebuild.without_liveness(made) == rebuild.without_liveness(job)
    assert (made.updated_at, made.owner) == (log[-1].occurred_at, job.owner)


@pytest.mark.parametrize("name", LIVES)
def test_a_log_in_another_order_gives_the_same_record(name: str) -> None:
    job, log = life(*LIVES[name])

    assert remade(job, log[::-1]) == remade(job, log)


def test_a_cancel_is_who_asked_when_and_why() -> None:
    job, log = life(*LIVES["asked to stop"])

    assert remade(job, log).cancel == CancelRequest(
        actor="user:ana", requested_at=log[-1].occurred_at, reason="enough"
    )


def test_the_lease_of_the_spec_is_counted_from_the_last_event() -> None:
    job, log = life(enqueue(Spec(lease=timedelta(seconds=40))), claim(), heartbeat())
    now = log[-1].occurred_at

    lease = remade(job, log).lease

    ttl = timedelta(seconds=40)
    assert lease == Lease("w", now + ttl, ttl, heartbeat_at=now, granted_at=now)


@pytest.mark.parametrize("name", ["delayed", "succeeded", "waiting for its second try"])
def test_a_job_that_nobody_holds_has_no_lease(name: str) -> None:
    job, log = life(*LIVES[name])

    assert remade(job, log).lease is None


def test_what_others_say_later_changes_no_time() -> None:
    job, log = life(*LIVES["running"])
    later = log[-1].occurred_at + HOUR
    said_later = replace(said(1), job_id=job.job_id, occurred_at=later)
    another = replace(log[-1], job_id="another", occurred_at=later, offset=9)

    assert remade(job, [*log, said_later, another]) == remade(job, log)
    assert rebuild.rebuild(job, [*log, said_later, another]).updated_at == log[-1].occurred_at


def test_the_claims_of_a_log_are_told_without_its_beginning() -> None:
    _, log = life(*LIVES["succeeded at the second try"])

    assert [event.op_id for event in rebuild.claims_of(log)] == ["op-claim", "op-2"]
    assert [event.op_id for event in rebuild.claims_of(log[1:])] == ["op-claim", "op-2"]


def test_a_job_that_succeeded_as_it_was_made_was_claimed_by_nobody() -> None:
    job, log = life(*LIVES["made of outputs that were there"])

    assert EventType.CLAIMED in {event.event_type for event in log}
    assert rebuild.claims_of(log) == []
    assert (remade(job, log).claim_op_id, remade(job, log).state) == (None, State.SUCCEEDED)


@pytest.mark.parametrize(
    "change",
    [
        {"lease": None},
        {"heartbeats": 3},
        {"published": 3},
        {"published_bytes": 3},
        {"progress": Progress(1)},
        {"checkpoint": 1},
        {"check": ValidationProgress(tries=1)},
        {"flaws": Flaws(missed=1)},
        {"updated_at": NOW - HOUR},
    ],
)
def test_what_changes_without_an_event_is_liveness(change: dict[str, object]) -> None:
    job, _ = life(*LIVES["running"])

    assert replace(job, **change) != job
    assert rebuild.without_liveness(replace(job, **change)) == rebuild.without_liveness(job)


def test_a_record_without_its_liveness_says_that_nothing_was_reported() -> None:
    job, _ = life(*LIVES["running"])

    bare = rebuild.without_liveness(job)

    assert bare.updated_at == job.created_at
    assert (bare.lease, bare.heartbeats, bare.published, bare.published_bytes) == (None, 0, 0, 0)
    assert (bare.progress, bare.checkpoint, bare.check, bare.flaws) == (None, None, None, None)


def test_the_first_of_the_events_that_are_missing_is_told() -> None:
    job, log = life(enqueue(), claim(), heartbeat(), cancel(), complete(Stopped()))
    told = r"^Job job-1 cannot be made again from its log: offset 4 is missing\.$"

    assert log[3].event_class is EventClass.CONTROL
    with pytest.raises(Corrupt, match=told):
        remade(job, [*log[:3], log[4]])
    with pytest.raises(Corrupt, match="offset 2 is missing"):
        remade(job, [log[0], log[2], log[4]])
