"""Errors: the class says what to do next, the fields say which job it is about."""

import pytest

from holdfast.core.errors import (
    Conflict,
    Corrupt,
    Denied,
    Exhausted,
    Fenced,
    HoldfastError,
    Invalid,
    NotFound,
    Unavailable,
)

CLASSES = (Invalid, NotFound, Conflict, Fenced, Exhausted, Denied, Unavailable, Corrupt)


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_says_what_happened_to_which_job_at_which_version(
    kind: type[HoldfastError],
) -> None:
    error = kind("It broke.", job_id="job-1", version=3)
    plain = kind("It broke.")

    assert (str(error), error.message) == ("It broke.", "It broke.")
    assert (error.job_id, error.version) == ("job-1", 3)
    assert (plain.job_id, plain.version) == (None, None)


def test_each_class_has_an_advice_of_its_own() -> None:
    assert len({kind.advice for kind in (HoldfastError, *CLASSES)}) == 1 + len(CLASSES)


def test_a_store_that_failed_says_whether_it_may_have_written() -> None:
    assert Unavailable("The disk is full.").applied == "no"
    assert Unavailable("The answer was lost.", applied="unknown").applied == "unknown"


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_that_knows_what_to_do_says_so_in_its_text(kind: type[HoldfastError]) -> None:
    error = kind("It broke.", advice="Mend it.")

    assert (str(error), error.message, error.advice) == (
        "It broke. Mend it.",
        "It broke.",
        "Mend it.",
    )
    assert error.advised
    assert not kind("It broke.").advised
