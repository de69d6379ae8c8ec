"""Seams: where, in a log that is read, the output of one attempt ends and that of the next begins."""

from datetime import datetime

from holdfast.core.catalogue import EventType
from holdfast.core.event import Event


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
        if event.data is None or event.attempt in (None, self._attempt):
            return None
        self._attempt = event.attempt
        at = self._claimed_at.get(event.attempt, event.occurred_at)
        total = f" of {self._attempts}" if event.attempt <= self._attempts else ""
        worker = f", worker {event.actor.removeprefix('worker:')}" if event.actor else ""
        return f"── attempt {event.attempt}{total}{worker}, {at:%H:%M:%S} UTC ──"
