"""Why a job is where it is: every state says what happens next, in words a tired person understands."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.core.explanation import describe_retry, explain, format_duration
from holdfast.core.job import Failure, Job, Progress
from holdfast.core.lifecycle import Expire
from holdfast.core.process_spec import ProcessSpec, encode_process_spec
from holdfast.core.retry import FUNCTION_RETRY, Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from tests.core.sample_jobs import (
    NOW,
    TRANSIENT,
    after,
    cancel,
    changed,
    claim,
    enqueue,
    heartbeat,
    job_in,
)

SECOND = timedelta(seconds=1)


HEARD = (
    "Its owner was last heard of 5.0 s ago; unless it renews, the lease ends in 55 s"
    " and another worker may take over."
)
RUNNING = "It has been running for 5.0 s, without any output or event so far. It has no timeout."
START = "If nothing moves, start one: holdfast worker -q default"
OVERRIDE = " If you know better: holdfast validate job-1 --override succeeded --reason ..."
SENTENCES = {
    State.PENDING: "It is registered and waits for its submitter to hand it to an executor.",
    State.SUBMITTING: "It is being handed to an executor, 5.0 s so far.",
    State.QUEUED: f"It has been ready for 5.0 s and waits for a worker on queue default. {START}",
    State.ASSIGNED: f"w has claimed it but not started (attempt 1, token 1). {HEARD}",
    State.RUNNING: f"w is running it (attempt 1, token 1). {HEARD} {RUNNING}",
    State.AGGREGATING: f"w is evaluating its targets (attempt 1, token 1). {HEARD} {RUNNING}",
    State.VALIDATING: f"The work is done; it waits for your own validator to validate its outputs.{OVERRIDE}",
    State.PARTIAL_SUCCESS: "5 of its 8 outputs are there, 3 are missing."
    " To make only those: holdfast resume job-1",
    State.SUCCEEDED: "It succeeded on the first attempt. Nothing more will happen.",
    State.FAILED: "It failed on the first attempt: no such model. To run it again: holdfast replay job-1",
    State.CANCELLED: "It was cancelled: cancelled by user:ana. To run it again: holdfast replay job-1",
    State.TIMEOUT: "It timed out on the first attempt: timeout: the deadline passed before it was"
    " claimed. To run it again: holdfast replay job-1",
    State.DEAD_LETTERED: "It was parked among the dead letters on the first attempt:"
    " exhausted_retries: the network hiccuped."
    " To run it again: holdfast dead-letters replay job-1",
}


@pytest.mark.parametrize("state", list(State))
def test_each_state_says_why_and_what_next(state: State) -> None:
    assert explain(job_in(state), NOW + 5 * SECOND) == SENTENCES[state]


def test_an_executor_is_named() -> None:
    pushed = after(enqueue(Spec(executor="k8s"), register=True))
    queued = after(enqueue(Spec(executor="k8s", region="eu")))

    assert "hand it to executor k8s." in explain(pushed, NOW)
    assert explain(queued, NOW) == (
        "It has been ready for 0.0 s and waits for a claim on behalf of executor k8s."
    )


def test_a_kind_of_ones_own_is_named_and_needs_a_worker_of_ones_own() -> None:
    job = after(enqueue(Spec(kind="render", region="eu")))

    assert explain(job, NOW) == (
        "It has been ready for 0.0 s and waits for a worker on queue default in region eu"
        " that runs the kind render."
    )


def test_a_kind_for_an_executor_is_not_said_twice() -> None:
    job = after(enqueue(Spec(kind="render", executor="k8s")))

    assert explain(job, NOW).endswith("on behalf of executor k8s.")


@pytest.mark.parametrize(
    ("waiting", "words"),
    [(None, "."), (0, "."), (1, ", beside 1 other job."), (2, ", beside 2 other jobs.")],
)
def test_the_others_in_the_queue_are_counted(waiting: int | None, words: str) -> None:
    told = explain(job_in(State.QUEUED), NOW, waiting=waiting)

    assert f" on queue default{words} {START}" in told


def test_region_deadline_and_the_attempt_before_are_told() -> None:
    job = after(enqueue(Spec(region="eu-west", ttl=timedelta(hours=1))))
    again = replace(job, attempt=2, reason="w lost the lease.")

    assert f"in region eu-west. It is given up at 01:00:00 UTC. {START}" in explain(job, NOW)
    assert f"UTC. Attempt 1 ended: w lost the lease. {START}" in explain(again, NOW)


def test_a_delayed_job_says_until_when() -> None:
    job = after(enqueue(Spec(delay=90 * SECOND)))

    assert explain(job, NOW) == (
        "It waits until 2026-01-01 00:01:30 UTC (90 s); then any worker on queue default may claim it."
    )
    assert explain(job, NOW + 90 * SECOND).startswith("It has been ready for 0.0 s")


def failed(job: Job, times: int, error: Failure = TRANSIENT) -> Job:
    """The job after its owners have failed so often, the last time just now; it is ready in four minutes."""
    budget = {"crashes": times} if error.crash else {"failures": times}
    ready_at = NOW + timedelta(minutes=4)
    return replace(job, attempt=times + 1, ready_at=ready_at, error=error, reason=error.message, **budget)


def test_a_job_that_is_tried_again_says_when_and_when_for_the_last_time() -> None:
    job = after(enqueue(Spec(kind="mail", retry=FUNCTION_RETRY)))

    assert explain(failed(job, 3), NOW) == (
        "It waits until 2026-01-01 00:04:00 UTC (4 min); then any worker on queue default may claim it."
        " Next try in 4 min (4 of 10), the last about 00:21 UTC."
        " Attempt 3 ended: the network hiccuped."
    )
    assert " Next try in 4 min, the last of 10. " in explain(failed(job, 9), NOW)
    assert "Next try" not in explain(replace(failed(job, 3), failures=0), NOW)


def test_the_last_try_of_another_day_has_its_date() -> None:
    retry = Retry(max_failures=10, backoff=timedelta(hours=8), backoff_max=timedelta(hours=8))
    job = after(enqueue(Spec(kind="mail", retry=retry)))

    assert ", the last about 2026-01-02 04:04 UTC. " in explain(failed(job, 2), NOW)


def test_a_crash_is_counted_against_its_own_budget() -> None:
    job = after(enqueue(Spec(kind="mail", retry=FUNCTION_RETRY)))
    killed = Failure(message="it was killed", code="ExitCode", crash=True)

    assert " Next try in 4 min (3 of 5), the last about " in explain(failed(job, 2, killed), NOW)
    assert describe_retry(failed(job, 2, killed)) == "attempt 2 of 5; next in 4 min"


def test_the_end_of_an_attempt_says_how_many_there_are_and_when_the_next_one_begins() -> None:
    job = after(enqueue(Spec(kind="mail", retry=FUNCTION_RETRY)))

    assert describe_retry(failed(job, 3)) == "attempt 3 of 10; next in 4 min"
    assert describe_retry(replace(failed(job, 3), attempt=6)) == "attempt 5, failure 3 of 10; next in 4 min"
    assert describe_retry(replace(failed(job, 3), ready_at=NOW)) == "attempt 3 of 10; next at once"


def test_a_locked_out_job_names_the_holder_while_it_holds() -> None:
    job = replace(after(enqueue(Spec(lock="disk"))), job_id="job-2")
    holder = job_in(State.RUNNING)

    assert explain(job, NOW, holder=holder) == (
        "It waits for resource lock disk, held by job job-1 (running, owner w);"
        " it is claimable as soon as that ends."
    )
    assert "waits for a worker" in explain(job, NOW, holder=job_in(State.SUCCEEDED))
    assert "waits for a worker" in explain(job, NOW, holder=replace(holder, job_id="job-2"))


def test_a_running_job_tells_its_progress_and_when_its_lease_ends() -> None:
    job = job_in(State.RUNNING)
    told = changed(job, heartbeat(progress=Progress(3, 8))).after
    counted = changed(job, heartbeat(progress=Progress(3))).after

    running = "w is running it (attempt 1, token 1)"
    assert explain(told, NOW + 5 * SECOND) == f"{running}, 3 of 8 done. {HEARD} {RUNNING}"
    assert explain(counted, NOW + 5 * SECOND) == f"{running}, 3 done. {HEARD} {RUNNING}"
    assert explain(job, NOW + 60 * SECOND) == (
        f"{running}. Its owner was last heard of 60 s ago;"
        " the lease has lapsed, so the next claim takes the job from it."
        f" {RUNNING.replace('5.0 s', '60 s')}"
    )


def test_a_command_that_needs_a_holdfast_worker_says_what_for() -> None:
    limited = Spec(payload=encode_process_spec(ProcessSpec(argv=("make",), memory_bytes=20_000_000)))

    assert explain(after(enqueue(limited)), NOW + 5 * SECOND) == (
        "It has been ready for 5.0 s and waits for a worker on queue default."
        f" It needs a holdfast worker: it has a memory limit. {START}"
    )


def test_a_timeout_that_the_registry_keeps_is_told() -> None:
    spec = Spec(timeout=20 * SECOND, lease=60 * SECOND)
    timed = after(enqueue(spec), claim(timed=True), heartbeat())
    kept = after(enqueue(spec), claim(), heartbeat())

    assert explain(timed, NOW + 5 * SECOND) == (
        "w is running it (attempt 1, token 1). Its owner was last heard of 5.0 s ago;"
        " its timeout ends the attempt in 15 s, if it has not ended by then."
        " It has been running for 5.0 s, without any output or event so far."
    )
    assert f"{HEARD} It has been running" in explain(kept, NOW + 5 * SECOND)


def test_a_cancel_request_and_a_suspicion_are_told() -> None:
    asked = changed(job_in(State.RUNNING), cancel()).after
    job = changed(job_in(State.QUEUED), claim(heartbeat_interval=30 * SECOND)).after
    suspected = changed(job, Expire(), NOW + 60 * SECOND).after

    assert explain(asked, NOW).endswith(
        "token 1). A cancel was requested by user:ana; it ends when the owner stops,"
        " or when the lease ends in 60 s."
    )
    assert explain(suspected, NOW + 60 * SECOND).endswith(
        "60 s ago and has missed two heartbeats; unless it renews, the lease ends in 30 s"
        " and another worker may take over."
    )


def test_an_end_after_several_attempts_counts_them() -> None:
    done = replace(job_in(State.SUCCEEDED), attempt=2)
    failed = replace(job_in(State.FAILED), attempt=3)

    assert explain(done, NOW) == "It succeeded after 2 attempts. Nothing more will happen."
    assert explain(failed, NOW).startswith("It failed after 3 attempts: no such model. To run")


def test_a_reason_ends_with_one_full_stop_or_is_said_to_be_missing() -> None:
    ended = job_in(State.CANCELLED)

    assert "cancelled: enough. To" in explain(replace(ended, reason="enough."), NOW)
    assert "cancelled: no reason was given. To" in explain(replace(ended, reason=None), NOW)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0.0 s"),
        (9.94, "9.9 s"),
        (10, "10 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7199, "120 min"),
        (7200, "2.0 h"),
        (172_619, "47.9 h"),
        (172_621, "48.0 h"),
        (172_799.5, "48.0 h"),
        (172_800, "2.0 days"),
        (100_000 * 86_400, "100000.0 days"),
    ],
)
def test_a_span_is_said_as_people_say_it(seconds: float, words: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == words


@pytest.mark.parametrize(
    ("timeout", "published", "words"),
    [
        (None, 3, "for 5.0 s, its last output or event came 2.0 s ago. It has no timeout."),
        (9, 3, "for 5.0 s, its last output or event came 2.0 s ago. Its timeout of 9.0 s is over in 4.0 s."),
        (4, None, "without any output or event so far. Its timeout of 4.0 s was over 1.0 s ago."),
    ],
)
def test_a_running_job_says_how_long_it_runs_and_since_when_it_is_silent(
    timeout: float | None, published: int | None, words: str
) -> None:
    running = job_in(State.RUNNING)
    limit = None if timeout is None else timeout * SECOND
    running = replace(running, spec=replace(running.spec, timeout=limit))
    published_at = None if published is None else NOW + published * SECOND

    assert words in explain(running, NOW + 5 * SECOND, published_at=published_at)
