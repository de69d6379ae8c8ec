"""Limits hold exactly at their edge."""

from datetime import timedelta

import pytest

from holdfast.core.errors import Invalid
from holdfast.core.limits import (
    ID_CHARACTERS_MAX,
    LEASE_MAX,
    LEASE_MIN,
    check_bytes,
    check_id,
    check_lease,
    check_text,
    clip,
)

TICK = timedelta(microseconds=1)


@pytest.mark.parametrize("value", ["a", "job-1", "A.b_c:d-9", "x" * ID_CHARACTERS_MAX])
def test_a_safe_id_is_given_back(value: str) -> None:
    assert check_id(value, "job_id") == value


@pytest.mark.parametrize(
    "value",
    [
        "",
        "x" * (ID_CHARACTERS_MAX + 1),
        "a b",
        "a/b",
        "a\n",
        "ä",
        "\x1b[31m",
        "a\0",
        "\udcff",
        "../x",
        ".",
        "..",
    ],
)
def test_an_unsafe_id_is_invalid_and_named(value: str) -> None:
    with pytest.raises(Invalid, match=r"^job_id "):
        check_id(value, "job_id")


def test_bytes_are_counted_exactly() -> None:
    assert check_bytes(b"123", "payload", 3) == b"123"
    with pytest.raises(Invalid, match="4 bytes; at most 3"):
        check_bytes(b"1234", "payload", 3)


@pytest.mark.parametrize("value", [LEASE_MIN, LEASE_MAX])
def test_a_lease_may_be_as_short_and_as_long_as_its_limits(value: timedelta) -> None:
    assert check_lease(value) == value


@pytest.mark.parametrize("value", [LEASE_MIN - TICK, LEASE_MAX + TICK, timedelta()])
def test_a_lease_outside_its_limits_is_invalid(value: timedelta) -> None:
    with pytest.raises(Invalid):
        check_lease(value)


def test_text_is_only_clipped_when_it_is_too_long() -> None:
    assert clip("x" * 40, 40) == "x" * 40
    assert clip("x" * 41, 40) == "x" * 25 + " … [shortened]"


def test_text_of_any_language_is_taken_and_what_is_no_text_is_not() -> None:
    assert check_text("naïve Größe 日本", "A name", 20) == "naïve Größe 日本"
    for value in ("\udcff", "x" * 21):
        with pytest.raises(Invalid, match="A name"):
            check_text(value, "A name", 20)
