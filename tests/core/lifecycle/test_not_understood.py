"""What an owner's code does not know is given back for another's, at no cost, and not for ever."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.core.catalogue import ReasonCode, Stage
from holdfast.core.explanation import explain
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import Success, is_last_failure
from holdfast.core.limits import NOT_UNDERSTOOD_DELAY_MAX, NOT_UNDERSTOOD_MAX
from holdfast.core.projection import differences, fold
from holdfast.core.retry import OnExhausted, Retry, give_back_wait
from holdfast.core.spec import Spec
from holdfast.core.state import State
from tests.core.sample_jobs import NOW, after, cancel, changed, claim, complete, enqueue

SECOND = timedelta(seconds=1)
STRANGE = Failure(
    message="send: there is no argument gift; it takes to.",
    code="Invalid",
    retryable=False,
    stage=Stage.INPUT,
    reason_code=ReasonCode.PARSE_ERROR,
    not_understood=True,
)


def given_back(times: int, spec: Spec = Spec()) -> Job:
    """A job that so many workers have not understood."""
    job, now = after(enqueue(spec)), NOW
    for n in range(times):
        now = job.ready_at
        job = changed(job, claim(f"op-{n}"), now).after
        job = changed(job, complete(STRANGE, job.fencing_token), now).after
    return job


def claimed(job: Job) -> Job:
    return changed(job, claim(f"op-{job.attempt}-again"), job.ready_at).after


def test_it_is_given_back_at_no_cost() -> None:
    job = after(enqueue(Spec(retry=Retry(max_failures=1, max_crashes=1))), claim())

    change = changed(job, complete(STRANGE))

    given = change.after
    assert (given.state, given.attempt, given.not_understood) == (State.QUEUED, 2, 1)
    assert (given.failures, given.crashes, given.error, given.lease) == (0, 0, None, None)
    assert given.reason == "w does not understand it: send: there is no argument gift; it takes to."
    when = "2026-01-01T00:00:01Z"
    assert change.events[-1].attributes == {
        "cause": "not_understood",
        "not_understood": 1,
        "ready_at": when,
    }


def test_a_name_that_is_long_is_shortened() -> None:
    job = after(enqueue(), claim())

    given = changed(job, complete(replace(STRANGE, message="x" * 5000))).after

    assert given.reason is not None
    assert len(given.reason) <= 4096
    assert given.reason.startswith("w does not understand it: xxx")


def test_each_time_it_waits_longer_up_to_a_minute() -> None:
    waits = [give_back_wait(n).total_seconds() for n in range(1, NOT_UNDERSTOOD_MAX + 1)]

    assert waits[:7] == [1, 2, 4, 8, 16, 32, 60]
    assert waits[-1] == NOT_UNDERSTOOD_DELAY_MAX.total_seconds() == 60
    assert sum(waits) == 903
    assert give_back_wait(10**9) == NOT_UNDERSTOOD_DELAY_MAX
    job = claimed(given_back(2))
    assert changed(job, complete(STRANGE, 3), NOW).after.ready_at == NOW + 4 * SECOND


def test_whoever_understands_it_runs_it() -> None:
    job = changed(claimed(given_back(3)), complete(Success(), 4), NOW).after

    assert (job.state, job.attempt, job.failures) == (State.SUCCEEDED, 4, 0)
    assert job.not_understood == 3


@pytest.mark.parametrize(
    ("policy", "end"),
    [
        (OnExhausted.DEAD_LETTER, State.DEAD_LETTERED),
        (OnExhausted.FAIL, State.FAILED),
        (OnExhausted.TIMEOUT, State.FAILED),
    ],
)
def test_after_so_many_times_it_is_the_parse_error_that_it_was(policy: OnExhausted, end: State) -> None:
    spec = Spec(retry=Retry(on_exhausted=policy))
    job = claimed(given_back(NOT_UNDERSTOOD_MAX - 1, spec))
    assert not is_last_failure(job, STRANGE)
    job = claimed(changed(job, complete(STRANGE, job.fencing_token), job.ready_at).after)
    assert is_last_failure(job, STRANGE)

    ended = changed(job, complete(STRANGE, job.fencing_token), job.ready_at).after

    assert (ended.state, ended.failures, ended.error) == (end, 1, STRANGE)
    hopeful = complete(replace(STRANGE, retryable=True), job.fencing_token)
    assert changed(job, hopeful, job.ready_at).after == ended
    assert ended.not_understood == NOT_UNDERSTOOD_MAX
    assert ended.reason == f"parse_error: {STRANGE.message}"
    if ended.dead_letter is not None:
        letter = ended.dead_letter
        assert (letter.reason_code, letter.stage) == (ReasonCode.PARSE_ERROR, Stage.INPUT)


def test_a_worker_that_says_no_more_than_that_ends_it_in_the_same_way() -> None:
    job = claimed(given_back(NOT_UNDERSTOOD_MAX))
    bare = Failure(message="no such kind", not_understood=True)

    letter = changed(job, complete(bare, job.fencing_token), job.ready_at).after.dead_letter

    assert letter is not None
    assert (letter.reason_code, letter.stage) == (ReasonCode.PARSE_ERROR, Stage.INPUT)


def test_the_reason_that_was_given_stays() -> None:
    job = claimed(given_back(NOT_UNDERSTOOD_MAX))
    other = replace(STRANGE, reason_code=ReasonCode.POLICY_VIOLATION)

    letter = changed(job, complete(other, job.fencing_token), job.ready_at).after.dead_letter

    assert letter is not None
    assert letter.reason_code is ReasonCode.POLICY_VIOLATION


def test_one_that_was_asked_to_stop_is_not_given_back() -> None:
    job = changed(after(enqueue(), claim()), cancel()).after

    assert is_last_failure(job, STRANGE)
    assert changed(job, complete(STRANGE)).after.state is State.CANCELLED


def test_the_log_knows_how_often() -> None:
    job, log = after(enqueue()), list(changed(None, enqueue()).events)
    for n in range(3):
        for command in (claim(f"op-{n}"), complete(STRANGE, n + 1)):
            change = changed(job, replace(command, op_id=f"{n}-{command.op_id}"), job.ready_at)
            job, log = change.after, [*log, *change.events]

    folded = fold(log, job.job_id)

    assert folded.job.not_understood == 3
    assert differences(job, folded) == []
    other = replace(job, not_understood=2)
    assert [one.field for one in differences(other, folded)] == ["not_understood"]


def test_why_says_who_does_not_know_what_and_what_to_do() -> None:
    job = given_back(1)
    past = " Attempt 1 ended: w does not understand it: send: there is no argument gift; it takes to."
    known = (
        " It was given back {}, of at most 20, by workers whose code does not know what it names:"
        " start one with the code that made it."
    )

    assert explain(job, NOW) == (
        "It waits until 2026-01-01 00:00:01 UTC (1.0 s); then any worker on queue default may claim it."
        + past
        + known.format("once")
    )
    thrice = given_back(3)
    again = explain(thrice, thrice.updated_at)
    assert again.endswith(past.replace("Attempt 1", "Attempt 3") + known.format("3 times"))


def test_at_its_limit_it_is_the_last_failure_even_if_the_owner_calls_it_worth_another_try() -> None:
    hopeful = replace(STRANGE, retryable=True)
    job = after(enqueue(), claim())

    assert not is_last_failure(replace(job, not_understood=NOT_UNDERSTOOD_MAX - 1), hopeful)
    spent = replace(job, not_understood=NOT_UNDERSTOOD_MAX)
    assert is_last_failure(spent, hopeful)
    assert changed(spent, complete(hopeful)).after.ended
