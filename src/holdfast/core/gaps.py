"""Gaps: sequences that are missing from the log of an attempt, found as it is read."""

from holdfast.core.event import Event


class Gaps:
    """Remembers how far each attempt has come. Where old output is pruned, an attempt begins later than
    with 1: only what is missing between two events is certain never to have come."""

    def __init__(self) -> None:
        self._last: dict[int | None, int] = {}

    def before(self, event: Event) -> range:
        """The sequences of its attempt that are missing right before this event."""
        if event.sequence is None:
            return range(0)
        last = self._last.get(event.fencing_token, 0)
        self._last[event.fencing_token] = max(last, event.last_sequence)
        return range(last + 1, event.sequence)


def gap_words(missing: range, attempt: int | None) -> str:
    """What a reader is told of a gap."""
    if len(missing) == 1:
        return f"Event {missing.start:,} of attempt {attempt} never arrived."
    return f"Events {missing.start:,} to {missing.stop - 1:,} of attempt {attempt} never arrived."
