"""Who looks for the outputs of a job: it keeps others away, for a minute, and says what was in its way."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.core.errors import Conflict
from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.core.outputs import VALIDATION_TRIES_MAX, ValidationProgress
from holdfast.core.state import State
from tests.core.sample_jobs import (
    LATER,
    NOW,
    PROMISING,
    USER,
    VALIDATOR,
    after,
    changed,
    claim,
    complete,
    enqueue,
    job_in,
    judge,
    look,
    refused,
)

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)
OTHER = "validator:other"
DEAD = "the bucket does not answer"
PLACED = after(enqueue(PROMISING), claim(), complete(Success(where="box-1:/data")))


def troubled(tries: int, reason: str = DEAD, **changes: object) -> Job:
    """A job whose outputs could not be seen so many times."""
    assert PLACED.check is not None
    check = replace(PLACED.check, tries=tries, reason=reason if tries else None)
    return replace(PLACED, check=check, **changes)


def test_a_job_that_has_just_ended_is_left_to_whoever_ran_it() -> None:
    assert PLACED.check == ValidationProgress(where="box-1:/data", next_at=NOW + 15 * SECOND)
    assert job_in(State.VALIDATING).check == ValidationProgress(next_at=NOW + 15 * SECOND)


def test_where_a_job_ran_is_told_with_its_ending() -> None:
    command = complete(Success(where="box-1:/" + "x" * 5000))

    change = changed(after(enqueue(PROMISING), claim()), command)

    assert change.after.check is not None
    where = change.after.check.where
    assert where is not None
    assert len(where) <= 4096
    assert change.events[-1].attributes == {"where": where}


def test_a_place_that_nobody_named_is_not_told() -> None:
    change = changed(after(enqueue(PROMISING), claim()), complete(Success(result=1)))

    assert change.events[-1].attributes == {"result": 1}


def test_a_job_that_promises_nothing_is_not_waited_for() -> None:
    change = changed(after(enqueue(), claim()), complete(Success(where="box-1:/data")))

    assert (change.after.state, change.after.check) == (State.SUCCEEDED, None)
    assert change.events[-1].attributes == {}


@pytest.mark.parametrize("state", [State.VALIDATING, State.PARTIAL_SUCCESS])
def test_a_look_is_a_sign_of_life_and_nothing_else(state: State) -> None:
    job = job_in(state)
    assert job.check is not None

    change = changed(job, look(done=3, total=8), LATER)

    seen = replace(job.check, by=VALIDATOR, until=LATER + 60 * SECOND, done=3, total=8)
    assert change.after == replace(job, check=seen)
    assert change.events == change.facts == ()


def test_who_looks_keeps_others_away_for_a_minute_and_may_look_on_itself() -> None:
    job = changed(PLACED, look()).after

    for now in (NOW, NOW + 60 * SECOND - TICK):
        for command in (look(actor=OTHER), look(actor=OTHER, trouble=DEAD)):
            error = refused(job, command, now).error
            assert isinstance(error, Conflict)
            assert str(error) == "validator:v is validating its outputs already."
        assert changed(job, look(done=1), now).after.check != job.check
    taken = changed(job, look(actor=OTHER), NOW + 60 * SECOND).after.check
    assert taken is not None
    assert taken.by == OTHER


def test_each_sign_of_life_counts_from_when_it_was_given() -> None:
    job = changed(changed(PLACED, look()).after, look(done=1), NOW + 50 * SECOND).after

    assert isinstance(refused(job, look(actor=OTHER), NOW + 109 * SECOND).error, Conflict)
    assert changed(job, look(actor=OTHER), NOW + 110 * SECOND).after.check != job.check


def test_who_looks_keeps_no_verdict_away() -> None:
    job = changed(PLACED, look(actor=OTHER)).after

    assert changed(job, judge(8, 0)).after.state is State.SUCCEEDED
    override = judge(0, 0, actor=USER, override=State.FAILED, reason="enough")
    assert changed(job, override).after.state is State.FAILED


@pytest.mark.parametrize("check", [None, ValidationProgress(by=OTHER), ValidationProgress(until=LATER)])
def test_nobody_is_kept_away_by_nobody_or_for_no_time(check: ValidationProgress | None) -> None:
    job = changed(replace(PLACED, check=check), look()).after

    assert job.check is not None
    assert (job.check.by, job.check.until) == (VALIDATOR, NOW + 60 * SECOND)


@pytest.mark.parametrize("state", [s for s in State if s not in ("validating", "partial_success")])
@pytest.mark.parametrize("command", [look(), look(trouble=DEAD)])
def test_nothing_is_looked_for_elsewhere(state: State, command: object) -> None:
    error = refused(job_in(state), command).error  # type: ignore[arg-type]

    assert isinstance(error, Conflict)
    assert str(error) == f"Job is {state}: there are no outputs to validate."


def test_a_look_at_what_has_been_judged_since_is_refused() -> None:
    job = changed(PLACED, judge(5, 3)).after

    for trouble in (None, DEAD):
        error = refused(job, look(version=PLACED.version, trouble=trouble)).error
        assert isinstance(error, Conflict)
        assert "validation was completed since" in str(error)
    assert changed(job, look(version=job.version)).after.check != job.check


@pytest.mark.parametrize(
    ("tries", "age", "wait"),
    [
        (1, timedelta(), 10 * SECOND),
        (1, DAY, 10 * SECOND),
        (2, timedelta(), 20 * SECOND),
        (2, DAY, 20 * SECOND),
        (3, timedelta(), MINUTE),
        (3, MINUTE, MINUTE),
        (3, 2 * MINUTE, 2 * MINUTE),
        (9, 15 * MINUTE, 15 * MINUTE),
        (9, DAY, 15 * MINUTE),
    ],
)
def test_after_trouble_it_is_tried_again_soon_then_the_rarer_the_older(
    tries: int, age: timedelta, wait: timedelta
) -> None:
    now = NOW + age

    change = changed(troubled(tries - 1), look(trouble=DEAD), now)

    assert change.after.check == ValidationProgress(
        where="box-1:/data", tries=tries, reason=DEAD, next_at=now + wait
    )
    assert change.events == ()
    assert replace(change.after, check=PLACED.check) == PLACED


def test_whoever_had_trouble_lets_the_others_in() -> None:
    job = changed(changed(PLACED, look()).after, look(trouble=DEAD)).after

    assert changed(job, look(actor=OTHER)).after.check != job.check


def test_a_look_in_between_forgets_no_trouble() -> None:
    job = changed(changed(PLACED, look(trouble=DEAD)).after, look(actor=OTHER, total=8)).after

    assert job.check is not None
    assert (job.check.tries, job.check.reason, job.check.by) == (1, DEAD, OTHER)


@pytest.mark.parametrize(
    ("age", "wait"),
    [(timedelta(), 5 * MINUTE), (6 * MINUTE, 6 * MINUTE), (DAY, DAY), (9 * DAY, DAY)],
)
def test_trouble_with_a_partial_success_can_wait(age: timedelta, wait: timedelta) -> None:
    job = job_in(State.PARTIAL_SUCCESS)

    check = changed(job, look(trouble=DEAD), NOW + age).after.check

    assert check == ValidationProgress(tries=1, reason=DEAD, next_at=NOW + age + wait)


def test_age_counts_from_the_end_and_before_it_from_the_last_transition() -> None:
    ended = replace(job_in(State.PARTIAL_SUCCESS), updated_at=NOW + DAY, ended_at=NOW)

    of_ended = changed(ended, look(trouble=DEAD), NOW + DAY).after.check
    of_other = changed(troubled(7), look(trouble=DEAD), NOW + 7 * MINUTE).after.check

    assert of_ended is not None
    assert of_other is not None
    assert of_ended.next_at == NOW + 2 * DAY
    assert of_other.next_at == NOW + 14 * MINUTE


@pytest.mark.parametrize(
    ("tries", "reason", "told"),
    [
        (1, DEAD, True),
        (2, DEAD, True),
        (3, DEAD, True),
        (4, DEAD, False),
        (9, DEAD, False),
        (4, "the disk is not mounted", True),
        (9, "the disk is not mounted", True),
    ],
)
def test_the_first_tries_and_every_new_reason_are_on_record(tries: int, reason: str, told: bool) -> None:
    job = replace(troubled(tries - 1), correlation_id="order-7", trace_id="t-1")

    change = changed(job, look(trouble=reason), LATER)

    assert len(change.facts) == told
    for fact in change.facts:
        assert (fact.event_type, fact.event_class) == ("job_outputs_unseen", "fact")
        assert (fact.offset, fact.job_id, fact.actor) == (None, "job-1", VALIDATOR)
        assert (fact.reason, fact.attributes) == (reason, {"tries": tries})
        assert (fact.attempt, fact.fencing_token) == (1, 1)
        assert (fact.correlation_id, fact.trace_id) == ("order-7", "t-1")
        assert fact.occurred_at == LATER
        assert fact.event_id == f"job-1/outputs_unseen/{tries}/2026-01-01T00:01:01+00:00"


def test_the_same_trouble_after_an_untroubled_look_is_a_fact_of_its_own() -> None:
    partial = job_in(State.PARTIAL_SUCCESS)
    first = changed(partial, look(trouble=DEAD), NOW)
    seen = changed(first.after, judge(5, 3), LATER).after

    again = changed(seen, look(trouble=DEAD), LATER + MINUTE)

    assert first.facts[0].event_id != again.facts[0].event_id
    assert again.facts[0].attributes == {"tries": 1}


def test_a_long_trouble_is_shortened_and_an_empty_one_is_trouble_too() -> None:
    long = changed(PLACED, look(trouble="x" * 5000)).after.check
    empty = changed(PLACED, look(trouble="")).after.check

    assert long is not None
    assert long.reason is not None
    assert len(long.reason) <= 4096
    assert empty is not None
    assert (empty.reason, empty.tries) == ("", 1)


def test_the_outputs_of_finished_work_are_tried_for_as_long_as_it_takes() -> None:
    check = changed(troubled(VALIDATION_TRIES_MAX), look(trouble=DEAD)).after.check

    assert check is not None
    assert check.tries == VALIDATION_TRIES_MAX + 1
    assert check.next_at is not None


def test_a_look_without_a_name_keeps_nobody_away() -> None:
    nameless = replace(PLACED, check=ValidationProgress(until=NOW + MINUTE))

    check = changed(nameless, look(done=1, total=8)).after.check

    assert check is not None
    assert check.by == VALIDATOR
