"""Gaps in a log: every sequence that is missing is named once, where it is missing."""

from msgspec.structs import replace

from holdfast.core.event import Event
from holdfast.core.gaps import GapTracker, describe_gap
from tests.core.sample_jobs import said


def of(sequence: int, token: int = 1, **more: object) -> Event:
    return replace(said(sequence, **more), fencing_token=token)


def test_what_is_missing_is_found_right_before_what_came() -> None:
    gaps = GapTracker()
    log = [of(1), of(2, end_sequence=5), of(6), of(9), of(10), of(3, token=2), of(12)]

    found = [gaps.missing_before(event) for event in log]

    assert [(one.start, one.stop) for one in found if one] == [(7, 9), (1, 3), (11, 12)]


def test_events_without_a_sequence_and_repeats_leave_no_gap() -> None:
    gaps = GapTracker()
    queued = replace(said(1), sequence=None)

    assert not any(map(gaps.missing_before, [of(1), queued, of(2), of(1), of(3)]))
    assert list(gaps.missing_before(queued)) == []


def test_a_gap_in_words() -> None:
    assert describe_gap(range(7, 8), 1) == "Event 7 of attempt 1 never arrived."
    assert describe_gap(range(120, 1320), 2) == "Events 120 to 1,319 of attempt 2 never arrived."
