"""What a step of the store's clock does to a job: durations go on, dates stay."""

from datetime import timedelta

import pytest
from msgspec.structs import astuple, replace

from holdfast.core.clock_step import ClockStep, ClockStepSummary, carry_over
from holdfast.core.explanation import describe_clock_step, explain
from holdfast.core.job import Job
from holdfast.core.spec import Spec
from holdfast.core.state import ENDED, LEASED, State
from tests.core.sample_jobs import NOW, job_in

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)


def step(by: timedelta, silent: timedelta = SECOND) -> ClockStep:
    """Five seconds after now, the clock is found to have been set."""
    before = NOW + 5 * SECOND
    return ClockStep(before=before, after=before + by, since=before - silent)


def queued(spec: Spec = Spec(), **changes: object) -> Job:
    return replace(job_in(State.QUEUED), spec=spec, **changes)


@pytest.mark.parametrize("by", [HOUR, -HOUR])
@pytest.mark.parametrize("state", sorted(LEASED))
def test_a_lease_goes_on_with_what_is_left_of_it(state: State, by: timedelta) -> None:
    job = replace(job_in(state), started_at=NOW)

    moved = carry_over(job, step(by))

    assert job.lease is not None
    assert moved.lease == replace(
        job.lease,
        expires_at=job.lease.expires_at + by,
        granted_at=job.lease.granted_at + by,
        heartbeat_at=job.lease.heartbeat_at + by,
        moved=by,
    )
    assert moved.due_at == (job.due_at or NOW) + by
    assert moved.started_at == NOW + by
    assert (moved.version, moved.fencing_token) == (job.version, job.fencing_token)


def test_a_lease_that_was_moved_twice_tells_by_how_much_in_all() -> None:
    job = carry_over(job_in(State.RUNNING), step(HOUR))
    back = ClockStep(before=NOW + HOUR + MINUTE, after=NOW + MINUTE, since=NOW + HOUR + MINUTE - SECOND)

    assert job.lease is not None
    again = carry_over(job, back)

    assert again.lease is not None
    assert again.lease.moved == timedelta()
    assert again.lease.expires_at == job.lease.expires_at - HOUR


@pytest.mark.parametrize(
    ("by", "ready_at", "date", "expected"),
    [
        (HOUR, NOW, None, NOW),  # what is ready stays ready, where it was
        (-HOUR, NOW, None, NOW + 5 * SECOND - HOUR),
        (HOUR, NOW + MINUTE, None, NOW + MINUTE + HOUR),  # a wait keeps its length
        (-HOUR, NOW + MINUTE, None, NOW + MINUTE - HOUR),
        (HOUR, NOW + MINUTE, NOW + MINUTE, NOW + MINUTE),  # a date stays
        (-HOUR, NOW, NOW, NOW),
        (-HOUR, NOW, NOW - MINUTE, NOW - MINUTE),  # and comes again, if it was told too early
        (HOUR, NOW + MINUTE, NOW - HOUR, NOW + MINUTE + HOUR),
    ],
)
def test_waits_keep_their_length_and_dates_stay(
    by: timedelta, ready_at: object, date: object, expected: object
) -> None:
    job = queued(replace(job_in(State.QUEUED).spec, run_at=date), ready_at=ready_at)

    assert carry_over(job, step(by)).ready_at == expected


def test_a_deadline_is_so_long_after_the_job_was_made() -> None:
    job = queued(deadline_at=NOW + MINUTE)

    assert carry_over(job, step(HOUR)).deadline_at == NOW + MINUTE + HOUR


@pytest.mark.parametrize("by", [HOUR, -HOUR])
def test_what_the_clock_told_after_it_was_set_stays(by: timedelta) -> None:
    told = NOW + 4.5 * SECOND + by
    new = queued(updated_at=told, ready_at=told + MINUTE)
    held = job_in(State.RUNNING)
    assert held.lease is not None
    renewed = replace(held, lease=replace(held.lease, heartbeat_at=told))

    assert carry_over(new, step(by)) is new
    assert carry_over(renewed, step(by)) is renewed


