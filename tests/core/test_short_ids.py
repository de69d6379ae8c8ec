"""Short ids: what is shown of an id finds the job again."""

import pytest

from holdfast.core.derived_ids import derived_id
from holdfast.core.short_ids import fits_short_id, is_shown, is_whole, short_id
from holdfast.system import SystemIds

TIMED = "019a9c3e-1f2b-7a3c-9b01-c0ffee12ab34"


@pytest.mark.parametrize(
    ("job_id", "shown"),
    [
        (TIMED, "ee12ab34"),
        (f"cached-{TIMED}", "ee12ab34"),
        ("6b5face9-b4b7-81fc-bcba-775bf0c77de5", "6b5face9"),
        ("cached-6b5face9-b4b7-81fc-bcba-775bf0c77de5", "cached-6b5face9"),
        ("nightly", "nightly"),
        ("report-of-2026-11-19-for-the-board", "report-of-2026-11-19-for-the-board"),
        (f"{TIMED}-7", f"{TIMED}-7"),
    ],
)
def test_the_part_of_an_id_that_differs_is_shown(job_id: str, shown: str) -> None:
    assert short_id(job_id) == shown
    assert fits_short_id(job_id, shown)


def test_the_ids_of_one_moment_are_shown_apart() -> None:
    made = SystemIds().many(1_000)

    assert len({short_id(one) for one in made}) >= 999
    assert all(is_whole(one) and is_shown(short_id(one)) for one in made)


def test_the_end_of_an_id_counts_only_where_it_is_random() -> None:
    assert fits_short_id(TIMED, "c0ffee12ab34")
    assert fits_short_id(TIMED, "019a9c")
    assert not fits_short_id(TIMED, "c0ffee")
    assert not fits_short_id("nightly", "tly")
    assert not fits_short_id("01-of-a-queue", "queue")
    assert not fits_short_id(derived_id("q", "r"), derived_id("q", "r")[-8:])


@pytest.mark.parametrize("text", ["nightly", "ee12ab3", "EE12AB34", TIMED[:-1], "cached-ee12ab34"])
def test_other_texts_are_neither_whole_nor_as_shown(text: str) -> None:
    assert not is_whole(text)
    assert not is_shown(text)
