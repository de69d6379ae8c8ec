"""What an owner's machine cannot begin is given back for another's, at no cost, and not for ever."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.core.catalogue import Stage
from holdfast.core.explanation import explain
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import Success, is_last_failure
from holdfast.core.limits import NOT_STARTED_MAX
from holdfast.core.projection import differences, fold
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from tests.core.sample_jobs import NOW, after, cancel, changed, claim, complete, enqueue

SECOND = timedelta(seconds=1)
NOWHERE = Failure(
    message="sh could not be started: No such file or directory (/srv/x).",
    code="FileNotFoundError",
    retryable=False,
    stage=Stage.INPUT,
    exit_code=127,
    not_started=True,
)


def given_back(times: int, spec: Spec = Spec()) -> Job:
    """A job that so many workers could not begin."""
    job, now = after(enqueue(spec)), NOW
    for n in range(times):
        now = job.ready_at
        job = changed(job, claim(f"op-{n}"), now).after
        job = changed(job, complete(NOWHERE, job.fencing_token), now).after
    return job


def claimed(job: Job) -> Job:
    return changed(job, claim(f"op-{job.attempt}-again"), job.ready_at).after


def test_it_is_given_back_at_no_cost() -> None:
    job = after(enqueue(Spec(retry=Retry(max_failures=1, max_crashes=1))), claim())

    change = changed(job, complete(NOWHERE))

    given = change.after
    assert (given.state, given.attempt, given.not_started) == (State.QUEUED, 2, 1)
    assert (given.failures, given.crashes, given.not_understood) == (0, 0, 0)
    assert (given.error, given.lease) == (None, None)
    assert given.reason == f"w: {NOWHERE.message}"
    assert given.ready_at == NOW + SECOND
    when = "2026-01-01T00:00:01Z"
    assert change.events[-1].attributes == {"cause": "not_started", "not_started": 1, "ready_at": when}


def test_another_machine_runs_it() -> None:
    job = changed(claimed(given_back(3)), complete(Success(), 4), NOW).after

    assert (job.state, job.attempt, job.failures) == (State.SUCCEEDED, 4, 0)
    assert job.not_started == 3


@pytest.mark.parametrize(("retryable", "end"), [(False, State.FAILED), (True, State.DEAD_LETTERED)])
def test_after_so_many_times_it_ends_with_its_true_error(retryable: bool, end: State) -> None:
    failure = replace(NOWHERE, retryable=retryable)
    spec = Spec(retry=Retry(max_failures=1))
    job = claimed(given_back(NOT_STARTED_MAX - 1, spec))
    assert not is_last_failure(job, failure)
    job = claimed(changed(job, complete(failure, job.fencing_token), job.ready_at).after)
    assert is_last_failure(job, failure)

    ended = changed(job, complete(failure, job.fencing_token), job.ready_at).after

    assert (ended.state, ended.failures, ended.error) == (end, 1, failure)
    assert ended.not_started == NOT_STARTED_MAX
    assert ended.ended_at is not None
    assert ended.ended_at - NOW == 903 * SECOND


def test_after_so_many_times_it_is_a_failure_among_others() -> None:
    job = claimed(given_back(NOT_STARTED_MAX, Spec(retry=Retry(max_failures=2))))
    failure = replace(NOWHERE, retryable=True)

    again = changed(job, complete(failure, job.fencing_token), job.ready_at).after

    assert (again.state, again.failures, again.error) == (State.QUEUED, 1, failure)
    assert again.not_started == NOT_STARTED_MAX


def test_one_that_was_asked_to_stop_is_not_given_back() -> None:
    job = changed(after(enqueue(), claim()), cancel()).after

    assert is_last_failure(job, NOWHERE)
    assert changed(job, complete(NOWHERE)).after.state is State.CANCELLED


def test_the_log_knows_how_often() -> None:
    job, log = after(enqueue()), list(changed(None, enqueue()).events)
    for n in range(3):
        for command in (claim(f"op-{n}"), complete(NOWHERE, n + 1)):
            change = changed(job, replace(command, op_id=f"{n}-{command.op_id}"), job.ready_at)
            job, log = change.after, [*log, *change.events]

    folded = fold(log, job.job_id)

    assert folded.job.not_started == 3
    assert differences(job, folded) == []
    other = replace(job, not_started=2)
    assert [one.field for one in differences(other, folded)] == ["not_started"]


def test_why_tells_from_the_first_time() -> None:
    assert explain(given_back(1), NOW) == (
        "It waits until 2026-01-01 00:00:01 UTC (1.0 s); then any worker on queue default may claim it."
        " Attempt 1 ended: w: sh could not be started: No such file or directory (/srv/x)."
        " It was given back once, of at most 20, by workers that could not start it, or keep what it"
        " made; then it counts as that error."
    )
    assert " It was given back 3 times, of at most 20, " in explain(given_back(3), NOW)
