"""prune: forget what is old enough. Whole jobs go, so what is left still folds."""

from datetime import UTC, datetime, timedelta

from holdfast.core.errors import Invalid, Unavailable
from holdfast.core.limits import BATCH_ITEMS_MAX
from holdfast.ports import Pruned
from holdfast.registry.line import Line


async def prune(
    line: Line, *, older_than: timedelta, output_older_than: timedelta | None = None
) -> Pruned:
    """Remove jobs that ended before then, with their events, and worker output before that."""
    if output_older_than is None:
        output_older_than = older_than
    if older_than < timedelta() or output_older_than < timedelta():
        raise Invalid("An age cannot be negative.")
    now = await line.store.now()
    jobs = events = 0
    while True:
        try:
            step = await line.store.prune(
                ended_before=_before(now, older_than),
                output_before=_before(now, output_older_than),
                limit=BATCH_ITEMS_MAX,
            )
        except Unavailable as error:
            if jobs or events:  # what was pruned before is gone
                error.applied = "unknown"
            raise
        jobs, events = jobs + step.jobs, events + step.events
        if step.jobs == step.events == 0:
            return Pruned(jobs, events)


_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


def _before(now: datetime, age: timedelta) -> datetime:
    return _BEGINNING if age > now - _BEGINNING else now - age
