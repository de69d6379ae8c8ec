"""What readers ask for: which jobs, from where on, and how much of them at once."""

from holdfast.core.access import Principal
from holdfast.core.errors import Invalid
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.state import State
from holdfast.core.visibility import sees, sees_all
from holdfast.ports import Filter, HistoryPage, Page

SLICE_BYTES = 4 * 1024 * 1024
"""How much of a log a store reads into memory at once, and the row in which that is full."""
LIST_BYTES_MAX = 1024 * 1024
"""The records of the jobs on a page: what they were asked with, what is known of them, and their results."""
HISTORIES_QUICK_MAX = 4
"""Histories that are read beside what is quick. More of them are a scan: a job may have many events."""
LIST_ROWS_MAX = 20_000
"""Jobs that are looked at for a page, whether they match or not: of rare states, of each."""
LIST_READ_BYTES_MAX = 8 * 1024 * 1024
"""Records that are read for a page, whether they are shown or not."""
HISTORY_BYTES_MAX = 1024 * 1024
"""The events on a page of a job's history."""
EVENT_BYTES = 600
"""What an event takes as JSON beside the body of its row: its names, moments, states and ids."""
PUBLISHED_ROWS = 4
"""Commits of a worker's events that are read at once to find sequences: each has up to 1 MiB of output."""

RARE_STATES = frozenset(
    {
        State.VALIDATING,
        State.PARTIAL_SUCCESS,
        State.FAILED,
        State.CANCELLED,
        State.TIMEOUT,
        State.DEAD_LETTERED,
    }
)
"""States with an index in SQL stores: sweeps and people ask for them, and no job that simply succeeds is
ever in one. The same list is in migration 3 and in list_rare_jobs.sql."""

_BEYOND = 2**62


class PageBuilder:
    """A page of jobs while it is put together: what belongs on it, and when it ends."""

    def __init__(self, which: Filter, limit: int) -> None:
        self._which = which
        self._limit = limit
        self._jobs: list[Job] = []
        self._bytes = 0
        self._read = 0
        self._rows = 0
        self._place: str | None = None

    def take(self, place: str, job: Job, size: int) -> bool:
        """Look at the next job, whose record is so large. False: the page has ended before it."""
        self._rows += 1
        self._read += size
        wanted = matches(job, self._which)
        if self._place is not None and (self._spent or (wanted and self._is_full(size))):
            return False
        self._place = place
        if wanted:
            self._jobs.append(job)
            self._bytes += size
        return True

    @property
    def _spent(self) -> bool:
        return self._rows > LIST_ROWS_MAX or self._read > LIST_READ_BYTES_MAX

    def _is_full(self, size: int) -> bool:
        no_room = bool(self._jobs) and self._bytes + size > LIST_BYTES_MAX
        return len(self._jobs) == self._limit or no_room

    def cut(self) -> Page:
        """The page, when there is more behind what was looked at."""
        return Page(tuple(self._jobs), self._place)

    def end(self, beyond: str | None) -> Page:
        """The page, when all was looked at up to `beyond`, or to the last job."""
        return Page(tuple(self._jobs), beyond)


class HistoryBuilder:
    """A page of a job's history while it is put together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._events: list[Event] = []
        self._bytes = 0
        self._place: str | None = None

    def take(self, place: object, event: Event, size: int) -> bool:
        """Add the next event, which is so large. False: the page has ended before it."""
        self._bytes += size
        no_room = bool(self._events) and self._bytes > HISTORY_BYTES_MAX
        if len(self._events) == self._limit or no_room:
            return False
        self._events.append(event)
        self._place = str(place)
        return True

    def cut(self) -> HistoryPage:
        """The page, when there is more behind it."""
        return HistoryPage(tuple(self._events), self._place)

    def end(self) -> HistoryPage:
        """The page, when it is the last."""
        return HistoryPage(tuple(self._events))


def record_bytes(*texts: str) -> int:
    """How large a record is that is stored as these texts: in bytes, as a database counts them."""
    return sum(len(text) if text.isascii() else len(text.encode()) for text in texts)


def matches(job: Job, which: Filter) -> bool:
    return (
        (which.queue is None or job.spec.queue == which.queue)
        and (which.kind is None or job.spec.kind == which.kind)
        and (not which.states or job.state in which.states)
        and (which.owner is None or job.owner == which.owner)
        and all(job.spec.labels.get(key) == value for key, value in which.labels.items())
        and (which.viewer is None or sees(which.viewer, job))
    )


def is_rare(which: Filter) -> bool:
    """Whether all the states that are asked for have an index."""
    return bool(which.states) and RARE_STATES.issuperset(which.states)


def is_selective(which: Filter) -> bool:
    """Whether the counts of queues may tell that there is nothing to look at."""
    common = bool(which.states) and not is_rare(which)
    return common or which.queue is not None or _limited(which.viewer) is not None


def queue_patterns(which: Filter) -> list[str] | None:
    """The queues in the viewer's reach, with * for anything; None for all."""
    viewer = _limited(which.viewer)
    return None if viewer is None or "*" in viewer.queues else list(viewer.queues)


def regions(which: Filter) -> list[str] | None:
    """The regions in the viewer's reach; None for all."""
    viewer = _limited(which.viewer)
    return None if viewer is None else list(viewer.regions) or None


def _limited(viewer: Principal | None) -> Principal | None:
    return None if viewer is None or sees_all(viewer) else viewer


def position(cursor: str) -> int:
    """The number in a cursor, or `Invalid`: a cursor is opaque, so nobody should have made one up."""
    if not cursor.isascii() or not cursor.isdecimal() or len(cursor) > 18:
        raise no_cursor(cursor)
    return int(cursor)


def no_cursor(cursor: str) -> Invalid:
    """The error for what is not a cursor of this store."""
    return Invalid(f"{cursor[:40]!r} is not a cursor of this store; start without one.")


def beginning(cursor: str | None, *, newest: bool) -> int:
    """Where a page begins: at its cursor, else with the newest job or with the oldest."""
    if cursor:
        return position(cursor)
    return _BEYOND if newest else 0


def ending(first: int, last: int, *, newest: bool) -> int | None:
    """The last number that is looked at for a page which begins with the number `first`; None for all."""
    if newest:
        until = first - LIST_ROWS_MAX + 1
        return None if until <= last else until
    until = first + LIST_ROWS_MAX - 1
    return None if until >= last else until
