"""What readers ask for: which jobs, and from where on."""

from holdfast.core.errors import Invalid
from holdfast.core.job import Job
from holdfast.ports import Filter

SLICE_BYTES = 4 * 1024 * 1024
"""How much of a log a store reads into memory at once."""

_BEYOND = 2**62


def matches(job: Job, which: Filter) -> bool:
    return (
        (which.queue is None or job.spec.queue == which.queue)
        and (which.kind is None or job.spec.kind == which.kind)
        and (not which.states or job.state in which.states)
        and (which.owner is None or job.owner == which.owner)
        and all(job.spec.labels.get(key) == value for key, value in which.labels.items())
    )


def position(cursor: str) -> int:
    """The number in a cursor, or `Invalid`: a cursor is opaque, so nobody should have made one up."""
    if not cursor.isascii() or not cursor.isdecimal() or len(cursor) > 18:
        raise Invalid(f"{cursor[:40]!r} is not a cursor of this store; start without one.")
    return int(cursor)


def beginning(cursor: str | None, *, newest: bool) -> int:
    """Where a page begins: at its cursor, else with the newest job or with the oldest."""
    if cursor:
        return position(cursor)
    return _BEYOND if newest else 0
