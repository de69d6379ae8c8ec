"""Repeats: a command that was applied before is answered from the job's own history."""

from datetime import datetime

from msgspec import convert
from msgspec.structs import replace

from holdfast.core.catalogue import EventType
from holdfast.core.event import Event
from holdfast.core.job import DeadLetter, Failure, Job
from holdfast.core.lifecycle import Command
from holdfast.core.outputs import Found
from holdfast.core.projection import fold
from holdfast.core.state import ENDED, LEASED


def is_of(event: Event, command: Command, op_id: str) -> bool:
    """Whether this command wrote the event: under its op_id and, for an owner, under its token."""
    token = getattr(command, "token", event.fencing_token)
    claimed = event.event_type == EventType.CLAIMED
    return event.op_id == op_id and event.fencing_token == token and not claimed


def as_of(job: Job, history: list[Event], op_id: str) -> Job:
    """The job as it stood right after this op, as far as its log knows: without a lease that has
    changed hands since."""
    last = max(n for n, event in enumerate(history) if event.op_id == op_id)
    past = fold(history[: last + 1], job.job_id).job
    assert past.state is not None  # a job's first event gives it one
    held = past.state in LEASED and past.fencing_token == job.fencing_token
    return replace(
        job,
        **{name: getattr(past, name) for name in _TOLD},
        error=convert(past.error, Failure | None),
        dead_letter=convert(past.dead_letter, DeadLetter | None),
        found=convert(past.found, Found | None),
        lease=job.lease if held else None,
        cancel=job.cancel if past.cancel_requested else None,
        ended_at=_ended_at(history[: last + 1]) if past.state in ENDED else None,
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
    "fencing_token",
    "reason",
    "result",
)
