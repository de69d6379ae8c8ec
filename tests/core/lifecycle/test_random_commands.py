"""Any sequence of commands on one job keeps the invariants I1 to I6, I9, I15 and I16 of RELIABILITY."""

from datetime import timedelta
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core.catalogue import EventClass, EventType, ReasonCode
from holdfast.core.errors import Fenced
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
    Expire,
    Handoff,
    HandoffStep,
    Heartbeat,
    Outcome,
    Publish,
    Refusal,
    Release,
    ReportValidation,
    Restore,
    Stopped,
    Success,
    decide,
)
from holdfast.core.outputs import ValidationResult
from holdfast.core.projection import differences, fold, folded_view
from holdfast.core.rebuild import rebuild, remake, without_liveness
from holdfast.core.retry import OnExhausted, Retry
from holdfast.core.spec import Spec
from holdfast.core.state import ENDED, LEASED, LEGAL, advances
from tests.core.sample_jobs import NOW, PERMANENT, TRANSIENT, VALIDATOR, enqueue, said

MAX_FAILURES, MAX_CRASHES = 3, 3
CRASH = Failure(message="killed", exit_code=137, crash=True)
PARSE = Failure(message="not JSON", retryable=False, reason_code=ReasonCode.PARSE_ERROR)
OUTCOMES: tuple[Outcome, ...] = (
    Success(),
    Success(result={"answer": 42}),
    TRANSIENT,
    PERMANENT,
    CRASH,
    PARSE,
    replace(PARSE, not_understood=True),
    replace(PERMANENT, not_started=True),
    Stopped(reason="asked to"),
)

specs = st.builds(
    Spec,
    lock=st.sampled_from([None, "disk"]),
    ttl=st.sampled_from([None, timedelta(seconds=200)]),
    promised_outputs=st.sampled_from([0, 3]),
    retry=st.builds(
        Retry,
        max_failures=st.just(MAX_FAILURES),
        max_crashes=st.just(MAX_CRASHES),
        on_exhausted=st.sampled_from(OnExhausted),
    ),
)
steps = st.tuples(
    st.sampled_from(
        ["claim"] * 6
        + ["heartbeat"] * 3
        + ["complete"] * 3
        + [
            "publish",
            "aggregate",
            "release",
            "expire",
            "judge",
            "judge",
            "look",
            "cancel",
            "hard cancel",
        ]
        + ["handoff", "handoff", "restore"]
    ),
    st.integers(0, 90),
    st.booleans(),
    st.integers(0, 20),
)


def command_for(job: Job, verb: str, n: int, *, stale: bool, choice: int) -> Command:
    token = job.fencing_token - stale
    op_id, worker = f"op-{n}", f"worker:w-{choice % 3}"
    match verb:
        case "claim":
            interval = timedelta(seconds=20) if choice % 4 == 0 else None
            return Claim(op_id=op_id, owner=worker[7:], actor=worker, heartbeat_interval=interval)
        case "heartbeat":
            return Heartbeat(token=token, actor=worker)
        case "publish":
            return Publish(token=token, actor=worker, events=(said(job.published + 1),))
        case "aggregate":
            return Aggregate(op_id=op_id, token=token, actor=worker)
        case "complete":
            return Complete(
                op_id=op_id,
                token=token,
                actor=worker,
                outcome=OUTCOMES[choice % len(OUTCOMES)],
                compensated=(None, True, False)[choice % 3],
            )
        case "release":
            return Release(op_id=op_id, token=token, actor=worker)
        case "judge":
            verified = choice % (job.spec.promised_outputs + 1)
            found = ValidationResult(verified=verified, missing=job.spec.promised_outputs - verified)
            return CompleteValidation(op_id=op_id, actor=VALIDATOR, found=found)
        case "look":
            trouble = "the bucket does not answer" if stale else None
            return ReportValidation(actor=f"validator:v-{choice % 2}", trouble=trouble)
        case "handoff":
            actor = ("user:ana", "sync:k8s")[choice % 2]
            return Handoff(op_id=op_id, actor=actor, step=list(HandoffStep)[choice % 3], handle={"id": verb})
        case "restore":
            return Restore(op_id=op_id)
        case "expire":
            return Expire()
        case _:
            return Cancel(op_id=op_id, actor="user:ana", hard=verb == "hard cancel")


@settings(max_examples=250, deadline=None, derandomize=True)
@given(spec=specs, register=st.booleans(), commands=st.lists(steps, max_size=40), seed=st.integers(0))
def test_any_tape_keeps_the_invariants(
    spec: Spec, register: bool, commands: list[tuple[str, int, bool, int]], seed: int
) -> None:
    now, resource = NOW, ResourceLock("disk") if spec.lock else None
    made = decide(enqueue(spec, register=register), None, now)
    assert isinstance(made, Change)
    job, log = made.after, list(made.events)
    for n, (verb, seconds, stale, choice) in enumerate(commands):
        now += timedelta(seconds=seconds)
        command = command_for(job, verb, n, stale=stale, choice=choice)

        decision = decide(command, job, now, resource)

        assert_fence_kept(job, command, decision)
        if isinstance(decision, Change):
            assert_lease_honoured(decision)
            job, resource = decision.after, decision.resource or resource
            log += decision.events
            assert_history(job, log)
            assert_lock_follows_the_lease(job, resource)
    assert_budgets(job, log)
    assert_folds_in_any_order(job, log, Random(seed))
    assert_rebuilt(job, made.after, log, Random(seed))


