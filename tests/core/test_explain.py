"""Why a job is where it is: every state says what happens next, in words a tired person understands."""

from datetime import timedelta

import pytest
from lives import (
    HURRIED,
    LATER,
    NOW,
    TRANSIENT,
    after,
    cancel,
    changed,
    claim,
    complete,
    enqueue,
    heartbeat,
    job_in,
)
from msgspec.structs import replace

from holdfast.core.explain import explain, span
from holdfast.core.job import Progress
from holdfast.core.lifecycle import Expire
from holdfast.core.spec import Spec
from holdfast.core.state import State

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (State.PENDING, "waits for its submitter to hand it to an executor"),
        (State.SUBMITTING, "being handed to an executor, 5.0 s so far"),
        (State.QUEUED, "ready for 5.0 s and waits for a worker on queue default"),
        (State.ASSIGNED, "w has claimed it but not started (attempt 1, token 1)"),
        (State.RUNNING, "w is running it"),
        (State.AGGREGATING, "w is evaluating its targets"),
        (State.VALIDATING, "its promised outputs are being checked"),
        (State.PARTIAL_SUCCESS, "3 of its 8 outputs are missing"),
        (State.SUCCEEDED, "It succeeded on the first attempt"),
        (State.FAILED, "It failed on the first attempt: no such model. To run it again: holdfast"),
        (State.CANCELLED, "cancelled by user:ana. To run it again: holdfast retry job-1"),
        (State.TIMEOUT, "the deadline passed before anybody claimed it. To run it again"),
        (State.DEAD_LETTERED, "exhausted_retries: the network hiccuped. To run it again"),
    ],
)
def test_each_state_says_why_and_what_next(state: State, words: str) -> None:
    assert words in explain(job_in(state), NOW + 5 * SECOND)


def test_an_executor_is_named() -> None:
    pushed = after(enqueue(Spec(executor="k8s"), register=True))
    queued = after(enqueue(Spec(executor="k8s", region="eu")))

    assert "hand it to executor k8s" in explain(pushed, NOW)
    assert "a claim on behalf of executor k8s" in explain(queued, NOW)


@pytest.mark.parametrize(
    ("waiting", "words"),
    [(None, "default."), (0, "default."), (1, "beside 1 other job."), (2, "beside 2 other jobs.")],
)
def test_the_others_in_the_queue_are_counted(waiting: int | None, words: str) -> None:
    assert words in explain(job_in(State.QUEUED), NOW, waiting=waiting)


def test_region_deadline_and_the_attempt_before_are_told() -> None:
    job = after(enqueue(Spec(region="eu-west", ttl=timedelta(hours=1))))
    again = replace(job, attempt=3, reason="w lost the lease")

    assert "in region eu-west" in explain(job, NOW)
    assert "given up at 01:00:00 UTC" in explain(job, NOW)
    assert "Attempt 2 ended: w lost the lease." in explain(again, NOW)


def test_a_delayed_job_says_until_when() -> None:
    job = after(enqueue(Spec(delay=90 * SECOND)))

    assert "waits until 2026-01-01 00:01:30 UTC (90 s)" in explain(job, NOW)


def test_a_locked_out_job_names_the_holder_while_it_holds() -> None:
    job = replace(after(enqueue(Spec(lock="disk"))), job_id="job-2")
    holder = job_in(State.RUNNING)

    assert "resource lock disk, held by job job-1" in explain(job, NOW, holder=holder)
    assert "waits for a worker" in explain(job, NOW, holder=job_in(State.SUCCEEDED))
    assert "waits for a worker" in explain(job, NOW, holder=job)


def test_a_running_job_tells_its_progress_and_when_its_lease_ends() -> None:
    job = job_in(State.RUNNING)
    told = changed(job, heartbeat(progress=Progress(3, 8))).after
    counted = changed(job, heartbeat(progress=Progress(3))).after

    assert ", 3 of 8 done. Its owner was last heard of 5.0 s ago" in explain(told, NOW + 5 * SECOND)
    assert ", 3 done." in explain(counted, NOW)
    assert "the lease ends in 60 s and another worker may take over" in explain(job, NOW)
    assert "the lease has lapsed, so the next claim takes the job" in explain(job, LATER)


def test_a_cancel_request_and_a_suspicion_are_told() -> None:
    asked = changed(job_in(State.RUNNING), cancel()).after
    job = changed(job_in(State.QUEUED), claim(heartbeat_interval=30 * SECOND)).after
    suspected = changed(job, Expire(), NOW + 60 * SECOND).after

    assert "A cancel was requested by user:ana" in explain(asked, NOW)
    assert "has missed two heartbeats" in explain(suspected, NOW + 60 * SECOND)


def test_an_end_after_several_attempts_counts_them() -> None:
    retried = changed(job_in(State.RUNNING), complete(TRANSIENT)).after

    ended = changed(retried, cancel()).after
    timed_out = replace(after(enqueue(HURRIED)), state=State.TIMEOUT, attempt=3)

    assert "cancelled by user:ana" in explain(ended, LATER)
    assert "no reason was given" in explain(replace(ended, reason=None), LATER)
    assert "after 3 attempts" in explain(timed_out, LATER)


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
        (172_800, "2.0 days"),
    ],
)
def test_a_span_is_said_as_people_say_it(seconds: float, words: str) -> None:
    assert span(timedelta(seconds=seconds)) == words
