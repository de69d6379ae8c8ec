"""prune: remove old jobs and output. Jobs are removed whole, so the others still fold."""

from datetime import UTC, datetime, timedelta

from holdfast.core.errors import Invalid, Unavailable
from holdfast.core.limits import BATCH_ITEMS_MAX
from holdfast.ports import PruneResult
from holdfast.registry.commit_queue import CommitQueue


async def prune(
    commits: CommitQueue,
    *,
    older_than: timedelta,
    output_older_than: timedelta | None = None,
    dry_run: bool = False,
) -> PruneResult:
    """Remove jobs that ended longer ago than `older_than`, with their events, and older worker output; with
    `dry_run`, return only how many jobs, and how many stored pieces of other jobs' output."""
    if output_older_than is None:
        output_older_than = older_than
    if older_than < timedelta() or output_older_than < timedelta():
        raise Invalid("An age cannot be negative.")
    now = await commits.store.now()
    ended_before, output_before = _before(now, older_than), _before(now, output_older_than)
    if dry_run:
        return await commits.store.prunable(ended_before=ended_before, output_before=output_before)
    jobs = events = 0
    while True:
        try:
            step = await commits.store.prune(
                ended_before=ended_before, output_before=output_before, limit=BATCH_ITEMS_MAX
            )
        except Unavailable as error:
            if jobs or events:  # earlier steps have removed something
                error.applied = "unknown"
            raise
        jobs, events = jobs + step.jobs, events + step.events
        if step.jobs == step.events == 0:
            return PruneResult(jobs, events)


_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


def _before(now: datetime, age: timedelta) -> datetime:
    return _BEGINNING if age > now - _BEGINNING else now - age
