"""Cancelling: who may ask, who is asked, and what an asked owner can still do."""

import pytest
from msgspec import to_builtins

from holdfast.core.errors import Conflict, Fenced
from holdfast.core.job import Failure, ResourceLock
from holdfast.core.lifecycle import Expire, Stopped, Success
from holdfast.core.limits import MESSAGE_CHARACTERS_MAX
from holdfast.core.state import ENDED, LEASED, State
from tests.core.sample_jobs import (
    LATER,
    PERMANENT,
    TRANSIENT,
    USER,
    cancel,
    changed,
    complete,
    job_in,
    refused,
    release,
)

CRASH = Failure(message="killed by signal 9", exit_code=137, crash=True)


@pytest.mark.parametrize("outcome", [TRANSIENT, PERMANENT, CRASH, Stopped()])
def test_whatever_an_asked_owner_reports_but_success_ends_cancelled(outcome: Failure) -> None:
    job = changed(job_in(State.RUNNING), cancel(reason="enough")).after

    ended = changed(job, complete(outcome)).after

    assert (ended.state, ended.reason, ended.lease) == (State.CANCELLED, "enough", None)


def test_success_wins_over_a_cancel_request() -> None:
    job = changed(job_in(State.RUNNING), cancel()).after

    assert changed(job, complete(Success())).after.state is State.SUCCEEDED


@pytest.mark.parametrize(
    ("asked", "said", "words"),
    [
        (None, "the pod is going", "the pod is going"),
        (None, None, "cancelled by worker:w"),
        ("enough", None, "enough"),
    ],
)
def test_a_stop_says_why(asked: str | None, said: str | None, words: str) -> None:
    job = job_in(State.RUNNING)
    if asked:
        job = changed(job, cancel(reason=asked)).after

    assert changed(job, complete(Stopped(reason=said))).after.reason == words


def test_a_release_after_a_cancel_request_ends_cancelled() -> None:
    job = changed(job_in(State.RUNNING), cancel()).after

    assert changed(job, release()).after.state is State.CANCELLED


@pytest.mark.parametrize("state", [*sorted(ENDED), State.VALIDATING])
def test_a_cancel_comes_too_late_once_the_work_is_done(state: State) -> None:
    refusal = refused(job_in(state), cancel(hard=True))

    assert isinstance(refusal.error, Conflict)
    assert refusal.error.version == job_in(state).version


def test_a_soft_cancel_asks_once_and_leaves_the_owner_its_lease() -> None:
    job = job_in(State.RUNNING)

    asked = changed(job, cancel(reason="enough"))
    again = changed(asked.after, cancel(reason="really"))

    assert [event.event_type for event in asked.events] == ["job_cancel_requested"]
    assert asked.after.cancel is not None
    assert (asked.after.cancel.reason, asked.after.cancel.actor) == ("enough", USER)
    assert (asked.after.lease, asked.after.version) == (job.lease, 4)
    assert again.after is asked.after


@pytest.mark.parametrize("state", sorted(LEASED))
def test_a_hard_cancel_ends_at_once_and_frees_the_lock(state: State) -> None:
    ended = changed(job_in(state), cancel(hard=True), resource=ResourceLock("disk", 1, "job-1"))

    assert (ended.after.state, ended.after.lease) == (State.CANCELLED, None)
    assert ended.after.reason == "cancelled by user:ana"
    assert ended.resource == ResourceLock("disk", 1, None)
    assert isinstance(refused(ended.after, complete(Success())).error, Fenced)


def test_an_ignored_cancel_takes_effect_when_the_lease_ends() -> None:
    job = changed(job_in(State.RUNNING), cancel(reason="enough")).after

    ended = changed(job, Expire(), LATER).after

    assert (ended.state, ended.reason, ended.crashes) == (State.CANCELLED, "enough", 1)


@pytest.mark.parametrize(("outcome", "failures", "crashes"), [(TRANSIENT, 1, 0), (CRASH, 0, 1)])
def test_what_went_wrong_on_the_way_to_a_cancel_is_kept_and_counted(
    outcome: Failure, failures: int, crashes: int
) -> None:
    job = changed(job_in(State.RUNNING), cancel(reason="enough")).after

    change = changed(job, complete(outcome), LATER)

    [event] = change.events
    ended = change.after
    assert (ended.error, ended.failures, ended.crashes) == (outcome, failures, crashes)
    assert ended.ended_at == LATER
    assert event.attributes == {
        "failures": failures,
        "crashes": crashes,
        "error": to_builtins(outcome),
    }


def test_a_cancel_without_a_reason_names_who_asked() -> None:
    job = changed(job_in(State.RUNNING), cancel()).after

    for command in (complete(Stopped()), release(), complete(TRANSIENT)):
        assert changed(job, command).after.reason == f"cancelled by {USER}"


def test_an_owner_that_stops_has_the_last_word() -> None:
    job = changed(job_in(State.RUNNING), cancel(reason="enough")).after

    ended = changed(job, complete(Stopped(reason="cleaned up")))

    assert ended.after.reason == "cleaned up"
    assert ended.events[0].attributes == {}


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING])
def test_a_long_reason_is_shortened(state: State) -> None:
    asked = changed(job_in(state), cancel(reason="x" * 5000))
    stopped = changed(job_in(State.RUNNING), complete(Stopped(reason="x" * 5000)))

    for change in (asked, stopped):
        reason = change.events[-1].reason or ""
        assert reason.endswith("[shortened]")
        assert len(reason) <= MESSAGE_CHARACTERS_MAX


@pytest.mark.parametrize(("state", "token"), [(State.SUBMITTING, None), (State.RUNNING, 1)])
def test_a_cancel_request_names_the_token_it_met_if_there_was_one(state: State, token: int | None) -> None:
    [event] = changed(job_in(state), cancel()).events

    assert event.fencing_token == token
