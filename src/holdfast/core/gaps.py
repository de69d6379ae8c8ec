"""Gaps: sequences that are missing from the log of an attempt, found as it is read."""

from holdfast.core.event import Event


class GapTracker:
    """How far the log of each attempt has been read.

    The events in a gap between two others never arrived. Those before the first event of an attempt may
    have been pruned instead; the caller has to know which.
    """

    def __init__(self) -> None:
        self._last: dict[int | None, int] = {}

    def missing_before(self, event: Event) -> range:
        """Return the sequences of its attempt that are missing right before this event."""
        if event.sequence is None:
            return range(0)
        last = self._last.get(event.fencing_token, 0)
        self._last[event.fencing_token] = max(last, event.last_sequence)
        return range(last + 1, event.sequence)


def describe_gap(missing: range, attempt: int | None) -> str:
    """Return a sentence on a gap, for readers of the log."""
    if len(missing) == 1:
        return f"Event {missing.start:,} of attempt {attempt} never arrived."
    return f"Events {missing.start:,} to {missing.stop - 1:,} of attempt {attempt} never arrived."
