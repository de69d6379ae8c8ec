"""A fence in the same PostgreSQL transaction as the write.

The comparison is a function in the database, so that it is there for every language:

    SELECT holdfast_admit('account-17', 'lock:account-17', 43)

raises SQLSTATE HF001 for a stale token, and HF002 for one that cannot be compared.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from holdfast.core.errors import Conflict, Fenced, HoldfastError, Invalid
from holdfast.fencing.fence import Fence, check_fence

STALE, MIXED, ABSENT = "HF001", "HF002", "42883"

INSTALL = """\
DO $install$
BEGIN
    PERFORM pg_advisory_xact_lock(4869727);  -- two at once would both create, and one fail
    CREATE TABLE IF NOT EXISTS holdfast_mark (
        resource text PRIMARY KEY,
        source text NOT NULL,
        token bigint NOT NULL,
        seen_at timestamptz NOT NULL DEFAULT now()
    ) WITH (fillfactor = 70);
    EXECUTE replace($sql$
        CREATE OR REPLACE FUNCTION holdfast_admit(resource text, source text, token bigint)
        RETURNS void LANGUAGE plpgsql AS $body$
        #variable_conflict use_column
        DECLARE
            seen here.holdfast_mark;
        BEGIN
            INSERT INTO here.holdfast_mark AS mark (resource, source, token) VALUES ($1, $2, $3)
            ON CONFLICT (resource) DO UPDATE SET token = excluded.token, seen_at = excluded.seen_at
            WHERE mark.source = excluded.source AND mark.token <= excluded.token;
            IF NOT FOUND THEN
                SELECT * INTO STRICT seen FROM here.holdfast_mark AS mark WHERE mark.resource = $1;
                IF seen.source <> $2 THEN
                    RAISE EXCEPTION USING ERRCODE = 'HF002', MESSAGE = format(
                        '%s has seen tokens of %s, and this one is of %s: they have no order.'
                        ' Give all jobs that write to it one lock.', $1, seen.source, $2);
                END IF;
                RAISE EXCEPTION USING ERRCODE = 'HF001', MESSAGE = format(
                    'Token %s is stale: %s has seen token %s.', $3, $1, seen.token);
            END IF;
        END
        $body$
    $sql$, 'here.', quote_ident(current_schema()) || '.');
END
$install$
"""
_NUMBERED = "SELECT holdfast_admit($1, $2, $3)"
_NAMED = "SELECT holdfast_admit(%s, %s, %s)"


class Connection(Protocol):
    """A connection of asyncpg or psycopg."""

    @property
    def execute(self) -> Callable[..., Any]: ...


async def install(connection: Connection) -> None:
    """Make the table of marks and the function, in the first schema of the search path: in one of those
    that writers have in theirs. For asyncpg's connections and psycopg's `AsyncConnection`."""
    await _awaitable(connection.execute(INSTALL))


def install_blocking(connection: Connection) -> None:
    """As `install`, for psycopg's blocking `Connection`."""
    connection.execute(INSTALL)


async def admit(connection: Connection, fence: Fence) -> None:
    """Raise `Fenced` or `Conflict` if this transaction's writes must not happen. Then roll back.

    From here to the end of the transaction no other token can write under this mark, so what follows is
    written under this token or not at all. Call it before the first read that a write
    depends on. In a transaction of a stricter level than READ COMMITTED, an owner that has waited for
    another gets the database's own serialization error: run the transaction again. For asyncpg's
    connections and psycopg's `AsyncConnection`.
    """
    with _translated(fence):
        await _awaitable(_admit(connection, fence))


def admit_blocking(connection: Connection, fence: Fence) -> None:
    """As `admit`, for psycopg's blocking `Connection`."""
    with _translated(fence):
        _admit(connection, fence)


@contextmanager
def _translated(fence: Fence) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if (refusal := _refusal(error, fence)) is None:
            raise
        raise refusal from error


def _awaitable(result: object) -> Awaitable[object]:
    if not isinstance(result, Awaitable):
        raise Invalid("This connection blocks: use admit_blocking and install_blocking.")
    return result


def _admit(connection: Any, fence: Fence) -> object:  # noqa: ANN401 (any driver's)
    check_fence(fence)
    values = (fence.resource, fence.source, fence.token)
    asyncpg = hasattr(connection, "is_in_transaction")
    if asyncpg:
        in_transaction = connection.is_in_transaction()
    elif hasattr(connection, "autocommit") and hasattr(connection, "info"):
        in_transaction = not connection.autocommit or connection.info.transaction_status != 0
    else:
        raise Invalid(
            f"connection is a {type(connection).__qualname__}; give one of asyncpg or psycopg (3), in"
            " the middle of your transaction."
        )
    if not in_transaction:
        raise Invalid("Begin a transaction on the connection first: with c.transaction().")
    if asyncpg:
        return connection.execute(_NUMBERED, *values)
    return connection.execute(_NAMED, values)


def _refusal(error: Exception, fence: Fence) -> HoldfastError | None:
    """Return the refusal that a driver's error means, or None for any other error."""
    state = getattr(error, "sqlstate", None)
    message = str(error).partition("\n")[0]
    if state == STALE:
        return Fenced(message, job_id=fence.job_id)
    if state == MIXED:
        return Conflict(message, job_id=fence.job_id)
    if state == ABSENT:
        return Invalid(
            "There is no holdfast_admit here: await holdfast.fencing.postgres.install(connection)."
        )
    return None
