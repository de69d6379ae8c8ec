"""Restoring: a backup becomes a store that no owner from after the backup can write to."""

from functools import partial
from pathlib import Path

import apsw

from holdfast.core.errors import Conflict, Invalid
from holdfast.core.lifecycle import Change, Restore, decide
from holdfast.core.lifecycle.ending import RESTORED_TOKEN_STEP
from holdfast.core.state import ENDED, State
from holdfast.failpoint import failpoint
from holdfast.ports import Filter, Ids, One, Work
from holdfast.stores.sqlite.connection import connect, migrate, read_meta, translated, write_meta
from holdfast.stores.sqlite.pruning import raise_floor
from holdfast.stores.sqlite.store import SqliteStore

_PAGE = 500


async def open_copy(source: Path, target: Path, ids: Ids) -> tuple[int, int]:
    """Copy the backup to `target` and make it safe; answers all jobs, and those taken from owners."""
    _copy(source, target)
    store = await SqliteStore.open(target, ids=ids)
    try:
        counts = await store.counts()
        taken = await _shut_out(store, ids.new())
    finally:
        await store.close()
    _make_whole(target)
    return sum(counts.values()), taken


def _copy(source: Path, target: Path) -> None:
    with translated(source):
        backup = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            if not backup.pragma("user_version"):
                raise Invalid(f"{source} is not a backup of a store: it has no jobs in it at all.")
            backup.execute("VACUUM INTO ?", (str(target),)).fetchall()
        finally:
            backup.close()
    failpoint("restore.copied")
    with translated(target):
        connection = connect(target)
        try:
            migrate(connection, target)
            _raise_tokens(connection)
        finally:
            connection.close()


def _raise_tokens(connection: apsw.Connection) -> None:
    """Begin a new epoch, with every token above all that the old one can have granted."""
    epoch = read_meta(connection, "epoch")
    write_meta(connection, "epoch", (epoch if isinstance(epoch, int) else 0) + 1)
    failpoint("restore.epoch_raised")
    floor = read_meta(connection, "token_floor")
    raise_floor(connection, (floor if isinstance(floor, int) else 0) + RESTORED_TOKEN_STEP)
    failpoint("restore.floor_raised")
    sql = "UPDATE resource SET token = token + ?, holder = NULL"
    connection.execute(sql, (RESTORED_TOKEN_STEP,)).fetchall()
    failpoint("restore.locks_freed")


def _make_whole(path: Path) -> None:
    """Bring the log into the file, or raise: closing alone passes over a checkpoint that failed."""
    with translated(path):
        connection = apsw.Connection(str(path))
        try:
            connection.pragma("journal_mode", "DELETE")
        finally:
            connection.close()


def close_off(target: Path) -> None:
    """Make sure that nobody uses the store which is about to be replaced, and that its file is whole
    by itself. `Conflict` when somebody does: they would go on writing to a file without a name."""
    in_use = f"{target} is in use: stop every worker and command that uses it first."
    with translated(target):
        connection = apsw.Connection(str(target))
        try:
            if connection.pragma("journal_mode", "DELETE") == "wal":
                raise Conflict(in_use)
        except (apsw.BusyError, apsw.LockedError) as error:
            raise Conflict(in_use) from error
        except (apsw.NotADBError, apsw.CorruptError):
            return  # a damaged store is what one restores over
        finally:
            connection.close()


async def _shut_out(store: SqliteStore, op_id: str) -> int:
    live = Filter(states=tuple(state for state in State if state not in ENDED))
    cursor: str | None = None
    taken = 0
    while True:
        page = await store.list_jobs(live, after=cursor, limit=_PAGE)
        command = partial(decide, Restore(op_id=op_id))
        answers = await store.transact([Work(One(job.job_id), command) for job in page.jobs])
        failpoint("restore.owners_shut_out")
        for [decision] in answers:
            before = decision.before if isinstance(decision, Change) else None
            taken += before is not None and before.leased
        cursor = page.next
        if cursor is None:
            return taken
