"""A cache of leased jobs, each as this store last wrote it.

The owner's next request is decided on the cached job, without reading the row first. In SQLite a cached job
is valid as long as no other process has committed. In PostgreSQL it may be stale: the commit is conditional
on the row version it was read at, and a decision that writes nothing is made again on the stored row.
"""

from collections.abc import Iterable

from msgspec import Struct

from holdfast.core.job import Job
from holdfast.core.lifecycle.pattern import Template

CACHED_MAX = 5_000
PAYLOAD_BYTES_MAX = 16 * 1024


class CachedJob(Struct, frozen=True, gc=False):
    """A job, its enqueue sequence, the transaction that wrote its row (PostgreSQL only), and the template
    that it shares with others, if any."""

    seq: int
    job: Job
    row_version: int = 0
    template: Template | None = None


class LeasedJobCache:
    """The leased jobs of one store; beyond `CACHED_MAX` the oldest entries are dropped."""

    def __init__(self) -> None:
        self._copies: dict[str, CachedJob] = {}

    def known(self, job_ids: Iterable[str]) -> list[CachedJob]:
        """Return the cached jobs among these."""
        get = self._copies.get
        return [copy for job_id in job_ids if (copy := get(job_id)) is not None]

    def all_of(self, job_ids: list[str]) -> list[CachedJob] | None:
        """Return the cached jobs if all of these are cached, else None."""
        found = self.known(job_ids)
        return found if len(found) == len(job_ids) else None

    def keep(self, copies: Iterable[CachedJob]) -> None:
        """Store jobs as they were just written, and drop those that are no longer leased."""
        kept = self._copies
        for copy in copies:
            job_id = copy.job.job_id
            kept.pop(job_id, None)  # stored again below, it becomes the newest entry
            if copy.job.lease is not None and _is_cacheable(copy.job):
                kept[job_id] = copy
        while len(kept) > CACHED_MAX:
            del kept[next(iter(kept))]

    def drop(self, job_ids: Iterable[str]) -> None:
        """Drop the cached jobs among these."""
        if self._copies:
            for job_id in job_ids:
                self._copies.pop(job_id, None)

    def forget(self) -> None:
        self._copies.clear()


def _is_cacheable(job: Job) -> bool:
    """Whether the job is small and holds no mutable value that a caller could change: a cached job may be
    written again."""
    return (
        job.checkpoint is None
        and job.result is None
        and job.handle is None
        and memoryview(job.spec.payload).nbytes <= PAYLOAD_BYTES_MAX
    )
