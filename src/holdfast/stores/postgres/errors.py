"""Translation of what PostgreSQL and its driver raise into errors that callers can act on."""

from typing import Literal

import asyncpg
from asyncpg import exceptions as pg

from holdfast.core.errors import (
    Corrupt,
    Denied,
    Exhausted,
    HoldfastError,
    Invalid,
    Unavailable,
)
from holdfast.stores.postgres.address import PostgresAddress


class Replica(Exception):
    """The server cannot write: it is a replica, which may be about to take over."""


FAILURES = (
    Replica,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
"""Everything that a use of the driver can raise."""

RETRYABLE = (
    pg.SerializationError,
    pg.DeadlockDetectedError,
    pg.LockNotAvailableError,
    pg.UniqueViolationError,
    pg.InvalidCachedStatementError,
)
"""The commit was undone because another one (or a migration) came first: read and decide again."""

LockTimeout = pg.LockNotAvailableError
"""Another transaction held a lock longer than the time to wait for it."""

PartitionMissing = pg.CheckViolationError
"""There is no partition yet for the events of a job."""

_AWAY = (
    pg.AdminShutdownError,
    pg.CrashShutdownError,
    pg.CannotConnectNowError,
    pg.IdleInTransactionSessionTimeoutError,
    pg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server is just ending the session
    OSError,
    TimeoutError,
)


class ServerDown(Unavailable):
    """The server does not answer; one that restarts will be back soon."""

    public = (
        "The PostgreSQL database behind this server is not available; the server's log says why. Send the"
        " same request again in a moment."
    )


def is_connection_lost(error: BaseException) -> bool:
    """Whether the connection, not the statement, is what failed."""
    return isinstance(error, _AWAY)


def is_connection_unusable(error: BaseException) -> bool:
    """Whether the connection cannot be used again: it is lost, or its server is no longer the primary."""
    return is_connection_lost(error) or isinstance(error, pg.ReadOnlySQLTransactionError)


def was_not_sent(error: BaseException) -> bool:
    """Whether the driver did not send the statement, because the server was ending the session."""
    return isinstance(error, asyncpg.InternalClientError) and "another operation" in str(error)


def translate(
    error: BaseException, address: PostgresAddress, applied: Literal["no", "unknown"] = "no"
) -> HoldfastError:
    """Return the error for our callers. When the server refused the statement, nothing was applied."""
    for kinds, make in _TRANSLATIONS:
        if isinstance(error, kinds):
            return make(error, address)
    if is_connection_lost(error):
        return ServerDown(_away(error, address), applied=applied)
    return Unavailable(f"PostgreSQL at {address.shown} failed: {error!r}", applied=applied)


def _away(error: BaseException, address: PostgresAddress) -> str:
    if isinstance(error, TimeoutError):
        return f"PostgreSQL at {address.shown} did not answer in time."
    if isinstance(error, pg.CannotConnectNowError):
        return f"PostgreSQL at {address.shown} is starting up or going down."
    if isinstance(error, ConnectionRefusedError) or "Connect call failed" in str(error):
        return f"No PostgreSQL answers at {address.shown}. Is it running, and is the port right?"
    if (isinstance(error, OSError) and not isinstance(error, ConnectionError)) or "SSL" in str(error):
        return f"PostgreSQL at {address.shown} cannot be reached: {error}"
    return f"The connection to PostgreSQL at {address.shown} was lost."


def _no_database(error: BaseException, address: PostgresAddress) -> HoldfastError:
    name = address.database or address.user
    return Invalid(
        f"There is no database {name!r} at {address.shown}.",
        advice=f"Check the URL; if it is right, create it: createdb {name}",
    )


def _no_entry(error: BaseException, address: PostgresAddress) -> HoldfastError:
    return Denied(
        f"PostgreSQL at {address.shown} does not let {address.user or 'this user'} in: {error}.",
        advice="Check user and password in the URL.",
    )


def _no_right(error: BaseException, address: PostgresAddress) -> HoldfastError:
    return Denied(
        f"{address.user or 'This user'} may not do this in {address.shown}: {error}.",
        advice=f"Let the owner of the database run: GRANT CREATE ON DATABASE {address.database} TO"
        f" {address.user};"
        f" or, once the tables are there, GRANT USAGE ON SCHEMA {address.schema} and ALL on what is"
        " in it.",
    )


def _full(error: BaseException, address: PostgresAddress) -> HoldfastError:
    return Unavailable(
        f"The disk of PostgreSQL at {address.shown} is full; nothing was written. Free some room."
    )


def _crowded(error: BaseException, address: PostgresAddress) -> HoldfastError:
    return ServerDown(
        f"PostgreSQL at {address.shown} takes no more connections ({error}). Stop idle clients, raise"
        " max_connections, or put a pooler in front of it."
    )


def _read_only(error: BaseException, address: PostgresAddress) -> HoldfastError:
    kind = ServerDown if isinstance(error, Replica) else Unavailable
    return kind(
        f"PostgreSQL at {address.shown} is read-only: a replica, or set so. Give the URL of the primary."
    )


def _slow(error: BaseException, address: PostgresAddress) -> HoldfastError:
    return Unavailable(f"PostgreSQL at {address.shown} took too long and was stopped; nothing was written.")


def _busy(error: BaseException, address: PostgresAddress) -> HoldfastError:
    return Unavailable(
        f"The tables in {address.shown} are in use by something that holds on to them; nothing was"
        " written. Try again; look for long transactions."
    )


def _other_tables(error: BaseException, address: PostgresAddress) -> HoldfastError:
    return Invalid(
        f"Schema {address.schema} in {address.shown} belongs to another program: {error}.",
        advice="Name a schema of our own in the URL, such as ?schema=jobs.",
    )


def _wrong_option(error: BaseException, address: PostgresAddress) -> HoldfastError:
    return Invalid(
        f"The URL of PostgreSQL at {address.shown} has an unknown option: {error}",
        advice="Correct the part of the URL after the question mark.",
    )


def _misshapen(error: BaseException, address: PostgresAddress) -> HoldfastError:
    return Corrupt(f"Schema {address.schema} in {address.shown} does not have the shape it should: {error}")


def _unwritable(error: BaseException, address: PostgresAddress) -> HoldfastError:
    return Invalid(f"PostgreSQL cannot hold a value of this request: {error}")


def _too_large(error: BaseException, address: PostgresAddress) -> HoldfastError:
    return Exhausted(f"A value is too large for PostgreSQL at {address.shown}: {error}")


_TRANSLATIONS = (
    (pg.LockNotAvailableError, _busy),
    (pg.DuplicateTableError, _other_tables),
    ((pg.UndefinedObjectError, asyncpg.ClientConfigurationError), _wrong_option),
    (pg.InvalidCatalogNameError, _no_database),
    (pg.InvalidAuthorizationSpecificationError, _no_entry),
    (pg.InsufficientPrivilegeError, _no_right),
    (pg.DiskFullError, _full),
    (pg.TooManyConnectionsError, _crowded),
    ((pg.ReadOnlySQLTransactionError, Replica), _read_only),
    (pg.QueryCanceledError, _slow),
    (pg.ProgramLimitExceededError, _too_large),
    ((pg.DataError, asyncpg.DataError), _unwritable),
    ((pg.SyntaxOrAccessError, pg.IntegrityConstraintViolationError), _misshapen),
    (pg.InvalidSchemaNameError, _misshapen),
)
