"""Tracebacks: what is kept of a long one, and which events have one."""

from datetime import UTC, datetime

import msgspec
import pytest

from holdfast.core.catalogue import EventClass, EventType, WorkerEventType
from holdfast.core.errors import Invalid
from holdfast.core.event import Event
from holdfast.core.job import Failure
from holdfast.core.limits import clip
from holdfast.core.tracebacks import (
    LINE_CHARACTERS,
    TRACEBACK_CHARACTERS_MAX,
    AttemptTraceback,
    check_failure,
    clip_traceback,
    traceback_in,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)


def event(event_type: str, **attributes: object) -> Event:
    return Event(event_type, EventClass.WORKER, AT, attempt=2, attributes=attributes)


def test_a_short_traceback_is_kept_as_it_is() -> None:
    text = "Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'b'"

    assert clip_traceback(text) == text
    assert clip_traceback("") == ""
    assert clip_traceback("x" * TRACEBACK_CHARACTERS_MAX) == "x" * TRACEBACK_CHARACTERS_MAX
    assert clip_traceback("a\0b\udcff") == "a?b?"


def test_of_a_long_traceback_the_beginning_and_the_end_are_kept_in_whole_lines() -> None:
    lines = [f"  line {n}" for n in range(5_000)]

    kept = clip_traceback("\n".join(lines))

    found = kept.splitlines()
    assert len(kept) <= TRACEBACK_CHARACTERS_MAX
    [cut] = [n for n, line in enumerate(found) if line.endswith(" characters left out]")]
    assert found[:cut] == lines[:cut]
    assert found[cut + 1 :] == lines[-(len(found) - cut - 1) :]
    left = len("\n".join(lines)) - sum(len(line) + 1 for line in (*found[:cut], *found[cut + 1 :])) + 1
    assert found[cut] == f"  … [{left:,} characters left out]"
    assert clip_traceback(kept) == kept


@pytest.mark.parametrize("letter", ["x", "\x1b", "é", "😀", '"'])
def test_a_line_without_end_is_cut_too(letter: str) -> None:
    text = "Traceback:\n" + letter * 100_000 + "\nValueError: end"

    kept = clip_traceback(text)

    assert len(kept) <= TRACEBACK_CHARACTERS_MAX
    assert len(msgspec.json.encode(kept)) <= 2 * TRACEBACK_CHARACTERS_MAX
    assert kept.startswith(f"Traceback:\n{letter * LINE_CHARACTERS}")
    assert kept.endswith(f"{letter * LINE_CHARACTERS}\nValueError: end")


def test_a_failure_is_checked_with_a_longer_text_for_its_traceback() -> None:
    failure = Failure(message="x" * 5_000, code="KeyError", traceback="y" * 20_000)

    checked = check_failure(failure)

    assert checked.message == clip("x" * 5_000)
    assert checked.traceback == clip_traceback("y" * 20_000)
    assert check_failure(checked) == checked
    assert check_failure(Failure(message="x")) == Failure(message="x")
    with pytest.raises(Invalid, match="a traceback is a text, not int"):
        check_failure(Failure(message="x", traceback=7))  # type: ignore[arg-type]


def test_an_event_of_the_worker_or_of_the_registry_has_a_traceback() -> None:
    error = {"message": "'b'", "traceback": "Trace"}

    assert traceback_in(event(WorkerEventType.PROCESS_ERROR, traceback="Trace")) == AttemptTraceback(
        attempt=2, text="Trace", published=True
    )
    assert traceback_in(event(EventType.DEAD_LETTERED, error=error)) == AttemptTraceback(
        attempt=2, text="Trace", published=False
    )
    assert traceback_in(event(EventType.REQUEUED, error=error)) == AttemptTraceback(
        attempt=1, text="Trace", published=False
    )


def test_other_events_have_none() -> None:
    assert traceback_in(event(WorkerEventType.PROCESS_ERROR, error_message="7 bytes")) is None
    assert traceback_in(event(EventType.REQUEUED, error="none")) is None
    assert traceback_in(event(EventType.FAILED, error={"message": "exit code 3"})) is None
    assert traceback_in(event(WorkerEventType.CUSTOM, traceback=7)) is None


@pytest.mark.parametrize(
    ("message", "code", "traceback", "summary"),
    [
        ("'b'", "KeyError", "Trace", "KeyError: 'b'"),
        ("KeyError", "KeyError", "Trace", "KeyError"),
        ("KeyError: 'b'", "KeyError", "Trace", "KeyError: 'b'"),
        ("Odd, whose message cannot be shown", "Odd", "Trace", "Odd, whose message cannot be shown"),
        ("exit code 3", "Exit3", None, "exit code 3"),
    ],
)
def test_what_an_exception_says_begins_with_its_type(
    message: str, code: str, traceback: str | None, summary: str
) -> None:
    assert Failure(message=message, code=code, traceback=traceback).summary == summary
