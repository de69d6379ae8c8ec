"""A job's record, made again from its log: what is kept, what is refused. Random tapes of commands are in
`lifecycle/test_random_commands.py`."""

from datetime import timedelta
from functools import partial

import pytest
from msgspec.structs import replace

from holdfast.core import rebuild
from holdfast.core.catalogue import EventClass
from holdfast.core.errors import Corrupt
from holdfast.core.event import Event
from holdfast.core.job import Job, Progress
from holdfast.core.lifecycle import Change, Claim, Command, Complete, Heartbeat, Outcome, Success, decide
from holdfast.core.spec import Spec
from holdfast.core.state import State
from tests.core.sample_jobs import NOW, enqueue

remake = partial(rebuild.remake, published={}, clock_was_set=False)
OP = "op-claim"


def run(spec: Spec, *commands: Command) -> tuple[Job, list[Event]]:
    """The job after these commands, a second apart, and its log."""
    job: Job | None = None
    log: list[Event] = []
    for n, command in enumerate((enqueue(spec), *commands)):
        change = decide(command, job, NOW + timedelta(seconds=n))
        assert isinstance(change, Change)
        job = change.after
        log += change.events
    assert job is not None
    return job, log


def running(spec: Spec = Spec()) -> tuple[Job, list[Event]]:
    claim = Claim(op_id=OP, owner="w", actor="worker:w")
    return run(spec, claim, Heartbeat(token=1, actor="worker:w", progress=Progress(1)))


def ended(outcome: Outcome) -> tuple[Job, list[Event]]:
    claim = Claim(op_id=OP, owner="w", actor="worker:w")
    return run(Spec(), claim, Complete(op_id="op-end", token=1, actor="worker:w", outcome=outcome))


def test_a_record_that_says_what_its_log_says_keeps_its_liveness_data() -> None:
    job, log = running()
    later = replace(job, heartbeats=9, updated_at=NOW + timedelta(hours=1))

    assert remake(later, log, later) is later


@pytest.mark.parametrize(
    "change", [{"attempt": 7}, {"lease": None}, {"ready_at": NOW - timedelta(1)}, {"claim_op_id": None}]
)
def test_any_other_record_is_made_anew(change: dict[str, object]) -> None:
    job, log = running()
    wrong = replace(job, **change)

    made = remake(wrong, log, wrong)

    assert made == remake(job, log, None)
    assert rebuild.without_liveness(made) == rebuild.without_liveness(job)
    assert (made.owner, made.progress) == ("w", None)


def test_numbers_that_are_equal_are_not_the_same_result() -> None:
    job, log = ended(Success(result=1))

    assert remake(job, log, replace(job, result=True)).result is not True
    assert repr(remake(job, log, replace(job, result=1.0)).result) == "1"


def test_only_what_never_changes_is_taken_from_the_origin() -> None:
    spec = Spec(ttl=timedelta(minutes=9), delay=None, run_at=NOW)
    job, log = running(spec)
    origin = Job(
        job.job_id,
        job.spec,
        State.QUEUED,
        job.created_at,
        NOW + timedelta(9),
        NOW + timedelta(9),
        submitted_by=job.submitted_by,
        correlation_id=job.correlation_id,
        trace_id=job.trace_id,
        traceparent=job.traceparent,
    )

    assert remake(origin, log, job) is job


def test_events_of_others_and_of_workers_change_nothing() -> None:
    job, log = running()
    others = [replace(event, job_id="another", op_id="x") for event in log]
    said = replace(log[-1], event_class=EventClass.WORKER, offset=None, sequence=1)

    assert remake(job, [said, *others, *log], job) is job


def test_a_lease_that_is_made_again_ends_with_the_deadline() -> None:
    job, log = running(Spec(ttl=timedelta(seconds=5)))

    lease = remake(job, log, None).lease

    assert lease is not None
    assert lease.expires_at == job.deadline_at


def test_times_that_a_step_of_the_clock_moves_are_not_compared_when_there_was_one() -> None:
    job, log = running(Spec(ttl=timedelta(hours=1)))
    by = timedelta(minutes=5)
    assert job.deadline_at is not None
    assert job.started_at is not None
    moved = replace(
        job, ready_at=job.ready_at + by, started_at=job.started_at + by, deadline_at=job.deadline_at + by
    )

    assert remake(moved, log, moved).ready_at == job.ready_at
    assert rebuild.remake(moved, log, moved, published={}, clock_was_set=True) is moved
    wrong = replace(moved, attempt=7)
    assert rebuild.remake(wrong, log, wrong, published={}, clock_was_set=True).attempt == 1


def test_output_goes_on_after_what_was_published_under_the_same_token() -> None:
    job, log = running()

    assert rebuild.remake(job, log, None, published={1: 5, 7: 9}, clock_was_set=False).published == 5
    assert rebuild.remake(job, log, None, published={7: 9}, clock_was_set=False).published == 0


def test_a_log_without_a_first_event_is_refused() -> None:
    job, log = running()

    for some in ([], [replace(log[0], to_state=None)]):
        with pytest.raises(Corrupt, match="has no first event"):
            remake(job, some, job)


def test_a_log_with_a_gap_is_refused() -> None:
    job, log = ended(Success())

    with pytest.raises(Corrupt, match="offset 2 is missing"):
        remake(job, [log[0], *log[2:]], job)


def test_a_log_with_an_illegal_transition_is_refused() -> None:
    job, log = ended(Success())
    log[1] = replace(log[1], from_state=State.PENDING)

    with pytest.raises(Corrupt, match="/2 cannot follow"):
        remake(job, log, job)


def test_a_job_without_events_has_the_record_of_its_creation() -> None:
    job, _ = run(Spec())

    assert rebuild.rebuild(job, []) == job
