"""Restore: a backup becomes a store that owners from after the backup cannot write to."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from holdfast.core.errors import Conflict, Invalid, Unavailable
from holdfast.core.lifecycle.termination import RESTORED_TOKEN_STEP
from holdfast.failpoint import failpoint
from holdfast.ports import Ids
from holdfast.stores.restore_fencing import fence_all_owners
from holdfast.stores.sqlite.connection import (
    connect,
    has_another_log,
    migrate,
    read_number,
    translated,
    write_meta,
)
from holdfast.stores.sqlite.prune import raise_floor
from holdfast.stores.sqlite.statements import statement
from holdfast.stores.sqlite.store import SqliteStore


async def restore_copy(source: Path, draft: Path, ids: Ids) -> tuple[int, int]:
    """Copy the backup to `draft` and fence all owners; return the number of jobs, and of those that had
    one."""
    _copy(source, draft)
    store = await SqliteStore.open(draft, ids=ids)
    try:
        counts = await store.counts()
        taken = await fence_all_owners(store, ids.new())
    finally:
        await store.close()
    _make_whole(draft)
    return sum(counts.values()), taken


def _copy(source: Path, draft: Path) -> None:
    with _at_once(source):
        backup = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            if not backup.pragma("user_version"):
                raise Invalid(f"{source} is not a backup of a store: it has no jobs in it at all.")
            backup.execute("VACUUM INTO ?", (str(draft),)).fetchall()
        except (apsw.FullError, apsw.CantOpenError, apsw.IOError) as error:
            words = f"{source} could not be copied to {draft.parent}: {error}. Nothing was changed."
            raise Unavailable(words) from error
        finally:
            backup.close()
    failpoint("restore.copied")
    with translated(draft):
        connection = connect(draft)
        try:
            _migrate(connection, source, draft)
            _raise_tokens(connection)
        finally:
            connection.close()


def _migrate(connection: apsw.Connection, source: Path, draft: Path) -> None:
    try:
        migrate(connection, draft)
    except Invalid as error:  # it is the backup that is not what it should be
        raise Invalid(error.message.replace(str(draft), str(source))) from error


def _raise_tokens(connection: apsw.Connection) -> None:
    """Begin a new epoch, with tokens above all that the old one can have granted."""
    write_meta(connection, "epoch", read_number(connection, "epoch") + 1)
    failpoint("restore.epoch_raised")
    raise_floor(connection, read_number(connection, "token_floor") + RESTORED_TOKEN_STEP)
    failpoint("restore.floor_raised")
    connection.execute(statement("raise_tokens"), (RESTORED_TOKEN_STEP,)).fetchall()
    failpoint("restore.locks_freed")


def _make_whole(path: Path) -> None:
    """Bring the log into the file, or raise: closing alone passes over a checkpoint that failed."""
    with _at_once(path):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            _into_one_file(connection)
        finally:
            connection.close()


@contextmanager
def locked_for_restore(target: Path) -> Iterator[None]:
    """Lock the store that is about to be replaced, with its log brought into the file, so that no process
    can open it.

    Raise `Conflict` when a process uses it: it would go on writing to a file without a name. A damaged
    store is not locked, since no process can open it.
    """
    connection = _locked_store(target)
    try:
        yield
    finally:
        if connection:
            connection.close()


def _locked_store(target: Path) -> apsw.Connection | None:
    with _at_once(target):
        before = _identity(target)
        if has_another_log(target):
            raise apsw.BusyError("another process has it open with a log that is not beside it")
        connection = apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            if connection.readonly("main"):
                raise apsw.ReadOnlyError("attempt to write a readonly database")
            _into_one_file(connection)
            connection.execute("BEGIN EXCLUSIVE").fetchall()
            if before is None or _identity(target) != before:
                raise apsw.BusyError("another process has replaced it")
        except (apsw.NotADBError, apsw.CorruptError):
            connection.close()
            return None  # a damaged store is what one restores over
        except BaseException:
            connection.close()
            raise
        return connection


def _into_one_file(connection: apsw.Connection) -> None:
    if connection.pragma("journal_mode", "DELETE") != "delete":
        raise apsw.BusyError("another process has its log open")


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of the file at this path."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def _at_once(path: Path) -> Iterator[None]:
    """Like `translated`, for connections that do not wait for a file to be free."""
    with translated(path):
        try:
            yield
        except (apsw.BusyError, apsw.LockedError) as error:
            raise Conflict(f"{path} is in use: stop every worker and command that uses it first.") from error
