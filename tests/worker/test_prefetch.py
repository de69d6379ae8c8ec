"""How many jobs a worker claims ahead of need."""

import pytest

from holdfast.core.limits import BATCH_ITEMS_MAX
from holdfast.testing.fakes import ManualClock
from holdfast.worker.prefetch import AHEAD_SECONDS, Prefetch

SLOTS = 32
TURN_SECONDS = 0.0625
"""A little more than a window, and exact in binary."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def run(prefetch: Prefetch, clock: ManualClock, per_second: float, windows: int) -> int:
    """Let jobs end at this rate for so many windows; return how many are wanted then by an empty worker."""
    wanted = 0
    for _ in range(windows):
        prefetch.jobs_ended(round(per_second * TURN_SECONDS))
        clock.advance(TURN_SECONDS)
        wanted = prefetch.wanted(waiting=0, held=0)
    return wanted


def test_a_new_worker_claims_one_job_for_each_slot(clock: ManualClock) -> None:
    assert Prefetch(clock, SLOTS).wanted(waiting=0, held=0) == SLOTS


def test_short_jobs_are_claimed_ahead_within_a_quarter_of_a_second(clock: ManualClock) -> None:
    prefetch = Prefetch(clock, SLOTS)

    wanted = run(prefetch, clock, 8_000, windows=4)

    assert wanted == SLOTS + 8_000 * AHEAD_SECONDS


def test_no_more_is_claimed_ahead_than_begins_within_a_tenth_of_a_second(clock: ManualClock) -> None:
    prefetch = Prefetch(clock, SLOTS)

    wanted = run(prefetch, clock, 160, windows=20)

    assert wanted == SLOTS + 160 * AHEAD_SECONDS


def test_a_burst_is_believed_step_by_step(clock: ManualClock) -> None:
    prefetch = Prefetch(clock, SLOTS)

    assert run(prefetch, clock, 100_000, windows=1) == 2 * SLOTS
    assert run(prefetch, clock, 100_000, windows=10) == BATCH_ITEMS_MAX


def test_a_worker_whose_jobs_have_become_long_soon_claims_none_ahead(
    clock: ManualClock,
) -> None:
    prefetch = Prefetch(clock, SLOTS)
    run(prefetch, clock, 2_000, windows=10)

    wanted = run(prefetch, clock, 0, windows=4)

    assert wanted == SLOTS


def test_one_window_without_an_end_does_not_stop_claims_ahead(clock: ManualClock) -> None:
    prefetch = Prefetch(clock, SLOTS)
    run(prefetch, clock, 8_000, windows=10)

    wanted = run(prefetch, clock, 0, windows=1)

    assert wanted == SLOTS + 8_000 / 4 * AHEAD_SECONDS
