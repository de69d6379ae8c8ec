"""Doctor: what this server guarantees and what it does not, found by queries, never by writing."""

from collections.abc import Iterator
from datetime import timedelta
from typing import cast

import asyncpg

from holdfast.core.clock_step import ClockStep, ClockStepSummary
from holdfast.core.explanation import describe_clock_step, format_duration
from holdfast.core.state import ENDED, State
from holdfast.ports import Clock, Finding, Ids
from holdfast.stores.postgres.address import PostgresAddress, address_of
from holdfast.stores.postgres.clock_steps import set_back, steps_of
from holdfast.stores.postgres.queries import PostgresQueries
from holdfast.stores.postgres.schema import schema_version
from holdfast.stores.postgres.sessions import Session, Sessions
from holdfast.stores.postgres.statements import migrations, statement
from holdfast.system import SystemClock

OLDEST_VERSION = 14
CLOCK_NEAR = timedelta(seconds=2)
OVERDUE = timedelta(minutes=1)
LONG = timedelta(minutes=1)
CROWDED = 0.8
DEAD_ROWS_MANY = 1_000_000


async def doctor(
    session: Session,
    reading: PostgresQueries,
    address: PostgresAddress,
    clock: Clock,
    *,
    pooled: bool,
) -> list[Finding]:
    """Return all findings, in the order in which they are shown."""
    counts = await reading.counts(None)
    version, _ = await schema_version(session, address.schema)
    found = await _row(session, "doctor_server", address)
    tables = await _row(session, "doctor_tables", address)
    [(_, steps)] = await session.fetch(statement("select_clock", address.schema))
    ahead, _ = await set_back(session, address.schema)
    checks = (
        _store(found, address),
        _version(found),
        _schema(tables, address, version),
        _durability(found),
        _sharing(found),
        _clock(found, clock, steps_of(steps)),
        _ahead(ahead),
        _privileges(tables, address, found["me"]),
        _pooler(pooled),
        _disk(found),
        _jobs(found, tables, counts),
        _backup(address),
    )
    return [finding for check in checks for finding in check]


async def doctor_server(url: str, *, ids: Ids) -> list[Finding]:
    """Return what the server would guarantee, for a database that does not have our tables yet."""
    address, clock = address_of(url), SystemClock()
    sessions = Sessions(address, clock, ids)
    try:
        return await sessions.use(
            lambda session: _doctor_server(session, address, clock, pooled=sessions.pooled), patient=False
        )
    finally:
        await sessions.close()


async def _doctor_server(
    session: Session, address: PostgresAddress, clock: Clock, *, pooled: bool
) -> list[Finding]:
    found = await _row(session, "doctor_server", address)
    checks = (
        _store(found, address),
        _version(found),
        _no_schema(address),
        _durability(found),
        _sharing(found),
        _clock(found, clock, ClockStepSummary()),
        _right_to_make(found),
        _pooler(pooled),
        _disk(found),
    )
    return [finding for check in checks for finding in check]


async def _row(session: Session, question: str, address: PostgresAddress) -> asyncpg.Record:
    [row] = await session.fetch(statement(question, address.schema), address.schema)
    return cast("asyncpg.Record", row)


def _store(found: asyncpg.Record, address: PostgresAddress) -> Iterator[Finding]:
    yield Finding("store", "good", f"PostgreSQL at {address.shown}, schema {address.schema}.")
    if found["read_only"]:
        yield Finding(
            "store",
            "fault",
            "Sessions are set to read only: nothing can be written.",
            "Turn default_transaction_read_only off, where it is set: the server, database or role.",
        )


def _version(found: asyncpg.Record) -> Iterator[Finding]:
    major = found["version_number"] // 10_000
    if major < OLDEST_VERSION:
        words = f"PostgreSQL {found['version']} is older than {OLDEST_VERSION}, the oldest we know."
        yield Finding("version", "fault", words, f"Upgrade to {OLDEST_VERSION} or newer.")
    else:
        yield Finding("version", "good", f"PostgreSQL {found['version']}.")


def _no_schema(address: PostgresAddress) -> Iterator[Finding]:
    yield Finding(
        "schema",
        "note",
        f"There are no tables yet in schema {address.schema}.",
        "The first command that writes makes them: holdfast submit, worker or serve",
    )


def _schema(tables: asyncpg.Record, address: PostgresAddress, version: int) -> Iterator[Finding]:
    known = len(migrations(address.schema))
    words = f"Schema {version}, {tables['partitions']} partitions of events."
    if version > known:
        words += f" This holdfast knows {known}, and can work with it."
        yield Finding("schema", "note", words, "Upgrade holdfast when it suits you.")
    else:
        yield Finding("schema", "good", words)


def _durability(found: asyncpg.Record) -> Iterator[Finding]:
    yield Finding(
        "durability",
        "good",
        "fsync and full_page_writes are on: acknowledged writes survive kill -9 and power loss.",
    )
    if found["waits"] == "off":
        yield Finding(
            "durability",
            "warning",
            f"synchronous_commit is off here; our own commits set it to {found['waits_here']}.",
            "ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf();",
        )
    if found["standbys"]:
        words = f"Commits wait for a second server ({found['standbys']})."
        yield Finding("durability", "good", words)
    else:
        yield Finding(
            "durability",
            "note",
            "No second server has a commit when it is acknowledged: the loss of this disk is a loss.",
            "Set synchronous_standby_names, or keep backups and archived WAL.",
        )
    if not found["checksums"]:
        yield Finding(
            "durability",
            "note",
            "Data checksums are off: damage on the disk shows late.",
            "Stop the server and run pg_checksums --enable.",
        )


