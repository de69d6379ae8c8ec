"""Epochs: tables that were restored from a backup begin a new epoch, in which no earlier fencing token and
no earlier cursor is valid."""

from holdfast.core.lifecycle.termination import RESTORED_TOKEN_STEP
from holdfast.failpoint import failpoint
from holdfast.ports import Ids
from holdfast.stores.postgres.sessions import Session
from holdfast.stores.postgres.statements import statement

_LOCK = 5196120715


async def epoch_of(session: Session, schema: str, ids: Ids) -> tuple[int, str | None]:
    """Return the epoch of the tables, and the op_id to fence the owners of the epoch before with, when that
    is still to be done. Tables that are not where they were last written are a restored copy."""
    here, home, epoch, pending = (await session.fetch(statement("select_epoch", schema)))[0]
    if here is None:
        return epoch, None  # a replica: left to a process that can write
    if home is None:
        await session.fetch(statement("put_meta", schema), "home", here)
    elif home != here:
        await _begin(session, schema, ids.new())
        return await epoch_of(session, schema, ids)
    return epoch, pending


async def _begin(session: Session, schema: str, op_id: str) -> None:
    async with session.transaction("SET LOCAL lock_timeout = '25s'", seconds=600):
        await session.fetch("SELECT pg_advisory_xact_lock($1)", _LOCK)
        # Wait for transactions that write events of the old epoch; those that follow write the new one.
        await session.connection.execute(f"LOCK TABLE {schema}.state, {schema}.fact IN SHARE MODE")
        here, home, epoch, _ = (await session.fetch(statement("select_epoch", schema)))[0]
        if home == here:
            return  # another process has just begun it
        begin = statement("begin_epoch", schema)
        await session.fetch(begin, here, epoch, op_id, RESTORED_TOKEN_STEP)
        await session.fetch(statement("free_resources", schema), RESTORED_TOKEN_STEP)
        failpoint("postgres.epoch_raised")
