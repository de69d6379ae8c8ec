"""A fence in the same SQLite transaction as the write."""

from collections.abc import Callable
from typing import Any, Protocol

from holdfast.core.errors import Invalid
from holdfast.fencing.fence import Fence, check_fence, mixed, stale

TABLE = """\
CREATE TABLE IF NOT EXISTS holdfast_mark (
    resource TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    token INTEGER NOT NULL,
    seen_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) WITHOUT ROWID, STRICT
"""
ADMIT = """\
INSERT INTO holdfast_mark AS mark (resource, source, token) VALUES (?, ?, ?)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token, seen_at = excluded.seen_at
WHERE mark.source = excluded.source AND mark.token <= excluded.token
RETURNING token
"""
SEEN = "SELECT source = ?, token, source FROM holdfast_mark WHERE resource = ?"


class Connection(Protocol):
    """The methods we use of a connection of `sqlite3` (standard library) or `apsw`."""

    @property
    def in_transaction(self) -> bool: ...

    @property
    def execute(self) -> Callable[..., Any]: ...

    @property
    def cursor(self) -> Callable[[], Any]: ...


def install(connection: Connection) -> None:
    connection.execute(TABLE)


def admit(connection: Connection, fence: Fence) -> None:
    """Raise `Fenced` or `Conflict` if this transaction's writes must not happen. Then roll back.

    From here to the end of the transaction no other connection can write, so what follows is written
    under this token or not at all.
    """
    check_fence(fence)
    cursor = connection.cursor()
    if hasattr(cursor, "row_factory"):
        cursor.row_factory = None
    try:
        admitted = cursor.execute(ADMIT, (fence.resource, fence.source, fence.token)).fetchall()
    except Exception as error:
        if "no such table: holdfast_mark" in str(error):
            raise Invalid("There is no holdfast_mark here: holdfast.fencing.sqlite.install.") from error
        raise
    if not connection.in_transaction:  # sqlite3 may begin one by itself; now it must be there
        raise Invalid("Begin a transaction on the connection first: BEGIN IMMEDIATE.")
    if admitted:
        return
    [(same, seen, source)] = cursor.execute(SEEN, (fence.source, fence.resource)).fetchall()
    raise (
        stale(fence, seen) if same else mixed(fence, source.decode() if isinstance(source, bytes) else source)
    )
