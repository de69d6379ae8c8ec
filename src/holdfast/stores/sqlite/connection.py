"""Connections: how the file is opened, its settings for durability, its schema, and the translation of
errors."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Literal

import apsw

from holdfast.core.errors import Corrupt, Exhausted, HoldfastError, Invalid, Unavailable
from holdfast.failpoint import failpoint
from holdfast.stores.sqlite.statements import Value, migrations, statement

SAFE_SQLITE = (3, 51, 3)
BUSY_SECONDS_MAX = 30.0
SECOND_LOG_SECONDS_MAX = 2.0
CACHE_KIBIBYTES = 8 * 1024
CHECKPOINT_PAGES = 1000
LOG_BYTES_MAX = 64 * 1024 * 1024
_CREATION = threading.Lock()

apsw.config(apsw.SQLITE_CONFIG_LOG, lambda code, message: None)


def connect(path: Path, *, create: bool = False) -> apsw.Connection:
    """Return a connection in WAL mode, synchronous FULL: what it acknowledges survives a power cut.

    NORMAL, which most guides recommend, lost 7,808 of 40,949 acknowledged commits at power cuts.
    """
    if tuple(map(int, apsw.sqlite_lib_version().split("."))) < SAFE_SQLITE:
        raise Invalid(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt a file that several processes write;"
            " install apsw 3.51.3 or newer."
        )
    # The log is checked first: another process may be making the file, and its log after it, just now.
    if create and Path(f"{os.path.realpath(path)}-wal").exists() and not path.exists():
        raise Invalid(
            f"{path} is not there, but its log is: the file was moved or deleted. Move it back, or"
            f" remove {path.name}-wal and {path.name}-shm if it is gone for good."
        )
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    with translated(path):
        _check_log(path)
        if create:
            _create_private(os.path.realpath(path))
        connection = apsw.Connection(str(path), flags=flags)
        failpoint("sqlite.opened")
        try:
            _prepare(connection)
        except BaseException:
            connection.close()
            raise
    return connection


def _create_private(file: str) -> None:
    """Create an empty file that only its owner may read, unless there is one. SQLite gives the log and its
    index the same permissions.

    Closing a file drops all locks that this process has on it: no thread opens it before it is closed here. A
    draft that gets the name by a link would be a file with two names, for good if the process is killed.
    """
    with _CREATION, suppress(OSError):  # SQLite itself says what is wrong with the folder
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _check_log(path: Path) -> None:
    """Raise `Unavailable` when another process uses the file with another log. A process that is just
    opening, closing or restoring it gets `SECOND_LOG_SECONDS_MAX` to finish."""
    until = time.monotonic() + SECOND_LOG_SECONDS_MAX
    while has_another_log(path):
        if time.monotonic() > until:
            raise Unavailable(
                f"{path} is in use by another process, whose log is not beside it: the log was removed,"
                " or the file was moved, has two names or is just being restored. Nothing was written;"
                " stop every process that uses it, then start again."
            )
        time.sleep(0.002)


def has_another_log(path: Path) -> bool:
    """Whether a process has the file open, but the log or its index is not beside the file."""
    file = os.path.realpath(path)  # SQLite keeps the log where a symbolic link leads to
    names = (f"{file}-wal", f"{file}-shm")
    return os.path.exists(file) and not all(map(os.path.exists, names)) and not _is_free(file)


def _is_free(file: str) -> bool:
    """Whether no process has the file open. The check changes nothing in a file that is in use."""
    connection = apsw.Connection(file, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        if connection.readonly("main"):
            return True  # nothing will be written here
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.pragma("locking_mode", "EXCLUSIVE")
        connection.pragma("user_version")
    except apsw.BusyError:
        return False
    except (apsw.NotADBError, apsw.CorruptError):
        return True  # opening it raises the error
    finally:
        connection.close()
    return True


def _prepare(connection: apsw.Connection) -> None:
    connection.set_busy_handler(patience())
    if connection.readonly("main"):
        raise apsw.ReadOnlyError("attempt to write a readonly database")
    if (mode := _begin_log(connection)) != "wal":
        raise Invalid(f"SQLite cannot keep its log beside this file (journal mode {mode}).")
    failpoint("sqlite.log_begun")
    connection.pragma("synchronous", "FULL")
    if sys.platform == "darwin":  # where a plain sync leaves a commit in the cache of the disk
        connection.pragma("fullfsync", 1)
    # Otherwise SQLite plans a query that may use a partial index anew at each binding: 28 us, not 5.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.pragma("cache_size", -CACHE_KIBIBYTES)
    connection.pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
    connection.pragma("journal_size_limit", LOG_BYTES_MAX)


def _begin_log(connection: apsw.Connection) -> object:
    """Ask for WAL mode, for up to `BUSY_SECONDS_MAX`; return the journal mode.

    In a file that is not in WAL mode yet, SQLite turns its read lock into a write lock for this, without
    calling the busy handler: of two processes that do so at once, one is refused without any wait.
    """
    until = time.monotonic() + BUSY_SECONDS_MAX
    while True:
        try:
            return connection.pragma("journal_mode", "WAL")
        except apsw.BusyError:
            if time.monotonic() > until:
                raise
            time.sleep(0.002)


def patience() -> Callable[[int], bool]:
    """Return a busy handler that waits for another process's commit in short, even steps: SQLite's own
    waits grow to 100 ms, so that the process that has waited longest waits longest again."""
    started = 0.0

    def wait(tries: int) -> bool:
        nonlocal started
        now = time.monotonic()
        if tries == 0:
            started = now
        if now - started > BUSY_SECONDS_MAX:
            return False
        time.sleep(0.0005 if tries < 20 else 0.002)
        return True

    return wait


def translated(path: Path, applied: Literal["no", "unknown"] = "no") -> AbstractContextManager[None]:
    """Translate what SQLite raises into errors that our callers can act on."""
    return _Translation(path, applied)


class _Translation(AbstractContextManager[None]):
    """A class, as a generator takes three times as long."""

    __slots__ = ("_applied", "_path")

    def __init__(self, path: Path, applied: Literal["no", "unknown"]) -> None:
        self._path = path
        self._applied = applied

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, apsw.Error):
            raise _translate(error, self._path, self._applied) from error
        if isinstance(error, UnicodeDecodeError):  # only what is stored is ever decoded here
            raise Corrupt(f"{self._path} holds text that is not UTF-8: {error}") from error


def _translate(error: apsw.Error, path: Path, applied: Literal["no", "unknown"]) -> HoldfastError:
    match error:
        case apsw.NotADBError() | apsw.CorruptError():
            return Corrupt(
                f"{path} is damaged or not a database ({error}). Nothing was written.",
                advice="Stop its workers, keep the file as it is, and restore the newest backup beside it:"
                " holdfast restore FILE",
            )
        case apsw.FullError():
            return Unavailable(f"The disk under {path} is full; nothing was written. Free some room.")
        case apsw.ReadOnlyError() if _moved(error):
            return Unavailable(f"{path} was moved or replaced: stop this process and start it anew.")
        case apsw.ReadOnlyError():
            return Unavailable(f"{path} is read-only here; nothing was written. Check its permissions.")
        case apsw.CantOpenError():
            return Invalid(
                f"{path} cannot be opened.",
                advice="Is the folder there, and may you write to it?",
            )
        case apsw.BusyError() | apsw.LockedError():
            return Unavailable(f"{path} was busy for {BUSY_SECONDS_MAX:.0f} s; nothing was written.")
        case apsw.TooBigError():
            return Exhausted(f"A value is too large for {path}.")
        case apsw.ConstraintError() | apsw.SQLError() | apsw.MismatchError():
            return Corrupt(f"{path} does not have the shape it should: {error}")
        case _:
            return Unavailable(f"{path} could not be used: {error}", applied=applied)


def _moved(error: apsw.Error) -> bool:
    return getattr(error, "extendedresult", 0) == apsw.SQLITE_READONLY_DBMOVED


def migrate(connection: apsw.Connection, path: Path) -> None:
    """Bring the schema forward, one committed step at a time; raise `Invalid` for a newer schema."""
    scripts = migrations()
    with translated(path):
        version = _version(connection)
        if version > len(scripts):
            raise Invalid(
                f"{path} was written by a newer holdfast (schema {version}; this one knows {len(scripts)}).",
                advice="Upgrade holdfast, or use another file.",
            )
        if version == len(scripts):
            return
        if version == 0 and _foreign(connection):
            raise Invalid(f"{path} is a database of another program.", advice="Use another file.")
        for number, script in enumerate(scripts[version:], start=version + 1):
            _step(connection, number, script)


@contextmanager
def snapshot(connection: apsw.Connection) -> Iterator[None]:
    """Let all reads of the block see the file as the first of them does: what is committed between two
    statements would be in one part of a log and not in the other."""
    connection.execute("BEGIN").fetchall()
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK").fetchall()


def _version(connection: apsw.Connection) -> int:
    version = connection.pragma("user_version")
    return version if isinstance(version, int) else 0


def _foreign(connection: apsw.Connection) -> bool:
    foreign = list(connection.execute(statement("select_foreign_table")))
    return bool(foreign) and not list(connection.execute(statement("select_log_view")))


def _step(connection: apsw.Connection, number: int, script: str) -> None:
    connection.execute("BEGIN IMMEDIATE").fetchall()
    failpoint("migration.begun")
    try:
        if _version(connection) < number:
            connection.execute(script).fetchall()
            failpoint("migration.schema_changed")
            connection.pragma("user_version", number)
            failpoint("migration.numbered")
        connection.execute("COMMIT").fetchall()
        failpoint("migration.committed")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK").fetchall()
        raise


def read_meta(connection: apsw.Connection, name: str) -> Value:
    """Return the value stored under this name; None when there is none."""
    row = connection.execute(statement("select_meta"), (name,)).fetchone()
    return row[0] if row else None


def read_number(connection: apsw.Connection, name: str) -> int:
    """Return the number stored under this name; 0 when there is none."""
    value = read_meta(connection, name)
    return value if isinstance(value, int) else 0


def write_meta(connection: apsw.Connection, name: str, value: Value) -> None:
    connection.execute(statement("put_meta"), (name, value)).fetchall()
