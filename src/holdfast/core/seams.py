"""Seams: where, in a log that is read, the output of one attempt ends and that of the next begins."""

from datetime import datetime

from holdfast.core.catalogue import EventType
from holdfast.core.event import Event
from holdfast.core.tracebacks import traceback_in


class SeamTracker:
    """Which attempt's output is being read. `attempts` is how many the job has had so far."""

    def __init__(self, attempts: int = 0) -> None:
        self._attempts = attempts
        self._attempt = 1
        self._claimed_at: dict[int | None, datetime] = {}

    def before(self, event: Event) -> str | None:
        """Return the line that belongs before this event's output, if an attempt after the first begins
        with it."""
        if event.event_type == EventType.CLAIMED:
            self._claimed_at[event.attempt] = event.occurred_at
        if event.attempt in (None, self._attempt) or not _is_shown(event):
            return None
        self._attempt = event.attempt
        at = self._claimed_at.get(event.attempt, event.occurred_at)
        total = f" of {self._attempts}" if event.attempt <= self._attempts else ""
        worker = f", worker {event.actor.removeprefix('worker:')}" if event.actor else ""
        return f"── attempt {event.attempt}{total}{worker}, {at:%H:%M:%S} UTC ──"


def _is_shown(event: Event) -> bool:
    """Whether readers are shown something of the event: output, or a traceback that its worker published."""
    found = traceback_in(event)
    return event.data is not None or (found is not None and found.published)
