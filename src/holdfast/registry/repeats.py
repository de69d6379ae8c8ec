"""Repeats: a command that was applied before is answered from the job's own history."""

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
from holdfast.core.outputs import Found
from holdfast.core.projection import fold
from holdfast.core.spec import Spec
from holdfast.core.state import ENDED, LEASED


def applied(
    command: Command, job: Job, history: list[Event], made: Mapping[str, Spec]
) -> str | None:
    """The op_id under which this command was applied; None when it was not.

    It is the command's own, or the one under which its owner ended the same attempt in the same words:
    a client that was not told, and asks anew, is answered as well. `made` are the follow-ups that are
    there, by id.
    """
    op_id = getattr(command, "op_id", "")
    if any(is_of(event, command, op_id) for event in history):
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


def is_of(event: Event, command: Command, op_id: str | None) -> bool:
    """Whether this command wrote the event: under its op_id and, for an owner, under its token."""
    token = getattr(command, "token", event.fencing_token)
    claimed = event.event_type == EventType.CLAIMED
    return event.op_id == op_id and event.fencing_token == token and not claimed


def as_of(job: Job, history: list[Event], op_id: str) -> Job:
    """The job as it stood right after this op, as far as its log knows: without a lease that has
    changed hands since, and without what an owner after that has kept in it."""
    last = max(n for n, event in enumerate(history) if event.op_id == op_id)
    return _at(job, history[: last + 1])


def retold(error: HoldfastError, command: Command, history: list[Event]) -> HoldfastError:
    """The refusal, in words that are true for an owner that has ended its attempt itself."""
    end = _end(command, history) if isinstance(error, Fenced) else None
    if end is None:
        return error
    given_back = end.attributes.get("cause") in _GIVEN_BACK
    words = f"You have already {'given it back' if given_back else 'completed it'}"
    words += f" under token {end.fencing_token}"
    if isinstance(command, Complete) and not given_back:
        words += ", with another outcome"
    words += ": what you said first stands."
    told = copy(error)
    told.message, told.args = words, (words,)
    return told


_GIVEN_BACK = ("released", "undelivered")


def _end(command: Command, history: list[Event]) -> Event | None:
    """The event by which the owner that says this ended the attempt of its token; None if it did not."""
    token, actor = getattr(command, "token", None), command.actor
    for event in history:
        ends = event.from_state in LEASED and event.to_state not in (*LEASED, None)
        if ends and event.fencing_token == token and event.actor == actor:
            return event
    return None


def _same(command: Complete | Release, job: Job, history: list[Event], end: Event) -> bool:
    """Whether the command, decided on the job as it was then, writes what was written then."""
    first = next(n for n, event in enumerate(history) if is_of(event, command, end.op_id))
    written = [event for event in history[first:] if is_of(event, command, end.op_id)]
    then = end.occurred_at
    owner = fold(history[:first], job.job_id).job.owner or ""
    lease = Lease(owner, then, timedelta(), then, then)
    before = replace(_at(job, history[:first]), lease=lease)
    again = decide(replace(command, op_id=end.op_id), before, then)
    return isinstance(again, Change) and [*map(_words, again.events)] == [*map(_words, written)]


def _words(event: Event) -> bytes:
    """What the owner's own words make of an event. A dead letter tells of the lease besides."""
    said = {name: value for name, value in event.attributes.items() if name != "dead_letter"}
    told = (event.event_type, event.to_state, event.reason, said)
    return msgspec.json.encode(told, order="sorted")


def _at(job: Job, history: list[Event]) -> Job:
    """The job at the end of this part of its history."""
    past = fold(history, job.job_id).job
    assert past.state is not None  # a job's first event gives it one
    same = past.fencing_token == job.fencing_token
    held = past.state in LEASED and same
    return replace(
        job if same else replace(job, checkpoint=None, progress=None),
        **{name: getattr(past, name) for name in _TOLD},
        error=convert(past.error, Failure | None),
        dead_letter=convert(past.dead_letter, DeadLetter | None),
        found=convert(past.found, Found | None),
        lease=job.lease if held else None,
        cancel=job.cancel if past.cancel_requested else None,
        ended_at=_ended_at(history) if past.state in ENDED else None,
    )


def _ended_at(history: list[Event]) -> datetime:
    """When the last transition was: what is noted about an end does not move it."""
    return [event for event in history if event.transition_no is not None][-1].occurred_at


_TOLD = (
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
