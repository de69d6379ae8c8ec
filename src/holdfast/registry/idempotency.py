"""Idempotency: the result of a command that was applied before comes from the job's history."""

from collections.abc import Mapping
from copy import copy
from datetime import datetime, timedelta

import msgspec
from msgspec import convert
from msgspec.structs import replace

from holdfast.core.catalogue import EventType
from holdfast.core.errors import Fenced, HoldfastError
from holdfast.core.event import Event
from holdfast.core.job import DeadLetter, Failure, Job, Lease
from holdfast.core.lifecycle import Change, Command, Complete, Release, decide
from holdfast.core.outputs import ValidationResult
from holdfast.core.projection import fold
from holdfast.core.spec import Spec
from holdfast.core.state import ENDED, LEASED


def applied_op_id(command: Command, job: Job, history: list[Event], made: Mapping[str, Spec]) -> str | None:
    """Return the op_id under which this command was applied; None when it was not.

    It is the command's own, or that of an equal command by which the owner ended the same attempt: so a
    client that lost the response may send the request again with a new op_id. `made` are the existing
    follow-ups, by id.
    """
    op_id = getattr(command, "op_id", "")
    if any(wrote(event, command, op_id) for event in history):
        return str(op_id)
    if not isinstance(command, Complete | Release):
        return None
    end = _end(command, history)
    if end is None or not _same(command, job, history, end):
        return None
    if isinstance(command, Complete) and any(
        made.get(one.job_id, one.spec) != one.spec for one in command.follow_ups
    ):
        return None
    return end.op_id


def wrote(event: Event, command: Command, op_id: str | None) -> bool:
    """Return whether this command wrote the event: under its op_id and, for an owner, under its token."""
    token = getattr(command, "token", event.fencing_token)
    claimed = event.event_type == EventType.CLAIMED
    return event.op_id == op_id and event.fencing_token == token and not claimed


def job_after(job: Job, history: list[Event], op_id: str) -> Job:
    """Return the job right after this op, as far as its log tells: without a lease of a later owner, and
    without a later owner's progress and checkpoint."""
    last = max(n for n, event in enumerate(history) if event.op_id == op_id)
    return _at(job, history[: last + 1])


def reword_fenced(error: HoldfastError, command: Command, history: list[Event]) -> HoldfastError:
    """Return the refusal with a message that is true for an owner that has ended its attempt itself."""
    end = _end(command, history) if isinstance(error, Fenced) else None
    if end is None:
        return error
    given_back = end.attributes.get("cause") in _GIVEN_BACK
    words = f"You have already {'given it back' if given_back else 'completed it'}"
    words += f" under token {end.fencing_token}"
    if isinstance(command, Complete) and not given_back:
        words += ", with another outcome"
    words += ": the first outcome stands."
    reworded = copy(error)
    reworded.message, reworded.args = words, (words,)
    if not given_back:
        reworded.advice = COUNTED
    return reworded


COUNTED = "The attempt was yours, and its outcome has counted: nothing is left to report."

_GIVEN_BACK = ("released", "undelivered")


def _end(command: Command, history: list[Event]) -> Event | None:
    """The event by which the command's owner ended the attempt of its token; None if it did not."""
    token, actor = getattr(command, "token", None), command.actor
    for event in history:
        ends = event.from_state in LEASED and event.to_state not in (*LEASED, None)
        if ends and event.fencing_token == token and event.actor == actor:
            return event
    return None


def _same(command: Complete | Release, job: Job, history: list[Event], end: Event) -> bool:
    """Whether the command, decided on the job as it was then, writes the same events again."""
    first = next(n for n, event in enumerate(history) if wrote(event, command, end.op_id))
    written = [event for event in history[first:] if wrote(event, command, end.op_id)]
    then = end.occurred_at
    owner = fold(history[:first], job.job_id).job.owner or ""
    lease = Lease(owner, then, timedelta(), then, then)
    before = replace(_at(job, history[:first]), lease=lease)
    again = decide(replace(command, op_id=end.op_id), before, then)
    return isinstance(again, Change) and [*map(_content, again.events)] == [*map(_content, written)]


def _content(event: Event) -> bytes:
    """The part of an event that follows from the command. A dead letter also contains the lease."""
    attributes = {name: value for name, value in event.attributes.items() if name != "dead_letter"}
    content = (event.event_type, event.to_state, event.reason, attributes)
    return msgspec.json.encode(content, order="sorted")


def _at(job: Job, history: list[Event]) -> Job:
    """The job at the end of this part of its history."""
    past = fold(history, job.job_id).job
    assert past.state is not None  # a job's first event gives it one
    same = past.fencing_token == job.fencing_token
    held = past.state in LEASED and same
    return replace(
        job if same else replace(job, checkpoint=None, progress=None),
        **{name: getattr(past, name) for name in _FOLDED_FIELDS},
        error=convert(past.error, Failure | None),
        dead_letter=convert(past.dead_letter, DeadLetter | None),
        found=convert(past.found, ValidationResult | None),
        lease=job.lease if held else None,
        cancel=job.cancel if past.cancel_requested else None,
        ended_at=_ended_at(history) if past.state in ENDED else None,
    )


def _ended_at(history: list[Event]) -> datetime:
    """The time of the last transition: later control events do not change it."""
    return [event for event in history if event.transition_no is not None][-1].occurred_at


_FOLDED_FIELDS = (
    "state",
    "version",
    "transition_no",
    "attempt",
    "failures",
    "crashes",
    "not_understood",
    "not_started",
    "fencing_token",
    "reason",
    "result",
)
