"""Durations: one grammar, the same in every place, and one error that shows it."""

from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.durations import has_unit, parse_duration
from holdfast.core.errors import Invalid


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (90, 90),
        (0.25, 0.25),
        ("90", 90),
        ("5m", 300),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("1.5h", 5400),
        ("1d12h", 129_600),
        ("1m500ms", 60.5),
        ("250ms", 0.25),
        ("PT5M", 300),
        ("PT1H30M", 5400),
        ("P1DT2H", 93_600),
        ("P2W", 1_209_600),
        ("pt0.5s", 0.5),
        (timedelta(minutes=5), 300),
    ],
)
def test_a_duration_may_be_written_in_any_usual_way(written: object, seconds: float) -> None:
    assert parse_duration(written) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "written",
    ["", " ", "soon", "5x", "-5s", "30m1h", "1h1h", "h", "P", "PT", "P1DT", "P1Y", "P1M", "PT5", "T5M",
     "1h30", "nan", "inf", "1e3", "\uff19", "9" * 400, "9" * 30 + "d", True, None, [], -1,
     float("nan"), float("inf")],
)  # fmt: skip
def test_anything_else_is_refused_with_examples(written: object) -> None:
    with pytest.raises(Invalid) as refused:
        parse_duration(written, "timeout")

    assert refused.value.message.startswith("timeout: ")
    assert "is not a duration; write 90 (seconds), 500ms, 5m, 1h30m" in refused.value.message


@given(st.text(max_size=20))
def test_a_text_is_a_duration_or_refused(text: str) -> None:
    with suppress(Invalid):
        assert parse_duration(text) >= timedelta()


def test_only_a_number_alone_has_no_unit() -> None:
    assert [has_unit(text) for text in ("90", " 1.5 ", "90s", "PT90S")] == [False, False, True, True]
