"""Back-off with full jitter, and the limits of a retry policy."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from holdfast.core.errors import Invalid
from holdfast.core.limits import ATTEMPTS_MAX
from holdfast.core.retry import (
    COMMAND_RETRY,
    FUNCTION_RETRY,
    OnExhausted,
    Retry,
    backoff,
    expected_waits,
)

NEGATIVE = timedelta(seconds=-1)


@settings(deadline=None, derandomize=True)
@given(failures=st.integers(1, ATTEMPTS_MAX), chance=st.text(st.characters(codec="utf-8")))
def test_the_wait_lies_below_its_ceiling_for_every_failure_there_can_be(failures: int, chance: str) -> None:
    wait = backoff(Retry(max_failures=ATTEMPTS_MAX), failures, chance)

    assert timedelta() <= wait <= timedelta(seconds=min(0.5 * 2.0 ** (failures - 1), 60))


def test_the_wait_is_drawn_over_the_whole_range_and_by_name() -> None:
    waits = [backoff(Retry(), 3, f"job-{n}/3").total_seconds() for n in range(1000)]

    assert min(waits) < 0.05
    assert max(waits) > 1.95
    assert 0.9 < sum(waits) / len(waits) < 1.1
    assert backoff(Retry(), 3, "job-1/3") == backoff(Retry(), 3, "job-1/3")


def test_the_wait_grows_by_its_factor_until_it_meets_its_maximum() -> None:
    retry = Retry(backoff=timedelta(seconds=1), factor=3, backoff_max=timedelta(seconds=60))
    first, second, fourth, fifth, sixth = (backoff(retry, n, "x") for n in (1, 2, 4, 5, 6))

    assert second / first == pytest.approx(3, rel=1e-4)
    assert fourth / first == pytest.approx(27, rel=1e-4)
    assert fifth / first == pytest.approx(60, rel=1e-4)
    assert fifth == sixth


def test_what_is_expected_of_the_waits_is_half_of_each_ceiling() -> None:
    seconds = sum(min(5 * 2**n, 900) for n in range(9)) / 2

    assert expected_waits(FUNCTION_RETRY, 0, 10) == timedelta(seconds=seconds)
    assert timedelta(minutes=18) < timedelta(seconds=seconds) < timedelta(minutes=19)
    assert expected_waits(FUNCTION_RETRY, 7, 10) == timedelta(seconds=(640 + 900) / 2)
    assert expected_waits(FUNCTION_RETRY, 9, 10) == timedelta()


def test_a_draw_is_the_same_in_every_version_of_holdfast() -> None:
    assert backoff(Retry(), 1, "job-1/1") == timedelta(microseconds=68_303)
    assert backoff(Retry(), 3, "job-1/3") == timedelta(seconds=1, microseconds=229_908)


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
        Retry(factor=1_000.5),
        Retry(factor=float("nan")),
    ],
)
def test_a_policy_outside_its_limits_is_invalid(retry: Retry) -> None:
    with pytest.raises(Invalid):
        retry.check()


@pytest.mark.parametrize(
    "retry",
    [
        Retry(max_failures=1, max_crashes=1),
        Retry(max_failures=100, max_crashes=100),
        Retry(backoff=timedelta(), backoff_max=timedelta()),
        Retry(backoff=timedelta(days=366), backoff_max=timedelta(days=366)),
        Retry(factor=1),
        Retry(factor=1_000),
    ],
)
def test_a_policy_at_its_limits_is_valid(retry: Retry) -> None:
    retry.check()


def test_a_job_is_tried_five_times_within_a_minute_each_and_then_parked() -> None:
    assert asdict(Retry()) == {
        "max_failures": 5,
        "max_crashes": 5,
        "backoff": timedelta(milliseconds=500),
        "factor": 2.0,
        "backoff_max": timedelta(seconds=60),
        "on_exhausted": "dead_letter",
    }
    assert list(OnExhausted) == ["dead_letter", "fail", "timeout"]


def test_the_policies_we_ship_are_valid_and_a_command_is_tried_once() -> None:
    Retry().check()
    COMMAND_RETRY.check()

    assert (COMMAND_RETRY.max_failures, COMMAND_RETRY.on_exhausted) == (1, OnExhausted.FAIL)
