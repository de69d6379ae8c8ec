"""The job record: what follows from its fields."""

from datetime import datetime, timedelta

import msgspec
import pydantic
import pytest
from msgspec.structs import asdict, replace

from holdfast.core.job import JOB_BYTES, Failure, Flaws, Job, Lease, Progress, ResourceLock, job_bytes
from holdfast.core.outputs import OutputPromise, ValidationResult
from holdfast.core.spec import Spec
from holdfast.core.state import ENDED, LEASED, State
from tests.core.sample_jobs import NOW, changed, claim, heartbeat, job_in

SECOND = timedelta(seconds=1)
LEASE = Lease(owner="w", expires_at=NOW + 60 * SECOND, ttl=60 * SECOND, granted_at=NOW, heartbeat_at=NOW)


def test_a_job_starts_at_attempt_one_with_everything_else_unsaid() -> None:
    made = job_in(State.QUEUED)
    job = Job(
        job_id="job-1", spec=made.spec, state=State.QUEUED,
        created_at=NOW, updated_at=NOW, ready_at=NOW,
    )  # fmt: skip

    counters = "version transition_no failures crashes fencing_token heartbeats published"
    more = "published_bytes not_understood not_started"
    assert job.attempt == 1
    assert [getattr(job, name) for name in f"{counters} {more}".split()] == [0] * 10


def test_a_failure_is_worth_another_try_unless_it_says_otherwise() -> None:
    assert asdict(Failure(message="x")) == {
        "message": "x",
        "code": "Error",
        "retryable": True,
        "stage": "exec",
        "exit_code": None,
        "crash": False,
        "reason_code": None,
        "where": None,
        "not_understood": False,
        "not_started": False,
        "seconds": None,
        "traceback": None,
    }


def test_a_resource_starts_free_below_every_token() -> None:
    assert (ResourceLock("disk").token, ResourceLock("disk").holder) == (0, None)


def test_a_lease_knows_how_long_it_was_granted_for() -> None:
    assert LEASE.granted_for == 60 * SECOND
    assert replace(LEASE, heartbeat_at=NOW + 20 * SECOND).granted_for == 40 * SECOND
    assert not LEASE.suspected


def test_a_job_is_tied_to_what_caused_it_or_to_itself() -> None:
    job = job_in(State.QUEUED)

    assert job.correlation == "job-1"
    assert replace(job, correlation_id="order-7").correlation == "order-7"


@pytest.mark.parametrize("state", list(State))
def test_a_state_is_leased_or_ended_or_neither(state: State) -> None:
    job = job_in(state)

    assert (job.leased, job.ended) == (state in LEASED, state in ENDED)
    assert job.owner == ("w" if job.leased else None)


@pytest.mark.parametrize("state", [state for state in State if state not in LEASED])
def test_a_deadline_is_due_until_the_work_is_done(state: State) -> None:
    job = replace(job_in(state), deadline_at=NOW + 9 * SECOND)

    done = state in ENDED or state is State.VALIDATING
    assert job.due_at == (None if done else NOW + 9 * SECOND)
    assert replace(job, deadline_at=None).due_at is None


@pytest.mark.parametrize(
    ("command", "due_at"),
    [
        (claim(), NOW + 60 * SECOND),
        (claim(heartbeat_interval=20 * SECOND), NOW + 40 * SECOND),
    ],
)
def test_a_lease_is_due_at_its_end_or_after_two_silent_intervals(command: object, due_at: datetime) -> None:
    job = changed(job_in(State.QUEUED), command).after  # type: ignore[arg-type]

    assert job.due_at == due_at


def test_a_suspected_owner_is_due_at_the_end_of_its_lease() -> None:
    job = changed(job_in(State.QUEUED), claim(heartbeat_interval=20 * SECOND)).after
    assert job.lease is not None

    suspected = replace(job, lease=replace(job.lease, suspected=True))
    beaten = changed(suspected, heartbeat(), NOW + 50 * SECOND).after

    assert suspected.due_at == NOW + 60 * SECOND
    assert beaten.due_at == NOW + 90 * SECOND


def test_a_lease_about_to_end_is_due_before_the_second_interval() -> None:
    job = changed(job_in(State.QUEUED), claim(heartbeat_interval=20 * SECOND)).after
    assert job.lease is not None

    short = replace(job, lease=replace(job.lease, expires_at=NOW + 30 * SECOND))

    assert short.due_at == NOW + 30 * SECOND


def test_a_record_of_a_lease_or_of_flaws_keeps_only_what_is_said() -> None:
    assert msgspec.json.encode(Flaws(missed=1)) == b'{"missed":1}'
    kept = msgspec.json.decode(msgspec.json.encode(LEASE))
    assert set(kept) == {"owner", "expires_at", "ttl", "granted_at", "heartbeat_at"}
    assert not msgspec.convert(kept, Lease).timed


@pytest.mark.parametrize(
    ("change", "more"),
    [
        ({}, 0),
        ({"result": 0}, len("0")),
        ({"result": {"a": 1}}, len('{"a":1}')),
        ({"checkpoint": [1, 2]}, len("[1,2]")),
        ({"found": ValidationResult(verified=3)}, len('{"verified":3}')),
        ({"result": "ä", "checkpoint": "", "found": ValidationResult()}, len(b'"\xc3\xa4"""{}')),
    ],
)
def test_a_record_is_as_large_as_what_is_in_it_and_a_little(change: dict[str, object], more: int) -> None:
    job = replace(job_in(State.QUEUED), spec=Spec(payload=msgspec.Raw(b'{"to":"ana"}')))

    assert job_bytes(replace(job, **change)) == JOB_BYTES + len('{"to":"ana"}') + more


def test_a_record_is_as_large_as_its_promise_too() -> None:
    promising = Spec(payload=msgspec.Raw(b"7"), outputs=OutputPromise(names=("a.txt",)))
    job = replace(job_in(State.QUEUED), spec=promising, result=True)

    assert job_bytes(job) == 500 + len("7") + len('{"names":["a.txt"]}') + len("true")


def test_a_job_is_plain_json_values_for_whoever_asks() -> None:
    spec = Spec(payload=msgspec.Raw(b'{"to":"ana"}'))
    job = replace(job_in(State.RUNNING), spec=spec, progress=Progress(1, 2))

    shown = job.to_dict()

    assert shown["spec"]["payload"] == {"to": "ana"}
    assert (shown["state"], shown["progress"]) == ("running", {"done": 1, "total": 2})
    assert shown == dict(job) == msgspec.json.decode(msgspec.json.encode(shown))


def test_pydantic_writes_a_job_as_json() -> None:
    job = replace(job_in(State.RUNNING), progress=Progress(1, 2))
    adapter = pydantic.TypeAdapter(dict[str, Job])

    assert adapter.validate_python({"job": job})["job"] is job
    assert adapter.dump_python({"job": job}, mode="json") == {"job": job.to_dict()}
    assert adapter.json_schema(mode="serialization")["type"] == "object"
