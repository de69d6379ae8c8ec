"""Partitions of the event table, by the enqueue sequence of the job: those of pruned jobs are dropped
whole."""

from asyncpg import exceptions as pg

from holdfast.failpoint import failpoint
from holdfast.stores.postgres.sessions import Session
from holdfast.stores.postgres.statements import statement

JOBS_PER_PARTITION = 2**18
DROP_MILLISECONDS = 50
_LOCK = 5196120714


async def ensure_partitions(session: Session, schema: str, jobs: int = JOBS_PER_PARTITION) -> int:
    """Make sure that there are partitions for the events of the next jobs; return the first enqueue
    sequence that has none."""
    last, end = await _extent(session, schema)
    if end < last + jobs:
        try:
            async with session.transaction():
                end = await make_partitions(session, schema, jobs)
        except (pg.InsufficientPrivilegeError, pg.ReadOnlySQLTransactionError):
            if end <= last:  # until then, a process with the privilege may make them
                raise
    return end


async def make_partitions(session: Session, schema: str, jobs: int = JOBS_PER_PARTITION) -> int:
    """The same inside a transaction. Attaching an empty table blocks neither readers nor writers."""
    await session.fetch("SELECT pg_advisory_xact_lock($1)", _LOCK)
    last, end = await _extent(session, schema)
    while end < last + 2 * jobs:
        name = f"{schema}.event_{end:012d}"
        await session.connection.execute(
            f"CREATE TABLE {name} (LIKE {schema}.event INCLUDING DEFAULTS);"
            f"ALTER TABLE {schema}.event ATTACH PARTITION {name} FOR VALUES FROM ({end}) TO ({end + jobs})"
        )
        failpoint("postgres.partition_made")
        end += jobs
    return end


async def _extent(session: Session, schema: str) -> tuple[int, int]:
    """Return the last enqueue sequence, and the first one that has no partition."""
    [(last, end)] = await session.fetch(statement("select_partition_extent", schema), f"{schema}.event")
    return last, end


async def drop_empty_partitions(session: Session, schema: str, jobs: int = JOBS_PER_PARTITION) -> None:
    """Drop the partitions whose jobs are all pruned. One that is in use, or that this user may not drop, is
    left for the next time."""
    last, _ = await _extent(session, schema)
    empty = await session.fetch(statement("select_empty_partitions", schema), f"{schema}.event", last - jobs)
    for (name,) in empty:
        try:
            async with session.transaction(f"SET LOCAL lock_timeout = '{DROP_MILLISECONDS}ms'"):
                await session.connection.execute(f"DROP TABLE {schema}.{name}")
        except (pg.LockNotAvailableError, pg.InsufficientPrivilegeError, pg.QueryCanceledError):
            return
        failpoint("postgres.partition_dropped")
