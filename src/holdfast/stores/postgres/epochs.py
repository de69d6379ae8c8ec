"""Epochs: tables that were restored from a backup begin a new one, in which no earlier token is valid
and no earlier cursor leads anywhere."""

from holdfast.core.lifecycle.ending import RESTORED_TOKEN_STEP
from holdfast.failpoint import failpoint
from holdfast.ports import Ids
from holdfast.stores.postgres.sessions import Session
from holdfast.stores.postgres.statements import statement

_LOCK = 5196120715


async def epoch_of(session: Session, schema: str, ids: Ids) -> tuple[int, str | None]:
    """The epoch of the tables, and the op_id to shut out the owners of the one before, when that is
    still to be done. Tables that are not where they were written last are a restored copy."""
    here, home, epoch, pending = (await session.fetch(statement("select_epoch", schema)))[0]
    if here is None:
        return epoch, None  # a replica: whoever may write will see to it
    if home is None:
        await session.fetch(statement("put_meta", schema), "home", here)
    elif home != here:
        await _begin(session, schema, ids.new())
        return await epoch_of(session, schema, ids)
    return epoch, pending


async def _begin(session: Session, schema: str, op_id: str) -> None:
    async with session.transaction("SET LOCAL lock_timeout = '25s'", seconds=600):
        await session.fetch("SELECT pg_advisory_xact_lock($1)", _LOCK)
        # Who writes events of the old epoch is let finish; who comes next writes those of the new one.
        await session.connection.execute(f"LOCK TABLE {schema}.event, {schema}.fact IN SHARE MODE")
        here, home, epoch, _ = (await session.fetch(statement("select_epoch", schema)))[0]
        if home == here:
            return  # somebody else has just begun it
        begin = statement("begin_epoch", schema)
        await session.fetch(begin, here, epoch, op_id, RESTORED_TOKEN_STEP)
        await session.fetch(statement("free_resources", schema), RESTORED_TOKEN_STEP)
        failpoint("postgres.epoch_raised")
