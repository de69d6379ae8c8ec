"""Listings: which jobs match, where a page begins and ends, and how large it may be."""

from collections.abc import Iterable
from datetime import datetime
from operator import itemgetter
from typing import Any

import msgspec

from holdfast.core.access import Principal
from holdfast.core.arguments import has_arguments
from holdfast.core.catalogue import EventClass
from holdfast.core.errors import Invalid
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.short_ids import fits_short_id
from holdfast.core.state import State
from holdfast.core.visibility import can_read, can_see, can_see_all
from holdfast.ports import HistoryPage, JobFilter, JobPage

EVENT_PAGE_BYTES = 4 * 1024 * 1024
"""How much of a log a store reads into memory at once; the row that exceeds it is still included."""
LIST_BYTES_MAX = 1024 * 1024
"""The most bytes of job records (spec and detail) on a page."""
HISTORIES_QUICK_MAX = 4
"""Up to this many histories are read together with quick reads. More are a scan: a job may have many
events."""
LIST_ROWS_MAX = 5_000
"""The most jobs that are read for a page, whether they match or not; for rare states, of each state."""
LIST_READ_BYTES_MAX = 8 * 1024 * 1024
"""The most bytes of records that are read for a page, whether they match or not."""
HISTORY_BYTES_MAX = 1024 * 1024
"""The most bytes of events on a page of a job's history."""
EVENT_BYTES = 600
"""The size of an event as JSON without the body of its row: field names, times, states and ids."""
PUBLISHED_ROWS = 4
"""How many batches of a worker's events are read at once to find sequences: each has up to 1 MiB of
output."""

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
"""States whose jobs are listed apart in SQL stores: sweeps and users list them, and a job that simply
succeeds is never in one. The migrations of the stores have the same list."""

_BEYOND = 2**62


def is_stale(event: Event, before: datetime) -> bool:
    """Return whether the event is a worker's, received before this instant."""
    return (
        event.event_class is EventClass.WORKER
        and event.received_at is not None
        and event.received_at < before
    )


def place_of(event: Event) -> tuple[int, int]:
    """Return the place of a worker's event among all of its job: the token and the sequence."""
    return event.fencing_token or 0, event.sequence or 0


class PageBuilder:
    """Collects a page of jobs: which jobs belong on it, and when it is full."""

    def __init__(self, which: JobFilter, limit: int) -> None:
        self._which = which
        self._limit = limit
        self._jobs: list[Job] = []
        self._bytes = 0
        self._read = 0
        self._rows = 0
        self._place: str | None = None

    def take(self, place: str, job: Job, size: int) -> bool:
        """Add the next job, whose record has `size` bytes, if it matches. Return False when the page has
        ended before it."""
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

    def cut(self) -> JobPage:
        """Return the page when more jobs follow those that were read."""
        return JobPage(tuple(self._jobs), self._place)

    def end(self, beyond: str | None) -> JobPage:
        """Return the page when everything was read up to `beyond`, or (None) to the last job."""
        return JobPage(tuple(self._jobs), beyond)


class HistoryBuilder:
    """Collects a page of a job's history."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._events: list[Event] = []
        self._bytes = 0
        self._place: str | None = None

    def take(self, place: object, event: Event, size: int) -> bool:
        """Add the next event, of `size` bytes. Return False when the page has ended before it."""
        self._bytes += size
        no_room = bool(self._events) and self._bytes > HISTORY_BYTES_MAX
        if len(self._events) == self._limit or no_room:
            return False
        self._events.append(event)
        self._place = str(place)
        return True

    def cut(self) -> HistoryPage:
        """Return the page when more events follow."""
        return HistoryPage(tuple(self._events), self._place)

    def end(self) -> HistoryPage:
        """Return the page when it is the last."""
        return HistoryPage(tuple(self._events))


def record_bytes(*texts: str) -> int:
    """Return the size of a record stored as these texts, in bytes of UTF-8."""
    return sum(len(text) if text.isascii() else len(text.encode()) for text in texts)


def matches(job: Job, which: JobFilter) -> bool:
    return (
        (which.queue is None or job.spec.queue == which.queue)
        and (which.kind is None or job.spec.kind == which.kind)
        and (which.name is None or job.spec.name == which.name)
        and (which.short_id is None or fits_short_id(job.job_id, which.short_id))
        and (not which.states or job.state in which.states)
        and (which.owner is None or job.owner == which.owner)
        and all(job.spec.labels.get(key) == value for key, value in which.labels.items())
        and (which.viewer is None or can_see(which.viewer, job))
        and (not which.arguments or _has_arguments(job, which))
    )


def _has_arguments(job: Job, which: JobFilter) -> bool:
    """Whether the job has the arguments, and the viewer may read them: else a filter would tell them."""
    readable = which.viewer is None or can_read(which.viewer, job)
    return readable and has_arguments(job.spec, which.arguments)


def written_name(which: JobFilter) -> str | None:
    """Return how the name stands in the JSON of a spec: what does not contain that need not be read."""
    return None if which.name is None else f'"name":{msgspec.json.encode(which.name).decode()}'


def in_page_order(rows: Iterable[tuple[Any, ...]], start: int, *, newest: bool) -> list[tuple[Any, ...]]:
    """Return the rows, whose first column is their place, that come after `start`, in the order of a page."""
    wanted = [row for row in rows if (row[0] < start if newest else row[0] > start)]
    return sorted(wanted, key=itemgetter(0), reverse=newest)


def is_rare(which: JobFilter) -> bool:
    """Whether the filter names states, and all of them have an index."""
    return bool(which.states) and RARE_STATES.issuperset(which.states)


def is_selective(which: JobFilter) -> bool:
    """Whether the counts of jobs by queue and state may show that no job matches."""
    common = bool(which.states) and not is_rare(which)
    return common or which.queue is not None or _limited(which.viewer) is not None


def queue_patterns(which: JobFilter) -> list[str] | None:
    """Return the patterns (* matches anything) of the queues that the viewer may see; None for all."""
    viewer = _limited(which.viewer)
    return None if viewer is None or "*" in viewer.queues else list(viewer.queues)


def regions(which: JobFilter) -> list[str] | None:
    """Return the regions that the viewer may see; None for all."""
    viewer = _limited(which.viewer)
    return None if viewer is None else list(viewer.regions) or None


def _limited(viewer: Principal | None) -> Principal | None:
    return None if viewer is None or can_see_all(viewer) else viewer


def cursor_number(cursor: str) -> int:
    """Return the number in a cursor; raise `Invalid` for text that is not a cursor of ours."""
    if not cursor.isascii() or not cursor.isdecimal() or len(cursor) > 18:
        raise invalid_cursor(cursor)
    return int(cursor)


def invalid_cursor(cursor: str) -> Invalid:
    """Return the error for text that is not a cursor of this store."""
    return Invalid(f"{cursor[:40]!r} is not a cursor of this store; start without one.")


def page_start(cursor: str | None, *, newest: bool) -> int:
    """Return where a page begins: at its cursor, else at the newest or the oldest job."""
    if cursor:
        return cursor_number(cursor)
    return _BEYOND if newest else 0


def page_end(first: int, last: int, *, newest: bool) -> int | None:
    """Return the last number that is read for a page that begins at number `first`; None for all."""
    if newest:
        until = first - LIST_ROWS_MAX + 1
        return None if until <= last else until
    until = first + LIST_ROWS_MAX - 1
    return None if until >= last else until
