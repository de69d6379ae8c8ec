"""Partitions: events lie in tables by the age of their job, so that old jobs leave without a trace."""

from asyncpg import exceptions as pg

from holdfast.failpoint import failpoint
from holdfast.stores.postgres.sessions import Session
from holdfast.stores.postgres.statements import statement

JOBS_PER_PARTITION = 2**18
DROP_MILLISECONDS = 50
_LOCK = 5196120714


async def room_for_events(session: Session, schema: str, jobs: int = JOBS_PER_PARTITION) -> int:
    """Make sure that the events of the next jobs have a place; answers the first job that has none."""
    last, end = await _extent(session, schema)
    if end < last + jobs:
        try:
            async with session.transaction():
                end = await make_partitions(session, schema, jobs)
        except (pg.InsufficientPrivilegeError, pg.ReadOnlySQLTransactionError):
            if end <= last:  # until then somebody who may can come by
                raise
    return end


async def make_partitions(session: Session, schema: str, jobs: int = JOBS_PER_PARTITION) -> int:
    """The same inside a transaction. Attaching an empty table keeps nobody from reading or writing."""
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
    """The newest job, and the first one that has no partition."""
    [(last, end)] = await session.fetch(statement("select_extent", schema), f"{schema}.event")
    return last, end


async def drop_husks(session: Session, schema: str, jobs: int = JOBS_PER_PARTITION) -> None:
    """Drop the partitions whose jobs are all gone. Whoever uses one just now keeps it, till next time; so
    does who may not drop it."""
    last, _ = await _extent(session, schema)
    husks = await session.fetch(statement("select_husks", schema), f"{schema}.event", last - jobs)
    for (name,) in husks:
        try:
            async with session.transaction(f"SET LOCAL lock_timeout = '{DROP_MILLISECONDS}ms'"):
                await session.connection.execute(f"DROP TABLE {schema}.{name}")
        except (pg.LockNotAvailableError, pg.InsufficientPrivilegeError, pg.QueryCanceledError):
            return
        failpoint("postgres.partition_dropped")
