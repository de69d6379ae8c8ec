"""Held jobs: those this store has leased out, as it last wrote them.

Their owner's next word is decided on this copy instead of reading the job first. It is only a guess: the
commit names the very row it was made from, and what writes nothing is decided again on the job itself.
"""

from collections.abc import Iterable

from msgspec import Struct

from holdfast.core.job import Job

HELD_MAX = 5_000


class Copy(Struct, frozen=True, gc=False):
    """A job, its number, and the transaction that wrote its row."""

    seq: int
    job: Job
    row_version: int


class Held:
    """The copies of one store; the oldest go first."""

    def __init__(self) -> None:
        self._copies: dict[str, Copy] = {}

    def all_of(self, job_ids: list[str]) -> list[Copy] | None:
        """A copy of each, or None."""
        copies = [self._copies.get(job_id) for job_id in job_ids]
        found = [copy for copy in copies if copy is not None]
        return found if len(found) == len(copies) else None

    def keep(self, copies: Iterable[Copy]) -> None:
        """Take in jobs that were written with a lease."""
        for copy in copies:
            self._copies.pop(copy.job.job_id, None)  # it is the youngest now
            self._copies[copy.job.job_id] = copy
        while len(self._copies) > HELD_MAX:
            del self._copies[next(iter(self._copies))]

    def drop(self, job_ids: Iterable[str]) -> None:
        """Nobody holds these jobs any more."""
        for job_id in job_ids:
            self._copies.pop(job_id, None)

    def forget(self) -> None:
        self._copies.clear()