def assert_history(job: Job, log: list[Event]) -> None:
    """I1 to I6 over the whole log so far."""
    assert [event.offset for event in log] == list(range(1, job.version + 1))
    moves = [event for event in log if event.event_class is EventClass.TRANSITION]
    assert [event.transition_no for event in moves] == list(range(1, job.transition_no + 1))
    assert len({event.event_id for event in log}) == len(log)
    for before, event in zip([None, *moves], moves, strict=False):
        assert event.to_state is not None
        assert event.from_state == (before.to_state if before else None)
        assert LEGAL[event.from_state, event.to_state].event == event.event_type
        if before is not None and before.to_state is not None:
            place = (before.attempt or 0, before.to_state)
            assert advances(place, (event.attempt or 0, event.to_state))
    ends = [n for n, event in enumerate(moves, start=1) if event.to_state in ENDED]
    assert ends in ([], [len(moves)], [len(moves) - 1, len(moves)])
    assert fold(log, job.job_id).job == folded_view(job)
    claims = [e.fencing_token or 0 for e in log if e.event_type == EventType.CLAIMED]
    assert claims == sorted(set(claims))
    assert (job.lease is not None) == job.leased == (job.state in LEASED)


def assert_fence_kept(job: Job, command: Command, decision: Change | Refusal) -> None:
    """I9: an owner's write is accepted only under the newest token, and only while it is leased."""
    token = getattr(command, "token", None)
    if token is None:
        return
    if isinstance(decision, Change):
        assert job.leased
        assert token == job.fencing_token
    elif not job.leased or token != job.fencing_token:
        assert isinstance(decision.error, Fenced)
        [stale] = decision.facts
        assert stale.event_type == EventType.STALE_WRITE_REJECTED


def assert_lease_honoured(change: Change) -> None:
    """I16: a lease is granted for its time, capped by the deadline, and never taken early."""
    before, after = change.before, change.after
    lease = after.lease
    if lease is not None:
        until = lease.heartbeat_at + lease.ttl
        assert lease.expires_at == (min(until, after.deadline_at) if after.deadline_at else until)
    for event in change.events:
        if (event.op_id or "").startswith("expire:") and before is not None and before.lease:
            assert event.occurred_at >= before.lease.expires_at


def assert_lock_follows_the_lease(job: Job, resource: ResourceLock | None) -> None:
    if resource is not None:
        assert resource.holder == (job.job_id if job.leased else None)


def assert_budgets(job: Job, log: list[Event]) -> None:
    """I15: every attempt but the last was closed, and no budget is ever overdrawn."""
    requeued = [event for event in log if event.event_type == EventType.REQUEUED]
    free = {"released", "undelivered", "restored", "not_understood", "not_started"}
    costly = [event for event in requeued if event.attributes["cause"] not in free]
    assert job.attempt == 1 + len(requeued)
    causes = [event.attributes["cause"] for event in requeued]
    assert job.not_understood == causes.count("not_understood")
    assert job.not_started == causes.count("not_started")
    assert job.failures <= MAX_FAILURES
    assert job.crashes <= MAX_CRASHES
    assert len(costly) <= job.failures + job.crashes <= len(costly) + 1
    if job.dead_letter is not None:
        assert job.dead_letter.attempts == job.attempt
        assert job.dead_letter.correlation_id == job.job_id


def assert_folds_in_any_order(job: Job, log: list[Event], chance: Random) -> None:
    """I20: order, repeats, times and traces mean nothing to the fold."""
    strange = [
        replace(event, trace_id=f"trace-{n}", occurred_at=NOW - timedelta(days=n))
        for n, event in enumerate(log)
    ]
    chance.shuffle(strange)

    projection = fold([*strange, *log, *strange], job.job_id)

    assert differences(job, projection) == []
    assert projection.duplicates == 2 * len(log)


def assert_rebuilt(job: Job, created: Job, log: list[Event], chance: Random) -> None:
    """The creation and the log, in any order, give the record back, all but its liveness data."""
    mixed = [*log, *log]
    chance.shuffle(mixed)

    rebuilt = rebuild(created, mixed)

    assert rebuilt.owner == job.owner
    assert without_liveness(rebuilt) == without_liveness(job)
    assert remake(job, mixed, job, published={}, clock_was_set=False) is job
    assert remake(job, mixed, None, published={}, clock_was_set=False) == rebuilt
    if rebuilt.lease is not None and job.deadline_at is not None:
        assert rebuilt.lease.expires_at <= job.deadline_at
