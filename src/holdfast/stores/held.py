"""Held jobs: those this store has leased out, as it last wrote them.

Their owner's next word is decided on this copy instead of reading the job first. In SQLite a copy is good
while nobody else has committed. In PostgreSQL it is only a guess: the commit names the very row it was made
from, and what writes nothing is decided again on the job itself.
"""

from collections.abc import Iterable

from msgspec import Struct

from holdfast.core.job import Job

HELD_MAX = 5_000
PAYLOAD_BYTES_MAX = 16 * 1024


class Copy(Struct, frozen=True, gc=False):
    """A job, its number, and the transaction that wrote its row (where a store knows it)."""

    seq: int
    job: Job
    row_version: int = 0


class Held:
    """The copies of one store; the oldest go first."""

    def __init__(self) -> None:
        self._copies: dict[str, Copy] = {}

    def known(self, job_ids: Iterable[str]) -> list[Copy]:
        """A copy of each that there is one of."""
        get = self._copies.get
        return [copy for job_id in job_ids if (copy := get(job_id)) is not None]

    def all_of(self, job_ids: list[str]) -> list[Copy] | None:
        """A copy of each, or None."""
        found = self.known(job_ids)
        return found if len(found) == len(job_ids) else None

    def keep(self, copies: Iterable[Copy]) -> None:
        """Take in jobs as they were just written; those that nobody holds any more go."""
        kept = self._copies
        for copy in copies:
            job_id = copy.job.job_id
            kept.pop(job_id, None)  # it is the youngest now
            if copy.job.lease is not None and _is_handy(copy.job):
                kept[job_id] = copy
        while len(kept) > HELD_MAX:
            del kept[next(iter(kept))]

    def forget(self) -> None:
        self._copies.clear()


def _is_handy(job: Job) -> bool:
    """Whether it is small, and nothing in it can be changed by whoever was given it: what is kept here may
    be written again."""
    return (
        job.checkpoint is None
        and job.result is None
        and job.handle is None
        and memoryview(job.spec.payload).nbytes <= PAYLOAD_BYTES_MAX
    )
