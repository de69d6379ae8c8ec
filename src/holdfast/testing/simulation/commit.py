"""A commit as it was made, and a violation that it shows."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from holdfast.core.event import Event
from holdfast.core.job import Job


class Violation(Struct, frozen=True):
    """An invariant that did not hold, in words."""

    invariant: str
    words: str


class Commit(Struct, frozen=True):
    """The committed change of one job. `now` is the store's time; None where the writer's own counts."""

    before: Job | None
    after: Job
    events: Sequence[Event]
    now: datetime | None
