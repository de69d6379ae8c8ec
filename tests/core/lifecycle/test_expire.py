"""What time and a restore do to a job: lost leases, deadlines, and owners that are shut out."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.core.catalogue import ReasonCode
from holdfast.core.errors import Fenced
from holdfast.core.job import Job, ResourceLock
from holdfast.core.lifecycle import Expire, Restore, Success
from holdfast.core.projection import fold, folded_view
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from tests.core.sample_jobs import (
    LATER,
    NOW,
    after,
    cancel,
    changed,
    claim,
    complete,
    enqueue,
    job_in,
    refused,
)

SECOND = timedelta(seconds=1)
RESTORE = Restore(op_id="op-restore")


def running(**retry: object) -> Job:
    spec = Spec(retry=Retry(**retry))  # type: ignore[arg-type]
    return after(enqueue(spec), claim())


def test_a_lost_lease_opens_the_next_attempt_in_the_old_place() -> None:
    change = changed(job_in(State.RUNNING), Expire(), LATER)

    job = change.after
    assert (job.state, job.attempt, job.crashes, job.failures) == (State.QUEUED, 2, 1, 0)
    assert (job.ready_at, job.reason) == (NOW, "w lost the lease")
    assert change.events[0].attributes == {"cause": "lease_expired", "crashes": 1}
    assert change.events[0].op_id == "expire:3"


@pytest.mark.parametrize("state", list(State))
def test_looking_again_changes_nothing(state: State) -> None:
    job = changed(job_in(state), Expire(), LATER).after

    assert changed(job, Expire(), LATER).after is job


@pytest.mark.parametrize(("crashes", "times"), [(0, "once"), (2, "3 times")])
def test_the_last_lost_lease_parks_the_job_with_reason_timeout(crashes: int, times: str) -> None:
    job = replace(running(max_crashes=crashes + 1), crashes=crashes)

    ended = changed(job, Expire(), LATER).after

    assert ended.dead_letter is not None
    assert ended.dead_letter.reason_code is ReasonCode.TIMEOUT
    assert ended.crashes == crashes + 1
    assert f"lost {times}, last by w" in (ended.reason or "")


def test_a_deadline_ends_a_leased_job_even_with_budget_left() -> None:
    job = after(enqueue(Spec(ttl=30 * SECOND)), claim())

    ended = changed(job, Expire(), NOW + 30 * SECOND).after

    assert ended.dead_letter is not None
    assert ended.dead_letter.reason_code is ReasonCode.TIMEOUT
    assert ended.attempt == 1


def test_a_restore_shuts_out_every_owner_and_raises_the_token() -> None:
    change = changed(job_in(State.RUNNING), RESTORE, resource=ResourceLock("disk", 1, "job-1"))

    job = change.after
    assert [event.event_type for event in change.events] == ["job_restored", "job_requeued"]
    assert (job.state, job.attempt, job.fencing_token) == (State.QUEUED, 2, 1 + 2**40)
    assert (job.failures, job.crashes) == (0, 0)
    assert change.resource == ResourceLock("disk", 1, None)
    assert isinstance(refused(job, complete(Success(), 1)).error, Fenced)


def test_a_restore_keeps_a_cancel_request_and_leaves_ended_jobs_alone() -> None:
    asked = changed(job_in(State.RUNNING), cancel()).after
    ended = job_in(State.SUCCEEDED)
    made = changed(None, enqueue())

    waiting = changed(made.after, RESTORE)

    assert changed(asked, RESTORE).after.state is State.CANCELLED
    assert changed(ended, RESTORE).after is ended
    assert waiting.after.fencing_token == 2**40
    assert fold((*made.events, *waiting.events), "job-1").job == folded_view(waiting.after)


def test_a_restore_takes_no_job_from_nobody() -> None:
    asked = changed(job_in(State.SUBMITTING), cancel()).after

    restored = changed(asked, RESTORE).after

    assert (restored.state, restored.fencing_token) == (State.SUBMITTING, 2**40)
    assert restored.cancel == asked.cancel


def test_a_lease_lost_before_the_deadline_is_no_missed_deadline() -> None:
    job = after(enqueue(Spec(ttl=timedelta(hours=1))), claim())

    again = changed(job, Expire(), LATER).after

    assert (again.state, again.crashes, again.reason) == (State.QUEUED, 1, "w lost the lease")


def test_a_missed_deadline_costs_the_owner_a_crash() -> None:
    job = after(enqueue(Spec(ttl=30 * SECOND)), claim())

    ended = changed(job, Expire(), NOW + 30 * SECOND).after

    assert (ended.reason, ended.crashes) == ("timeout: the deadline passed", 1)


def test_the_last_lost_lease_is_told_word_for_word() -> None:
    ended = changed(running(max_crashes=1), Expire(), LATER).after

    assert ended.reason == "timeout: the lease was lost once, last by w"
