"""The three files of a store: the database, its log (`-wal`) and the index of that log (`-shm`).

SQLite finds the log by the name of the database. When two processes use one database with two logs,
or with one log and two indexes, each overwrites what the other has acknowledged. This happens when a
log or an index was removed while in use, and when one file has two names.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import apsw

from holdfast.core.errors import Invalid, Unavailable
from holdfast.stores.sqlite.filesystem import is_mount_point

Identity = tuple[int, int]


class LogLost(Unavailable):
    """The log or its index is no longer what this process has open."""


def check_names(path: Path) -> None:
    """Raise `Invalid` when the file has names in two folders, or two in one: each would have a log."""
    file = Path(os.path.realpath(path))
    try:
        links = os.stat(file).st_nlink
    except OSError:
        return  # it does not exist yet, or opening it raises the error
    if links > 1:
        raise Invalid(
            f"{path} has {links} names (hard links): whatever is opened by another name writes a log"
            " of its own, and each destroys what the other has acknowledged.",
            advice=f"Keep the name beside which a -wal file lies, if there is one, and remove the others:"
            f" find / -xdev -samefile {file}",
        )
    if is_mount_point(file):
        raise Invalid(
            f"{path} is mounted by itself: its log would be in another folder than for processes that use"
            " the file by its own name.",
            advice="Mount the folder that it is in.",
        )


class Files:
    """The three files that are open here, to be compared with those that have their names now."""

    def __init__(self, path: Path) -> None:
        file = os.path.realpath(path)  # SQLite keeps the log where a symbolic link leads to
        self._path = path
        self._names = (os.fspath(path), f"{file}-wal", f"{file}-shm")
        self._open: tuple[Identity | None, ...] = ()

    def remember(self) -> None:
        """Record which files are open, as soon as the log is in use."""
        self._open = self._found()
        if None in self._open:
            raise self._lost()

    def check(self) -> None:
        """Raise `LogLost` when a name no longer leads to the file that is open here: what is written
        to a file without a name is lost."""
        found = self._found()
        if found == self._open:
            return
        if found[0] != self._open[0]:
            words = f"{self._path} was moved or replaced: stop this process and start it anew."
            raise LogLost(words)
        raise self._lost()

    def rescue(self, connection: apsw.Connection) -> None:
        """Bring a log that has lost its name, or its database, into the database that is open here.

        As long as this process has the database open, no other holdfast process begins another log
        (`connect`); a log that another program began is left alone once it holds anything.
        """
        database, log, _ = self._found()
        if database is None or (
            database == self._open[0] and log != self._open[1] and _is_empty(self._names[1])
        ):
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def prepare_close(self, connections: Sequence[apsw.Connection]) -> None:
        """Make sure that the last connection to close does not remove a log that another process began."""
        found = self._found()
        if not self._open or found == self._open or found[0] is None:
            return
        self.rescue(connections[0])
        for connection in connections:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)

    def _found(self) -> tuple[Identity | None, ...]:
        return tuple(map(self._identity, self._names))

    def _identity(self, name: str) -> Identity | None:
        try:
            found = os.stat(name)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unavailable(f"{self._path} cannot be reached: {error.strerror}.") from error
        return found.st_dev, found.st_ino

    def _lost(self) -> LogLost:
        return LogLost(
            f"The log of {self._path} or its index (-wal, -shm) was removed or replaced while in use."
            " Nothing was written; stop every process that uses it, then start again."
        )


def _is_empty(name: str) -> bool:
    try:
        return os.stat(name).st_size == 0
    except FileNotFoundError:
        return True
