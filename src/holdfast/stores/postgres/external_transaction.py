"""A commit inside the caller's own transaction, on a connection of asyncpg or psycopg."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, Protocol

import asyncpg

from holdfast.core.errors import Conflict, Invalid, Unavailable
from holdfast.stores.postgres.commit_context import QueryConnection
from holdfast.stores.postgres.statements import Row

_CONFLICTS = ("40001", "23505")
"""SQLSTATEs of a commit that conflicts with another one: serialization failure, unique violation."""

_DEADLOCK = "40P01"
"""The SQLSTATE of a deadlock. Deciding again does not help: the caller's transaction keeps its locks."""

WRONG_DATABASE = (
    "The connection leads to a database without this store's tables. Connect to the database of the"
    " store's own URL."
)


class ExternalTransaction(QueryConnection, Protocol):
    """A connection that is inside a transaction of the caller."""

    def savepoint(self) -> AbstractAsyncContextManager[object]:
        """Return a context whose failure undoes what was done in it, but not the caller's transaction."""
        ...


def wrap(connection: object) -> ExternalTransaction:
    """Wrap the caller's connection; raise `Invalid` for an unknown driver or outside a transaction."""
    driver = type(connection).__module__.partition(".")[0]
    if driver == "asyncpg":
        return _Asyncpg(connection)  # type: ignore[arg-type]
    if driver == "psycopg":
        return _Psycopg(connection)
    raise Invalid(
        f"connection is a {type(connection).__module__}.{type(connection).__qualname__}; give one of psycopg"
        " (3) or asyncpg, a connection or session of SQLAlchemy on one of them, or one of Django on psycopg,"
        " in the middle of your transaction."
    )


def is_conflict(error: BaseException) -> bool:
    """Whether the commit conflicts with another one, so that deciding again may succeed."""
    return getattr(error, "sqlstate", None) in _CONFLICTS


def is_partition_missing(error: BaseException) -> bool:
    """Whether there is no partition yet for the events of a job."""
    return getattr(error, "sqlstate", None) == "23514"


def translate(error: BaseException) -> Exception:
    """Return the error for the caller when a commit cannot be part of its transaction."""
    state = getattr(error, "sqlstate", None)
    if is_conflict(error) or state == _DEADLOCK:
        return Conflict("The same job was just made by another caller: roll back and run it again.")
    if state in ("42P01", "3F000", "42883"):
        return Invalid(WRONG_DATABASE)
    return Unavailable(f"The connection failed: {error}")


class _Asyncpg:
    def __init__(self, connection: "asyncpg.Connection[Any]") -> None:
        if not connection.is_in_transaction():
            raise Invalid("Begin a transaction on the connection first: async with c.transaction().")
        self._connection = connection

    async def fetch(self, sql: str, *parameters: object) -> Sequence[Row]:
        rows: Sequence[Row] = await self._connection.fetch(sql, *parameters)
        return rows

    write = fetch

    def savepoint(self) -> AbstractAsyncContextManager[object]:
        return _savepoint(self._connection.execute)


class _Psycopg:
    """A psycopg connection, asynchronous or blocking; a blocking one is used in a thread."""

    def __init__(self, connection: Any) -> None:  # noqa: ANN401 (the driver may not be installed)
        import psycopg
        from psycopg.types.string import TextLoader

        self._connection = connection
        self._blocking = isinstance(connection, psycopg.Connection)
        if connection.autocommit and connection.info.transaction_status == 0:
            raise Invalid("Begin a transaction on the connection first: with c.transaction().")
        make = psycopg.RawCursor if self._blocking else psycopg.AsyncRawCursor
        self._cursor: Any = make(connection, row_factory=psycopg.rows.tuple_row)
        for name in ("json", "xid"):
            self._cursor.adapters.register_loader(name, TextLoader)

    async def fetch(self, sql: str, *parameters: object) -> Sequence[Row]:
        values = [_plain(value) for value in parameters]
        await self._run(self._cursor.execute, sql, values)
        rows: Sequence[Row] = await self._run(self._cursor.fetchall)
        return rows

    write = fetch

    def savepoint(self) -> AbstractAsyncContextManager[object]:
        return _savepoint(partial(self._run, self._cursor.execute))

    async def _run(self, call: Callable[..., Any], *parameters: object) -> Any:  # noqa: ANN401
        if self._blocking:
            return await asyncio.to_thread(call, *parameters)
        return await call(*parameters)


@asynccontextmanager
async def _savepoint(run: Callable[[str], Awaitable[object]]) -> AsyncIterator[None]:
    await run("SAVEPOINT holdfast")
    try:
        yield
    except BaseException:  # also when the caller is cancelled
        await run("ROLLBACK TO SAVEPOINT holdfast")
        raise
    await run("RELEASE SAVEPOINT holdfast")


def _plain(value: object) -> object:
    """Return the parameter in a type that psycopg can send: arrays become text."""
    if isinstance(value, list | tuple):
        return "{" + ",".join("NULL" if item is None else _quoted(_text(item)) for item in value) + "}"
    return value


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
