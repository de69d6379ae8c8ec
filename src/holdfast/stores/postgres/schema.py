"""The schema, its migrations and the secret of a store: the first process that opens it makes them."""

import re

from asyncpg import exceptions as pg

from holdfast.core.errors import Invalid, NotFound, Unavailable
from holdfast.failpoint import failpoint
from holdfast.ports import Ids
from holdfast.stores.postgres.address import PostgresAddress
from holdfast.stores.postgres.partitions import make_partitions
from holdfast.stores.postgres.sessions import Session
from holdfast.stores.postgres.statements import migrations, statement

STEP_SECONDS = 600
STEP_SETTINGS = (
    f"SET LOCAL lock_timeout = '{STEP_SECONDS}s'",  # for another process that is migrating
    "SET LOCAL client_min_messages = 'warning'",
)
TABLE_SETTING = "SET LOCAL lock_timeout = '2s'"  # a wait for a table lock blocks all later requests for it
TABLE_TRIES = 5
PAUSE_SECONDS = 1.0  # in which those requests are served
_IN_USE = (pg.LockNotAvailableError, pg.DeadlockDetectedError)
_LOCK = 5196120713
_NEEDS = re.compile(r"-- Code that knows migration (\d+) can work with what this one leaves\.")


async def migrate(session: Session, address: PostgresAddress, *, create: bool = True) -> None:
    """Bring the schema forward, one committed step at a time. Several processes may do so at once, and each
    may be killed at any time. Raise `Invalid` for a schema that only newer code understands."""
    scripts = migrations(address.schema)
    version, needs = await schema_version(session, address.schema)
    if not version and not create:
        raise NotFound(
            f"There is no store at {address.shown} in schema {address.schema}.",
            advice="Check database and schema in the URL. If they are right, the tables are made with the"
            " first job: holdfast submit -- echo hello",
        )
    if needs > len(scripts):
        raise Invalid(
            f"{address.shown} was brought forward by a newer holdfast (schema {version}; this one"
            f" knows {len(scripts)}).",
            advice="Upgrade holdfast, or use another database or schema.",
        )
    for number in range(version + 1, len(scripts) + 1):
        try:
            await _patient_step(session, address.schema, number, scripts[number - 1])
        except _IN_USE as error:
            raise Unavailable(
                f"The tables in {address.shown} are in use by something that holds on to them, so the"
                f" schema could not be brought to {number}. Try again; look for long transactions."
            ) from error


async def schema_version(session: Session, schema: str) -> tuple[int, int]:
    """Return the migration the schema is at, and the one that code must know at least to work with it."""
    # to_regclass alone may be answered from a cache filled before the wait for the lock.
    sql = "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = $1 AND tablename = 'meta')"
    [(known,)] = await session.fetch(sql, schema)
    if not known:
        return 0, 0
    rows = await session.fetch(
        f"SELECT name, value::integer FROM {schema}.meta WHERE name IN ('schema', 'needs')"  # noqa: S608
    )
    found = {row[0]: row[1] for row in rows}
    return found.get("schema", 0), found.get("needs", 0)


async def _patient_step(session: Session, schema: str, number: int, script: str) -> None:
    """Take the step, again after a pause when a table could not be locked: others are at work on it."""
    for _ in range(TABLE_TRIES - 1):
        try:
            return await _step(session, schema, number, script)
        except _IN_USE:
            await session.fetch("SELECT pg_sleep($1)", PAUSE_SECONDS)
    return await _step(session, schema, number, script)


async def _step(session: Session, schema: str, number: int, script: str) -> None:
    needs = _NEEDS.match(script)
    assert needs is not None  # every script says which code can still work with it
    async with session.transaction(*STEP_SETTINGS, seconds=STEP_SECONDS):
        await session.fetch("SELECT pg_advisory_xact_lock($1)", _LOCK)
        failpoint("postgres.migration_begun")
        version, _ = await schema_version(session, schema)
        if version >= number:
            return
        await session.connection.execute(TABLE_SETTING)
        if number == 1:
            await _make_schema(session, schema)
        await session.connection.execute(script, timeout=STEP_SECONDS)
        failpoint("postgres.schema_changed")
        sql = (
            f"INSERT INTO {schema}.meta (name, value) VALUES ('schema', $1), ('needs', $2)"  # noqa: S608
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        )
        await session.fetch(sql, str(number), needs[1])
        if number == 1:
            await make_partitions(session, schema)
        failpoint("postgres.migration_numbered")


async def _make_schema(session: Session, schema: str) -> None:
    try:
        await session.connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    except pg.PostgresSyntaxError as error:
        raise Invalid(f"schema={schema} is a word of SQL; choose another name.") from error


async def secret_of(session: Session, schema: str, ids: Ids) -> bytes:
    """Return the store's secret; the first process that opens the store makes it."""
    get, put = statement("get_meta", schema), statement("put_meta", schema)
    rows = await session.fetch(get, "secret")
    if not rows:
        await session.fetch(put, "secret", ids.secret().hex())
        rows = await session.fetch(get, "secret")
    return bytes.fromhex(rows[0][0])
