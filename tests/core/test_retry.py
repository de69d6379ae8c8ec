"""Back-off with full jitter, and the limits of a retry policy."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import Invalid
from holdfast.core.limits import ATTEMPTS_MAX
from holdfast.core.retry import COMMAND_RETRY, OnExhausted, Retry, backoff

NEGATIVE = timedelta(seconds=-1)


@settings(deadline=None, derandomize=True)
@given(failures=st.integers(1, ATTEMPTS_MAX), chance=st.text(st.characters(codec="utf-8")))
def test_the_wait_lies_below_its_ceiling_for_every_failure_there_can_be(
    failures: int, chance: str
) -> None:
    wait = backoff(Retry(max_failures=ATTEMPTS_MAX), failures, chance)

    assert timedelta() <= wait <= timedelta(seconds=min(0.5 * 2.0 ** (failures - 1), 60))


def test_the_wait_is_drawn_over_the_whole_range_and_by_name() -> None:
    waits = [backoff(Retry(), 3, f"job-{n}/3").total_seconds() for n in range(1000)]

    assert min(waits) < 0.05
    assert max(waits) > 1.95
    assert 0.9 < sum(waits) / len(waits) < 1.1
    assert backoff(Retry(), 3, "job-1/3") == backoff(Retry(), 3, "job-1/3")


@pytest.mark.parametrize("factor", [1e6, 1e300])
def test_a_steep_factor_meets_the_ceiling_and_does_not_overflow(factor: float) -> None:
    retry = Retry(factor=factor, max_failures=ATTEMPTS_MAX)

    assert backoff(retry, ATTEMPTS_MAX, "x") <= retry.backoff_max


@pytest.mark.parametrize(
    "retry",
    [
        Retry(max_failures=0),
        Retry(max_failures=ATTEMPTS_MAX + 1),
        Retry(max_crashes=0),
        Retry(max_crashes=ATTEMPTS_MAX + 1),
        Retry(backoff=NEGATIVE),
        Retry(backoff=timedelta(minutes=2)),
        Retry(factor=0.5),
        Retry(backoff_max=timedelta.max),
        Retry(factor=float("nan")),
    ],
)
def test_a_policy_outside_its_limits_is_invalid(retry: Retry) -> None:
    with pytest.raises(Invalid):
        retry.check()


def test_the_policies_we_ship_are_valid_and_a_command_is_tried_once() -> None:
    Retry().check()
    COMMAND_RETRY.check()

    assert (COMMAND_RETRY.max_failures, COMMAND_RETRY.on_exhausted) == (1, OnExhausted.FAIL)
