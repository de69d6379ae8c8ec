"""A fence in the same PostgreSQL transaction as the write.

The comparison is a function in the database, so that it is there for every language:

    SELECT holdfast_admit('account-17', 'lock:account-17', 43)

raises SQLSTATE HF001 for a stale token, and HF002 for one that cannot be compared.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

from holdfast.core.errors import Conflict, Fenced, HoldfastError, Invalid
from holdfast.fencing.fence import Fence, check_fence

STALE, MIXED, ABSENT = "HF001", "HF002", "42883"

INSTALL = """\
CREATE TABLE IF NOT EXISTS holdfast_mark (
    resource text PRIMARY KEY,
    source text NOT NULL,
    token bigint NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 70);

CREATE OR REPLACE FUNCTION holdfast_admit(resource text, source text, token bigint) RETURNS void
LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    seen holdfast_mark;
BEGIN
    INSERT INTO holdfast_mark AS mark (resource, source, token) VALUES ($1, $2, $3)
    ON CONFLICT (resource) DO UPDATE SET token = excluded.token, seen_at = excluded.seen_at
    WHERE mark.source = excluded.source AND mark.token <= excluded.token;
    IF NOT FOUND THEN
        SELECT * INTO STRICT seen FROM holdfast_mark AS mark WHERE mark.resource = $1;
        IF seen.source <> $2 THEN
            RAISE EXCEPTION USING ERRCODE = 'HF002', MESSAGE = format(
                '%s has seen tokens of %s, and this one is of %s: they have no order.'
                ' Give all jobs that write to it one lock.', $1, seen.source, $2);
        END IF;
        RAISE EXCEPTION USING ERRCODE = 'HF001', MESSAGE = format(
            'Token %s is stale: %s has seen token %s.', $3, $1, seen.token);
    END IF;
END
$body$;
"""
_NUMBERED = "SELECT holdfast_admit($1, $2, $3)"
_NAMED = "SELECT holdfast_admit(%s, %s, %s)"


class Connection(Protocol):
    """A connection of asyncpg or psycopg."""

    @property
    def execute(self) -> Callable[..., Any]: ...


async def install(connection: Connection) -> None:
    """Make the table of marks and the function, in the first schema of the search path."""
    await cast("Awaitable[object]", connection.execute(INSTALL))


async def admit(connection: Connection, fence: Fence) -> None:
    """Raise `Fenced` or `Conflict` if this transaction's writes must not happen; it is then undone.

    From here to the end of the transaction nobody with another token can write under this mark, so
    what follows is written under this token or not at all. For asyncpg's connections and psycopg's
    `AsyncConnection`.
    """
    try:
        await cast("Awaitable[object]", _admit(connection, fence))
    except Exception as error:
        if (refusal := _refusal(error, fence)) is None:
            raise
        raise refusal from error


def admit_blocking(connection: Connection, fence: Fence) -> None:
    """As `admit`, for psycopg's blocking `Connection`."""
    try:
        _admit(connection, fence)
    except Exception as error:
        if (refusal := _refusal(error, fence)) is None:
            raise
        raise refusal from error


def _admit(connection: Any, fence: Fence) -> object:  # noqa: ANN401 (any driver's)
    check_fence(fence)
    values = (fence.resource, fence.source, fence.token)
    asyncpg = hasattr(connection, "is_in_transaction")
    if asyncpg:
        begun = connection.is_in_transaction()
    else:
        begun = not connection.autocommit or connection.info.transaction_status != 0
    if not begun:
        raise Invalid("Begin a transaction on the connection first: with c.transaction().")
    if asyncpg:
        return connection.execute(_NUMBERED, *values)
    return connection.execute(_NAMED, values)


def _refusal(error: Exception, fence: Fence) -> HoldfastError | None:
    """What a driver's error means, if it is the fence's."""
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