def _sharing(found: asyncpg.Record) -> Iterator[Finding]:
    used, most = found["connections"], found["connections_max"]
    words = f"Any number of processes and machines; {used} of {most} connections are in use."
    if used > CROWDED * most:
        advice = "Raise max_connections, or put a pooler in front: a worker takes up to 5."
        yield Finding("sharing", "warning", words, advice)
    else:
        yield Finding("sharing", "good", words)


def _clock(found: asyncpg.Record, clock: Clock, steps: ClockStepSummary) -> Iterator[Finding]:
    apart = abs(clock.now() - found["now"])
    words = f"Only the server's clock decides; this machine's is {apart.total_seconds():.1f} s apart."
    if apart > CLOCK_NEAR:
        yield Finding("clock", "note", words, "Times in logs will not match: check NTP on both.")
    else:
        yield Finding("clock", "good", words)
    if note := describe_clock_step(steps):
        yield Finding("clock", "note", note, "See that NTP slews the server's clock, and never steps it.")


def _ahead(step: ClockStep | None) -> Iterator[Finding]:
    if step is not None:
        yield Finding(
            "clock",
            "warning",
            f"The store has times that are {format_duration(-step.by)} ahead of the server's clock: it was"
            " set back, and leases and waits from before last that much longer.",
            "The next process that writes to the store moves them: holdfast worker",
        )


def _right_to_make(found: asyncpg.Record) -> Iterator[Finding]:
    me, database = found["me"], found["database"]
    if found["can_make"]:
        yield Finding("privileges", "good", f"{me} may make the tables.")
    else:
        yield Finding(
            "privileges",
            "fault",
            f"{me} may not make the tables.",
            f"GRANT CREATE ON DATABASE {database} TO {me};",
        )


def _privileges(tables: asyncpg.Record, address: PostgresAddress, me: str) -> Iterator[Finding]:
    if not tables["can_write"]:
        yield Finding(
            "privileges",
            "fault",
            f"{me} may not write to the tables.",
            f"GRANT ALL ON ALL TABLES IN SCHEMA {address.schema} TO {me};"
            f" GRANT ALL ON ALL SEQUENCES IN SCHEMA {address.schema} TO {me};",
        )
    elif not tables["can_change"]:
        yield Finding(
            "privileges",
            "warning",
            f"{me} may write, but not make the next partition of events or bring the schema forward.",
            "Let a worker of the tables' owner run as well, or GRANT the owner's role.",
        )
    else:
        yield Finding("privileges", "good", f"{me} may do all that is needed.")


def _pooler(pooled: bool) -> Iterator[Finding]:
    if pooled:
        yield Finding(
            "pooler",
            "note",
            "A pooler is in between: nothing is kept on a session, and an idle worker looks for jobs"
            " once a second instead of being notified.",
            "For starts within milliseconds, let workers connect directly.",
        )
    else:
        yield Finding("pooler", "good", "No pooler in between: idle workers are notified at once.")


def _disk(found: asyncpg.Record) -> Iterator[Finding]:
    words = f"The database takes {found['size'] / 1e6:,.0f} MB."
    dead = found["dead"] or 0
    if not found["vacuums"]:
        advice = "ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf();"
        yield Finding("disk", "warning", f"{words} autovacuum is off: it will only grow.", advice)
    elif dead > DEAD_ROWS_MANY:
        words += f" {dead:,} dead rows wait for autovacuum."
        yield Finding("disk", "warning", words, "Look for old transactions that hold it back.")
    else:
        yield Finding("disk", "good", words)


def _jobs(found: asyncpg.Record, tables: asyncpg.Record, counts: dict[State, int]) -> Iterator[Finding]:
    ended = sum(n for state, n in counts.items() if state in ENDED)
    live = sum(counts.values()) - ended
    noun = "job" if live == 1 else "jobs"
    yield Finding("jobs", "good", f"{live:,} live {noun}, {ended:,} ended.")
    if tables["due"] and found["now"] - tables["due"] > OVERDUE:
        late = format_duration(found["now"] - tables["due"])
        words = f"A lease or deadline passed {late} ago and was not handled: no worker is running."
        yield Finding("jobs", "warning", words, "Start one: holdfast worker")
    for name, moment in (
        ("transaction", found["oldest_writer"]),
        ("prepared transaction", found["oldest_prepared"]),
    ):
        if moment and found["now"] - moment > LONG:
            yield Finding(
                "jobs",
                "warning",
                f"A {name} that writes is open for {format_duration(found['now'] - moment)}: the feed of all"
                " events stands still behind it.",
                "SELECT pid, xact_start, query FROM pg_stat_activity WHERE backend_xid IS NOT NULL"
                if name == "transaction"
                else "SELECT * FROM pg_prepared_xacts",
            )


def _backup(address: PostgresAddress) -> Iterator[Finding]:
    yield Finding(
        "backup",
        "note",
        "PostgreSQL's own backups are the ones to keep.",
        f"pg_dump --schema={address.schema} {address.database or ''}".rstrip(),
    )