def test_ended_jobs_and_ready_ones_stay_as_they_are() -> None:
    for job in (job_in(State.SUCCEEDED), job_in(State.VALIDATING), queued()):
        assert carry_over(job, step(HOUR)) is job


def test_no_job_is_left_ahead_of_the_clock() -> None:
    """Else the next look at the newest job would find the same step again."""
    job = queued(Spec(run_at=NOW + 24 * HOUR), ready_at=NOW + 24 * HOUR)

    moved = carry_over(job, step(-HOUR))

    assert moved.ready_at == job.ready_at
    assert moved.updated_at == job.updated_at - HOUR


def test_why_tells_of_a_lease_that_was_moved_and_of_a_clock_that_went_back() -> None:
    moved = carry_over(job_in(State.RUNNING), step(-HOUR))
    assert " The store's clock was set 60 min back while it was held" in explain(moved, NOW - HOUR)
    waits = explain(queued(), NOW - HOUR)
    assert waits.endswith("as the store's clock tells it: that clock was set back.")
    assert " It was last changed 60 min from now, as the store's clock tells it" in waits
    drifted = queued(updated_at=NOW + SECOND)
    assert "last changed" not in explain(drifted, NOW)
    assert "last changed" in explain(drifted, NOW - SECOND)
    assert "clock" not in explain(job_in(State.SUCCEEDED), NOW - HOUR)


def test_the_last_step_is_told_to_operators() -> None:
    assert describe_clock_step(ClockStepSummary()) is None
    assert astuple(ClockStepSummary()) == (timedelta(), timedelta(), None, "", 0)
    steps = ClockStepSummary(total=HOUR, by=HOUR, at=NOW, noticed_by="process 7 on here", jobs=1)
    assert describe_clock_step(steps) == (
        f"Its clock was set 60 min ahead, to {NOW:%Y-%m-%d %H:%M:%S} UTC, as process 7 on here noticed;"
        " 1 job was carried over: leases and waits kept their length."
    )
    assert "2 jobs were" in str(describe_clock_step(replace(steps, jobs=2)))


def test_what_the_set_clock_may_have_told_reaches_a_second_beyond_both_ends() -> None:
    found, tick = step(-HOUR, silent=MINUTE), timedelta(microseconds=1)
    assert found.since is not None
    first, last = found.since - HOUR - SECOND, found.after + SECOND

    assert [found.may_have_shown(first), found.may_have_shown(last)] == [True, True]
    assert [found.may_have_shown(first - tick), found.may_have_shown(last + tick)] == [False, False]


@pytest.mark.parametrize("state", sorted(ENDED | {State.VALIDATING}))
def test_what_waits_for_no_time_stays_as_it_is(state: State) -> None:
    job = replace(job_in(state), deadline_at=NOW + HOUR)

    assert carry_over(job, step(-HOUR)) is job


def test_what_has_just_become_ready_stays_ready() -> None:
    job = queued(ready_at=NOW + 5 * SECOND, deadline_at=NOW + HOUR)

    assert carry_over(job, step(HOUR)).ready_at == job.ready_at


def test_before_anybody_goes_by_the_set_clock_it_has_told_nothing() -> None:
    found = replace(step(HOUR), since=None)
    instants = (found.before, found.after, found.after + SECOND, found.after - HOUR)

    assert [found.may_have_shown(instant) for instant in instants] == [False] * 4
    assert ClockStep(before=NOW, after=NOW + HOUR) == ClockStep(before=NOW, after=NOW + HOUR, since=None)


def test_a_job_that_was_changed_after_what_the_set_clock_tells_is_moved_back() -> None:
    found = replace(step(-HOUR), since=None)
    tick = timedelta(microseconds=1)
    known = queued(ready_at=found.after - MINUTE, updated_at=found.after)
    ahead = replace(known, updated_at=found.after + tick)

    assert carry_over(known, found) is known
    assert carry_over(ahead, found).updated_at == found.after + tick - HOUR
