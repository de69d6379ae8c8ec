"""The caller's own connection, on which a job is created: that of a driver, or the driver's connection under
a connection or session of SQLAlchemy or Django.

Neither library is imported here: their objects are known by the module of their class. Both begin a
transaction late, and end only one that they know of, so they begin it before anything is written. All of
this happens in the caller's thread: Django has a connection for each.
"""

from inspect import iscoroutinefunction
from typing import Any

from holdfast.core.errors import Invalid, Unavailable

_SQLALCHEMY = "sqlalchemy"
_SESSIONS = {"Session", "scoped_session"}
_ASYNC_SESSIONS = {"AsyncSession", "async_scoped_session"}
_BEGIN = "SELECT 1"
"""A statement by which SQLAlchemy begins its transaction, and the driver's."""


def blocking_connection(connection: object) -> object:
    """Return the driver's connection for a plain function; raise `Invalid` for one that only its own event
    loop may use, and outside a transaction of SQLAlchemy or Django."""
    _check_blocking(connection)
    found = _driver_connection(connection)
    _check_blocking(found)
    return found


async def async_connection(connection: object) -> object:
    """Return the driver's connection for a coroutine; raise `Invalid` outside a transaction of SQLAlchemy or
    Django."""
    kinds = _kinds(connection, _SQLALCHEMY)
    if not kinds & {"AsyncConnection", *_ASYNC_SESSIONS}:
        return _driver_connection(connection)
    try:
        return await _of_async_sqlalchemy(connection, in_session=bool(kinds & _ASYNC_SESSIONS))
    except Exception as error:
        raise _refusal(error) from error


def _driver_connection(connection: object) -> object:
    try:
        if kinds := _kinds(connection, _SQLALCHEMY):
            return _of_sqlalchemy(connection, kinds)
        if _kinds(connection, "django"):
            return _of_django(connection)
    except Exception as error:
        raise _refusal(error) from error
    return connection


def _kinds(connection: object, package: str) -> set[str]:
    """Return the names of its classes that are of this package: it may be of a class of the caller's own."""
    return {one.__name__ for one in type(connection).__mro__ if one.__module__.partition(".")[0] == package}


def _of_sqlalchemy(connection: Any, kinds: set[str]) -> object:  # noqa: ANN401 (it may not be installed)
    if kinds & _SESSIONS:
        connection = connection.connection()
    elif "Connection" not in kinds:
        raise Invalid(f"connection is a {_shown(connection)}; give a connection or a session of SQLAlchemy.")
    found = connection.connection.driver_connection
    if not (connection.in_transaction() and _has_begun(found)):
        connection.exec_driver_sql(_BEGIN)
    return found


async def _of_async_sqlalchemy(connection: Any, *, in_session: bool) -> object:  # noqa: ANN401
    if in_session:
        connection = await connection.connection()
    found = (await connection.get_raw_connection()).driver_connection
    if not (connection.in_transaction() and _has_begun(found)):
        await connection.exec_driver_sql(_BEGIN)
    return found


def _of_django(connection: Any) -> object:  # noqa: ANN401
    if not hasattr(connection, "in_atomic_block"):
        raise Invalid(
            f"connection is a {_shown(connection)}; give one of Django's, such as connections['default']."
        )
    if not connection.in_atomic_block and (connection.connection is None or connection.get_autocommit()):
        raise Invalid("Begin a transaction on the connection first: with transaction.atomic().")
    connection.validate_no_broken_transaction()
    if connection.connection is None:
        raise Invalid("This connection of Django was closed in the middle of its transaction.")
    return connection.connection


def _has_begun(found: Any) -> bool:  # noqa: ANN401
    """Whether the driver is in a transaction, as far as it says so."""
    if hasattr(found, "is_in_transaction"):  # asyncpg
        return bool(found.is_in_transaction())
    if hasattr(found, "info"):  # psycopg
        return bool(found.info.transaction_status != 0)
    return False


def _check_blocking(connection: object) -> None:
    driver = type(connection).__module__.partition(".")[0]
    if driver == "asyncpg" or iscoroutinefunction(getattr(connection, "execute", None)):
        raise Invalid(
            "This connection belongs to an event loop: use the form for coroutines, or give a blocking"
            " connection (psycopg, a Connection or Session of SQLAlchemy, Django)."
        )


def _refusal(error: Exception) -> Exception:
    """Return what a caller is told when SQLAlchemy or Django refuses."""
    if isinstance(error, Invalid):
        return error
    said = str(error).partition("\n")[0].rstrip(".")
    if hasattr(error, "orig"):  # SQLAlchemy passes on what the database or the driver said
        return Unavailable(f"The connection failed: {said}")
    return Invalid(f"The connection cannot be used: {said}.")


def _shown(connection: object) -> str:
    return f"{type(connection).__module__}.{type(connection).__qualname__}"
