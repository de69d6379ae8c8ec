"""What is special about a job or a command has no pattern, and what has one keeps each job's own op."""

from datetime import timedelta
from inspect import signature

import pytest
from msgspec.structs import replace

from holdfast.core.job import Job
from holdfast.core.lifecycle import Change, Expire, Success
from holdfast.core.lifecycle.commands import Command
from holdfast.core.lifecycle.pattern import OWN, Template, pattern_of
from holdfast.core.retry import OnExhausted, Retry
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
    judge,
)

QUEUED = job_in(State.QUEUED)
TIMED = after(enqueue(Spec(ttl=timedelta(seconds=1), retry=Retry(on_exhausted=OnExhausted.TIMEOUT))))


@pytest.mark.parametrize(
    ("job", "command"),
    [
        (QUEUED, cancel()),
        (TIMED, Expire()),
        (QUEUED, claim(create=enqueue())),
        (job_in(State.ASSIGNED), claim("op-2")),
        (job_in(State.RUNNING), claim("op-2")),
        (job_in(State.VALIDATING), judge(8, 0)),
        (job_in(State.PARTIAL_SUCCESS), judge(8, 0)),
    ],
    ids=[
        "a cancel",
        "a deadline",
        "a claim that would create it",
        "a claim of what another has lost",
        "a claim of what another ran",
        "a verdict",
        "a later verdict",
    ],
)
def test_it_has_no_pattern(job: Job, command: Command) -> None:
    change = changed(job, command, LATER)

    assert change.after is not job
    assert pattern_of(Template(job), command, change) is None


def test_a_job_that_stays_as_it_is_has_no_pattern() -> None:
    assert pattern_of(Template(QUEUED), claim(), Change(QUEUED, QUEUED)) is None


def test_without_a_command_there_is_no_pattern() -> None:
    assert pattern_of(Template(QUEUED), None, changed(QUEUED, claim())) is None


@pytest.mark.parametrize("job", [QUEUED, job_in(State.ASSIGNED)])
def test_the_events_of_each_job_are_those_of_its_own_op(job: Job) -> None:
    command = claim() if job.state is State.QUEUED else complete(Success())
    pattern = pattern_of(Template(job), command, changed(job, command))
    assert pattern is not None
    other = replace(job, job_id="job-2")

    change = pattern.change(other, "op-of-job-2")

    assert {(event.job_id, event.op_id) for event in change.events} == {("job-2", "op-of-job-2")}
    assert {(event.job_id, event.op_id) for event in change.sample_events} == {("job-1", command.op_id)}
    assert [replace(e, job_id="job-1", op_id=command.op_id) for e in change.events] == list(pattern.events)


def test_a_change_of_its_own_has_its_own_events_for_a_sample() -> None:
    change = changed(None, enqueue(), NOW)

    assert change.sample_events == change.events == change.own_events
    assert len(change.own_events) == 1


def test_what_jobs_that_are_alike_may_differ_in_is_what_each_of_them_is_given() -> None:
    given = tuple(signature(Template(QUEUED).another).parameters)
    own = {"job_id": "job-2", "spec": Spec(), "created_at": LATER, "updated_at": LATER, "ready_at": LATER}

    other = Template(QUEUED).another(**own)  # type: ignore[arg-type]

    assert given == OWN == tuple(own)
    assert other == replace(QUEUED, **own)
