"""Who may act on a job: every guard of a claim, and what a refused owner leaves."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from holdfast.core.errors import Conflict, Fenced, Invalid, NotFound
from holdfast.core.job import Job, Progress, ResourceLock
from holdfast.core.lifecycle import Change, Success
from holdfast.core.lifecycle.ownership import ENDED_BY_OWNER
from holdfast.core.process_spec import ProcessSpec, encode_process_spec
from holdfast.core.projection import fold, folded_view
from holdfast.core.spec import COMMAND_KIND, Spec
from holdfast.core.state import State
from tests.core.sample_jobs import (
    LATER,
    NOW,
    SYNC,
    WORKER,
    after,
    cancel,
    changed,
    claim,
    complete,
    enqueue,
    heartbeat,
    job_in,
    refused,
    release,
)

SECOND = timedelta(seconds=1)


def test_a_grant_starts_the_lease_now_and_raises_the_token() -> None:
    job = replace(job_in(State.QUEUED), fencing_token=41, published=7, progress=Progress(1))

    granted = changed(job, claim(), LATER).after

    assert granted.lease is not None
    assert (granted.owner, granted.fencing_token) == ("w", 42)
    assert granted.lease.granted_at == granted.lease.heartbeat_at == LATER
    assert granted.lease.expires_at == LATER + timedelta(seconds=60)
    assert (granted.published, granted.progress, granted.started_at) == (0, None, None)


@pytest.mark.parametrize(
    ("command", "seconds"),
    [
        (claim(), 60),
        (claim(lease=timedelta(seconds=7)), 7),
        (claim(heartbeat_interval=timedelta(seconds=30)), 90),
        (claim(heartbeat_interval=timedelta(seconds=30), lease=timedelta(seconds=7)), 90),
    ],
)
def test_a_lease_lasts_as_long_as_asked_or_three_heartbeats(command: object, seconds: int) -> None:
    lease = changed(job_in(State.QUEUED), command).after.lease  # type: ignore[arg-type]

    assert lease is not None
    assert lease.ttl == timedelta(seconds=seconds)
    assert lease.expires_at == NOW + lease.ttl


@pytest.mark.parametrize("seconds", [0.5, 86_401])
def test_a_lease_outside_its_limits_is_refused(seconds: float) -> None:
    span = timedelta(seconds=seconds)

    assert isinstance(refused(job_in(State.QUEUED), claim(lease=span)).error, Invalid)
    assert isinstance(refused(job_in(State.RUNNING), heartbeat(lease=span)).error, Invalid)


@pytest.mark.parametrize("interval", [timedelta.max, timedelta(seconds=-30), timedelta(hours=9)])
def test_a_heartbeat_interval_outside_its_limits_is_refused(interval: timedelta) -> None:
    refusal = refused(job_in(State.QUEUED), claim(heartbeat_interval=interval))

    assert isinstance(refusal.error, Invalid)


def test_no_lease_outlives_the_deadline() -> None:
    job = after(enqueue(Spec(ttl=timedelta(seconds=100))))

    granted = changed(job, claim(), NOW + 70 * SECOND).after
    beaten = changed(granted, heartbeat(), NOW + 80 * SECOND).after

    assert granted.lease is not None
    assert beaten.lease is not None
    assert granted.lease.expires_at == beaten.lease.expires_at == NOW + 100 * SECOND


def test_no_lease_is_granted_or_renewed_at_the_deadline() -> None:
    job = after(enqueue(Spec(ttl=60 * SECOND)))
    granted = changed(job, claim()).after

    assert "deadline" in refused(job, claim(), NOW + 60 * SECOND).error.message
    assert isinstance(refused(granted, heartbeat(), NOW + 60 * SECOND).error, Fenced)


def test_a_claim_of_nothing_finds_nothing() -> None:
    assert isinstance(refused(None, claim()).error, NotFound)


def test_the_same_op_gets_the_same_grant_and_another_is_told_the_owner() -> None:
    job = job_in(State.ASSIGNED)

    again = changed(job, claim())
    other = refused(job, claim("op-2"))

    assert again.before is again.after is job
    assert other.error.message == "Job owned by w."
    assert isinstance(other.error, Conflict)


def test_a_job_is_not_claimable_before_its_time() -> None:
    job = after(enqueue(Spec(delay=5 * SECOND)))

    assert "not ready before" in refused(job, claim(), NOW + 4.999 * SECOND).error.message
    assert changed(job, claim(), NOW + 5 * SECOND).after.state is State.ASSIGNED


@pytest.mark.parametrize(
    ("spec", "where", "taken"),
    [
        (Spec(region="us-east-1"), {"region": "eu-west"}, False),
        (Spec(region="us-east-1"), {"region": "us-east-1"}, True),
        (Spec(region="us-east-1"), {}, True),
        (Spec(), {"region": "eu-west"}, True),
        (Spec(executor="k8s"), {}, False),
        (Spec(executor="k8s"), {"executor": "dask"}, False),
        (Spec(executor="k8s"), {"executor": "k8s"}, True),
        (Spec(), {"executor": "k8s"}, False),
    ],
)
def test_region_and_executor_decide_who_may_claim(spec: Spec, where: dict[str, str], taken: bool) -> None:
    job = after(enqueue(spec))

    if taken:
        assert changed(job, claim(**where)).after.owner == "w"
    else:
        assert isinstance(refused(job, claim(**where)).error, Conflict)


def test_a_locked_resource_is_granted_to_one_and_counts_its_own_tokens() -> None:
    job = after(enqueue(Spec(lock="disk")))

    held = refused(job, claim(), resource=ResourceLock("disk", 8, "job-0"))
    granted = changed(job, claim(), resource=ResourceLock("disk", 8, None))

    assert held.error.message == "Resource disk is locked by job job-0."
    assert granted.resource == ResourceLock("disk", 9, "job-1")
    assert granted.after.fencing_token == 9
    assert granted.events[0].attributes == {"lock": "disk"}


def test_a_lock_never_lowers_the_token_of_a_job() -> None:
    job = replace(after(enqueue(Spec(lock="disk"))), fencing_token=20)

    granted = changed(job, claim(), resource=ResourceLock("disk", 8, None))

    assert granted.resource == ResourceLock("disk", 21, "job-1")


def test_the_lock_goes_with_the_lease_but_not_with_somebody_elses() -> None:
    job = changed(after(enqueue(Spec(lock="disk"))), claim(), resource=ResourceLock("disk")).after

    freed = changed(job, complete(Success()), resource=ResourceLock("disk", 1, "job-1"))
    other = changed(job, complete(Success()), resource=ResourceLock("disk", 2, "job-2"))

    assert freed.resource == ResourceLock("disk", 1, None)
    assert other.resource == ResourceLock("disk", 2, "job-2")


def test_a_lapsed_lease_is_taken_over_in_one_write_of_two_events() -> None:
    job = job_in(State.RUNNING)

    taken = changed(job, claim("op-2"), LATER)

    assert [e.event_type for e in taken.events] == ["job_requeued", "job_claimed"]
    assert [e.actor for e in taken.events] == ["system:expire", WORKER]
    assert [e.op_id for e in taken.events] == ["expire:3", "op-2"]
    assert (taken.after.attempt, taken.after.crashes, taken.after.fencing_token) == (2, 1, 2)


def test_a_lease_is_not_taken_one_moment_early() -> None:
    job = job_in(State.RUNNING)

    early = refused(job, claim("op-2"), NOW + timedelta(seconds=59, microseconds=999_999))

    assert early.error.message == "Job owned by w."
    assert isinstance(changed(job, claim("op-2"), NOW + 60 * SECOND), Change)


def test_a_lapsed_lease_with_a_cancel_request_is_not_granted_again() -> None:
    job = changed(job_in(State.RUNNING), cancel()).after

    refusal = refused(job, claim("op-2"), LATER)

    assert refusal.error.message == "Job is cancelled; only a queued job can be claimed."
    assert refusal.error.version == job.version


def test_a_claim_on_behalf_of_an_executor_folds_to_its_owner() -> None:
    made = changed(None, enqueue())

    granted = changed(made.after, claim(actor=SYNC))

    assert fold((*made.events, *granted.events), "job-1").job == folded_view(granted.after)


def test_a_refused_owner_is_recorded_once_per_token_and_verb() -> None:
    job = replace(job_in(State.RUNNING), fencing_token=43)

    beats = [refused(job, heartbeat(42), NOW + n * SECOND).facts[0] for n in range(3)]
    ended = refused(job, complete(Success(), 42)).facts[0]

    assert {fact.event_id for fact in beats} == {"job-1/stale_write_rejected/42/heartbeat"}
    assert ended.event_id == "job-1/stale_write_rejected/42/complete"
    assert "under token 43" in (ended.reason or "")
    assert (ended.fencing_token, ended.offset) == (42, None)


def test_a_claim_repeated_after_its_release_is_refused() -> None:
    given_back = changed(job_in(State.RUNNING), release()).after

    refusal = refused(given_back, claim())

    assert isinstance(refusal.error, Conflict)
    assert "its grant is gone" in refusal.error.message


def test_a_claim_repeated_by_another_owner_is_refused() -> None:
    granted = changed(job_in(State.QUEUED), claim("op-2")).after

    refusal = refused(granted, replace(claim("op-2"), owner="somebody-else"))

    assert isinstance(refusal.error, Conflict)
    assert refusal.error.message == f"Job owned by {granted.owner}."
    assert changed(granted, claim("op-2")).after is granted


def test_the_end_of_time_is_out_of_range_and_no_crash() -> None:
    refusal = refused(job_in(State.QUEUED), claim(op_id="late"), datetime.max.replace(tzinfo=UTC))

    assert isinstance(refusal.error, Invalid)


def test_a_new_grant_has_not_started() -> None:
    running = job_in(State.RUNNING)

    again = changed(changed(running, release()).after, claim("op-2"), LATER).after

    assert running.started_at == NOW
    assert again.started_at is None


def test_an_interval_that_makes_no_lease_is_called_by_its_name() -> None:
    refusal = refused(job_in(State.QUEUED), claim(heartbeat_interval=timedelta(hours=9)))

    assert refusal.error.message.startswith("A heartbeat interval is a third of a lease")


@pytest.mark.parametrize(
    ("spec", "executor", "words"),
    [
        (Spec(executor="k8s"), None, "Job is bound to executor k8s"),
        (Spec(), "k8s", "Job is not bound to executor k8s"),
    ],
)
def test_a_claim_for_the_wrong_executor_says_which_is_right(
    spec: Spec, executor: str | None, words: str
) -> None:
    refusal = refused(after(enqueue(spec)), claim(executor=executor))

    assert refusal.error.message.startswith(words)


def test_what_stands_in_the_way_of_a_claim_is_a_conflict() -> None:
    early = refused(after(enqueue(Spec(delay=SECOND))), claim())
    late = refused(after(enqueue(Spec(ttl=SECOND))), claim(), NOW + SECOND)
    locked = refused(job_in(State.QUEUED), claim(), resource=ResourceLock("disk", 8, "job-0"))

    assert {type(refusal.error) for refusal in (early, late, locked)} == {Conflict}


def test_a_lock_that_names_the_job_itself_does_not_shut_it_out() -> None:
    job = after(enqueue(Spec(lock="disk")))

    granted = changed(job, claim(), resource=ResourceLock("disk", 8, "job-1"))

    assert granted.resource == ResourceLock("disk", 9, "job-1")


def test_a_claim_that_makes_its_job_takes_the_lock_too() -> None:
    made = enqueue(Spec(lock="disk"), actor=WORKER)

    granted = changed(None, claim(create=made), resource=ResourceLock("disk", 8, None))

    assert granted.resource == ResourceLock("disk", 9, "job-1")


def test_a_plain_owner_is_given_plain_commands_alone() -> None:
    def queued(command: ProcessSpec) -> Job:
        payload = encode_process_spec(command)
        return changed(None, enqueue(Spec(kind=COMMAND_KIND, payload=payload))).after

    limited = queued(ProcessSpec(argv=("true",), memory_bytes=1 << 30))
    error = refused(limited, claim(plain=True)).error

    assert isinstance(error, Conflict)
    assert error.message == "Job needs a holdfast worker: it has a memory limit."
    assert changed(limited, claim()).after.lease is not None
    assert changed(queued(ProcessSpec(argv=("true",))), claim(plain=True)).after.lease is not None


def test_an_owner_without_a_lease_is_told_why_if_it_was_the_last() -> None:
    job = changed(job_in(State.RUNNING), release(reason="the node drains.")).after

    told = refused(job, heartbeat(1)).error
    stranger = refused(job, heartbeat(7)).error

    nothing = "holds nothing: the job is queued, attempt"
    assert told.message == f"Token 1 {nothing} {job.attempt} (the node drains)."
    assert stranger.message == f"Token 7 {nothing} {job.attempt}."


def test_an_owner_that_goes_on_after_its_own_end_is_told_that_it_counted() -> None:
    ended = changed(job_in(State.RUNNING), complete(Success())).after
    given_back = changed(job_in(State.RUNNING), release(reason="the node drains.")).after

    assert refused(ended, heartbeat(1)).error.advice == ENDED_BY_OWNER
    assert refused(ended, heartbeat(7)).error.advice == Fenced.advice
    assert refused(given_back, heartbeat(1)).error.advice == Fenced.advice
