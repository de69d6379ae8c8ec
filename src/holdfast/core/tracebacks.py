"""Tracebacks of failed attempts: how much of one is stored, and which events have one."""

import re

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.catalogue import EventType, WorkerEventType
from holdfast.core.errors import Invalid
from holdfast.core.event import Event
from holdfast.core.job import Failure
from holdfast.core.limits import clip
from holdfast.core.spec import check_struct

TRACEBACK_CHARACTERS_MAX = 16_000
LINE_CHARACTERS = 1_000
"""The length of a line up to which a long text is cut between lines."""
LEFT_OUT = re.compile(r"\n  … \[[0-9,]+ characters left out\]\n")
"""What stands in place of the middle of a long traceback."""


class AttemptTraceback(Struct, frozen=True, kw_only=True):
    """The traceback of an attempt. `published` says that its worker published it, in order with the output
    of the attempt; the registry has it once more where it recorded the failure."""

    attempt: int | None
    text: str
    published: bool


def traceback_in(event: Event) -> AttemptTraceback | None:
    """Return the traceback in an event; None if it has none."""
    attempt, attributes = event.attempt, event.attributes
    published = event.event_type == WorkerEventType.PROCESS_ERROR
    if not published:
        error = attributes.get("error")
        attributes = error if isinstance(error, dict) else {}
        if event.event_type == EventType.REQUEUED and attempt is not None:
            attempt -= 1  # the event begins the next one
    text = attributes.get("traceback")
    if not isinstance(text, str):
        return None
    return AttemptTraceback(attempt=attempt, text=text, published=published)


def check_failure(failure: Failure) -> Failure:
    """Return the failure with its texts clipped, or raise `Invalid` if a field has not its declared type."""
    trace = failure.traceback
    checked = check_struct(replace(failure, traceback=None))
    if trace is None:
        return checked
    if not isinstance(trace, str):
        raise Invalid(f"Failure is not valid: a traceback is a text, not {type(trace).__name__}.")
    return replace(checked, traceback=clip_traceback(trace))


def clip_traceback(text: str, most: int = TRACEBACK_CHARACTERS_MAX) -> str:
    """Return a traceback as it can be stored. Of one that is too long, the beginning and the end are kept,
    and between them stands how much was left out. As JSON it has at most two bytes for each character."""
    text = clip(text, max(len(text), 1))
    size = most
    found = text
    while len(found) > most or len(msgspec.json.encode(found)) > 2 * most:  # escapes take six bytes each
        found = _without_middle(text, size)
        size = size * 3 // 4
    return found


def _without_middle(text: str, most: int) -> str:
    """Return the beginning and the end of a text, cut at lines where these are not too long."""
    room = most - 60
    head, tail = text[: room // 3], text[len(text) - (room - room // 3) :]
    end = head.rfind("\n") + 1
    if end and len(head) - end < LINE_CHARACTERS:
        head = head[:end]
    start = tail.find("\n") + 1
    if start and start < LINE_CHARACTERS:
        tail = tail[start:]
    left = len(text) - len(head) - len(tail)
    return f"{head.rstrip()}\n  … [{left:,} characters left out]\n{tail}"
