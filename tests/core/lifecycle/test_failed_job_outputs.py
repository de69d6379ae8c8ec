"""The outputs of a job that ended without success: what was found is put down, and its end stays."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.core.catalogue import EventClass, EventType
from holdfast.core.errors import Conflict, Denied, Invalid
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import Expire, Outcome, Stopped, Success
from holdfast.core.limits import MESSAGE_CHARACTERS_MAX
from holdfast.core.outputs import VALIDATION_TRIES_MAX, Output, ValidationProgress, ValidationResult
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.core.state import UNSUCCESSFUL, State
from tests.core.sample_jobs import (
    HURRIED,
    LATER,
    NOW,
    ONCE,
    PERMANENT,
    PROMISING,
    TRANSIENT,
    USER,
    WORKER,
    after,
    cancel,
    changed,
    claim,
    complete,
    enqueue,
    heartbeat,
    job_in,
    judge,
    look,
    refused,
)

SECOND = timedelta(seconds=1)
ENDS: dict[State, Job] = {
    State.FAILED: after(enqueue(PROMISING), claim(), complete(PERMANENT)),
    State.CANCELLED: after(enqueue(PROMISING), claim(), cancel(hard=True)),
    State.TIMEOUT: changed(after(enqueue(replace(HURRIED, promised_outputs=8))), Expire(), LATER).after,
    State.DEAD_LETTERED: after(enqueue(replace(PROMISING, retry=ONCE.retry)), claim(), complete(TRANSIENT)),
}
FAILED = ENDS[State.FAILED]
each_end = pytest.mark.parametrize("job", ENDS.values(), ids=ENDS)


def test_every_unsuccessful_end_is_among_these() -> None:
    assert set(ENDS) == UNSUCCESSFUL
    assert all(job.state is state for state, job in ENDS.items())


@each_end
def test_what_is_there_is_a_fact_beside_the_end(job: Job) -> None:
    evidence = (Output(name="a", missing="not there"),)

    change = changed(job, judge(5, 3, evidence=evidence, version=job.version), LATER + SECOND)

    [event] = change.events
    assert change.after == replace(
        job,
        found=ValidationResult(verified=5, missing=3),
        version=job.version + 1,
        updated_at=LATER + SECOND,
    )
    assert (event.event_type, event.event_class) == (
        EventType.OUTPUTS_VERIFIED,
        EventClass.CONTROL,
    )
    assert event.attributes == {
        "found": {"verified": 5, "missing": 3},
        "evidence": [{"name": "a", "missing": "not there"}],
    }
    assert (event.offset, event.transition_no, event.to_state) == (job.version + 1, None, None)


@each_end
@pytest.mark.parametrize("verified", [0, 5, 8])
def test_no_verdict_changes_the_end(job: Job, verified: int) -> None:
    judged = changed(job, judge(verified, 8 - verified), LATER).after

    assert (judged.state, judged.ended_at, judged.reason) == (job.state, job.ended_at, job.reason)
    assert (judged.error, judged.transition_no) == (job.error, job.transition_no)
    assert judged.resumable is (verified < 8)


def test_the_same_finding_is_put_down_once() -> None:
    judged = changed(FAILED, judge(5, 3)).after

    assert changed(judged, judge(5, 3), LATER).after is judged
    looking = changed(judged, look(done=3, total=8), LATER).after
    again = changed(looking, judge(5, 3), LATER)
    assert (again.events, again.after) == ((), judged)


def test_another_finding_is_another_fact() -> None:
    judged = changed(FAILED, judge(5, 3)).after

    change = changed(judged, judge(8, 0), LATER)

    assert [event.event_type for event in change.events] == [EventType.OUTPUTS_VERIFIED]
    assert change.after.found == ValidationResult(verified=8)
    assert not change.after.resumable


@each_end
@pytest.mark.parametrize("override", [State.SUCCEEDED, State.FAILED])
def test_no_override_changes_the_end(job: Job, override: State) -> None:
    command = judge(0, 0, actor=USER, override=override, reason="I know better")

    error = refused(job, command).error

    assert isinstance(error, Conflict)
    assert str(error) == f"Job is {job.state}: it has ended, and no override changes that."


@each_end
@pytest.mark.parametrize("actor", [USER, WORKER, "system:expire"])
def test_only_a_validator_says_what_is_there(job: Job, actor: str) -> None:
    assert isinstance(refused(job, judge(5, 3, actor=actor)).error, Denied)


def test_a_verdict_on_a_version_that_has_moved_is_refused() -> None:
    judged = changed(FAILED, judge(5, 3)).after

    for command in (judge(8, 0, version=FAILED.version), look(version=FAILED.version)):
        assert isinstance(refused(judged, command).error, Conflict)
    assert isinstance(refused(FAILED, judge(5, 2)).error, Invalid)


def test_a_job_that_succeeded_or_promised_nothing_is_not_judged() -> None:
    running = after(enqueue(PROMISING), claim(), heartbeat())
    whole = changed(job_in(State.VALIDATING), judge(8, 0)).after
    for job in (job_in(State.SUCCEEDED), job_in(State.FAILED), running, whole):
        for command in (judge(8, 0), look()):
            error = refused(job, command).error
            assert str(error) == f"Job is {job.state}: there are no outputs to validate."


@each_end
def test_it_is_unverified_until_somebody_has_looked(job: Job) -> None:
    assert job.unvalidated
    assert not job.resumable
    assert not changed(job, judge(0, 8)).after.unvalidated
    for other in (job_in(State.PARTIAL_SUCCESS), job_in(State.VALIDATING), job_in(State.FAILED)):
        assert not other.unvalidated
    assert job_in(State.PARTIAL_SUCCESS).resumable


def test_what_cannot_be_seen_is_tried_a_bounded_number_of_times() -> None:
    job, now, waits = FAILED, NOW, []
    for _ in range(VALIDATION_TRIES_MAX):
        job = changed(job, look(trouble="no disk"), now).after
        assert job.check is not None
        if job.check.next_at is not None:
            waits.append(job.check.next_at - now)
            now = job.check.next_at

    assert waits[:3] == [10 * SECOND, 20 * SECOND, 60 * SECOND]
    assert len(waits) == VALIDATION_TRIES_MAX - 1
    assert max(waits) == 900 * SECOND
    assert sum(waits, 0 * SECOND) == timedelta(hours=4, minutes=24)
    assert job.check == ValidationProgress(tries=VALIDATION_TRIES_MAX, reason="no disk")
    assert (job.state, job.found, job.version) == (State.FAILED, None, FAILED.version)


def test_what_is_known_is_not_due_again_though_it_cannot_be_seen_now() -> None:
    judged = changed(FAILED, judge(5, 3)).after

    blind = changed(judged, look(trouble="no disk")).after

    assert blind == replace(judged, check=ValidationProgress(tries=1, reason="no disk"))


@pytest.mark.parametrize(
    "outcome",
    [
        replace(PERMANENT, where="box-1:/data"),
        replace(TRANSIENT, where="box-1:/data"),
        Stopped(where="box-1:/data"),
    ],
)
def test_where_it_ran_is_kept_for_whoever_looks(outcome: Outcome) -> None:
    spec = replace(PROMISING, retry=ONCE.retry)
    job = after(enqueue(spec), claim(), heartbeat())

    change = changed(job, complete(outcome), LATER)

    assert change.after.check == ValidationProgress(where="box-1:/data", next_at=LATER + 15 * SECOND)
    [event] = change.events
    assert event.attributes["where"] == "box-1:/data"
    unseen = changed(after(enqueue(spec), claim()), complete(outcome), LATER)
    assert [event.to_state for event in unseen.events] == [State.RUNNING, change.after.state]
    assert unseen.events[0].attributes == {}
    assert unseen.events[1].attributes == event.attributes
    assert change.after.error is None or change.after.error.where is None
    judged = changed(change.after, judge(5, 3), LATER).after
    assert judged.check == ValidationProgress(where="box-1:/data")


@pytest.mark.parametrize("promised", [0, 8])
def test_where_an_attempt_ran_is_not_kept_when_another_follows_or_nothing_was_promised(
    promised: int,
) -> None:
    spec = replace(PROMISING, promised_outputs=promised, retry=Retry(max_failures=2))
    job = after(enqueue(spec), claim())
    failure = Failure(message="x", retryable=promised > 0, where="box-1:/data")

    change = changed(job, complete(failure))

    assert change.after.state is (State.QUEUED if promised else State.FAILED)
    assert change.after.check is None
    assert "where" not in change.events[-1].attributes


def test_a_long_place_is_cut() -> None:
    job = after(enqueue(PROMISING), claim())

    check = changed(job, complete(replace(PERMANENT, where="x" * 5000))).after.check

    assert check is not None
    assert len(check.where or "") <= MESSAGE_CHARACTERS_MAX


def test_a_single_promised_output_is_looked_for_like_many() -> None:
    job = after(enqueue(Spec(promised_outputs=1)), claim())

    failed = changed(job, complete(replace(PERMANENT, where="box-1:/data"))).after

    assert failed.unvalidated
    assert failed.check == ValidationProgress(where="box-1:/data", next_at=NOW + 15 * SECOND)
    assert changed(failed, judge(1, 0)).after.found == ValidationResult(verified=1)


def test_a_failed_validation_leaves_where_it_ran() -> None:
    done = after(enqueue(PROMISING), claim(), complete(Success(where="box-1:/data")))

    assert changed(done, judge(0, 8)).after.check == ValidationProgress(where="box-1:/data")
