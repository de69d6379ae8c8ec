"""Durations, instants and pairs as people write them, and numbers as they read them."""

from datetime import UTC, datetime, timedelta

import click
import pytest

from holdfast.cli.durations import Duration, Instant
from holdfast.cli.options import Pair
from holdfast.cli.terminal import age, count, shorten

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("2h", 7200),
        ("1d", 86_400),
        ("1.5h", 5400),
        ("90", 90),
        ("250ms", 0.25),
        ("0", 0),
        (" 2 H ", 7200),
        (".5m", 30),
        ("1w", 604_800),
        ("1h30m", 5400),
        ("PT5M", 300),
    ],
)
def test_durations_are_written_as_people_write_them(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "5x", "-5s", "30m1h", "h", "nan", "inf", "1e3", "9" * 30 + "d"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(
        click.BadParameter, match=r"is not a duration; write 90 \(seconds\), 500ms, 5m, 1h30m"
    ):
        Duration().convert(text, None, None)


def test_a_unit_is_required_where_seconds_are_rarely_meant() -> None:
    assert Duration(unit=True).convert("PT1H30M", None, None) == timedelta(minutes=90)
    with pytest.raises(click.BadParameter, match="needs a unit here; write 90s"):
        Duration(unit=True).convert("30", None, None)


def test_an_instant_without_a_zone_is_local_time() -> None:
    assert Instant().convert("2030-01-31T09:00+01:00", None, None).utcoffset() == timedelta(hours=1)
    assert Instant().convert("2030-01-31 09:00", None, None).tzinfo is not None
    with pytest.raises(click.BadParameter):
        Instant().convert("tomorrow", None, None)


def test_a_pair_needs_a_name() -> None:
    assert Pair().convert("A=b=c", None, None) == ("A", "b=c")
    assert Pair().convert("A=", None, None) == ("A", "")
    for wrong in ("A", "=b", ""):
        with pytest.raises(click.BadParameter):
            Pair().convert(wrong, None, None)


def test_small_words() -> None:
    assert [age(timedelta(seconds=s)) for s in (-1, 5, 300, 7200, 999_999)] == [
        "0s",
        "5s",
        "5m",
        "2h",
        "11d",
    ]
    assert (count(1, "job"), count(2000, "job")) == ("1 job", "2,000 jobs")
    assert (shorten("abc", 3), shorten("abcd", 3)) == ("abc", "ab…")
