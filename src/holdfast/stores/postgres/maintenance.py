"""What a process does beside its commits, now and then: compact the counts, and make partitions ahead."""

from holdfast.stores.postgres import errors
from holdfast.stores.postgres.partitions import JOBS_PER_PARTITION, ensure_partitions
from holdfast.stores.postgres.sessions import Session
from holdfast.stores.postgres.statements import statement

COMMITS_PER_CLEANING = 200
COUNTS_MAX = 2_000


class Maintenance:
    """The maintenance of one schema. `commits` is how many commits this process has made."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._counts = 0
        self._partitioned_until = 0
        self.commits = 0

    async def committed(self, session: Session, *, counts: int, last_seq: int) -> None:
        """Account for a commit that wrote so many counts, and do what is due. A failure here does no harm."""
        self.commits += 1
        self._counts += counts
        if self.commits % COMMITS_PER_CLEANING and self._counts < COUNTS_MAX // 2:
            return
        self._counts = 0
        try:
            await session.fetch(statement("compact_counts", self._schema), COUNTS_MAX)
            if last_seq + JOBS_PER_PARTITION > self._partitioned_until:
                await self.ensure_partitions(session)
        except errors.FAILURES:
            session.reusable = False

    async def ensure_partitions(self, session: Session) -> None:
        """Make sure that there are partitions for the events of the next jobs."""
        self._partitioned_until = await ensure_partitions(session, self._schema)
