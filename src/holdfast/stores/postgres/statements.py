"""The SQL statements, one per file in `sql/` and named as the file; and the statement that commits, made of
them."""

import re
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

Row: TypeAlias = tuple[Any, ...]
"""A row as the driver sends and returns it; only the statement knows the types of its columns."""

DEFAULT_SCHEMA = "holdfast"
_FOLDER = files(__package__)
# The writes whose row count must be as expected; the others follow only after that is certain.
CHECKED = (
    "insert_jobs",
    "insert_unnumbered_jobs",
    "update_jobs",
    "touch_jobs",
    "insert_resources",
    "update_resources",
    "insert_claims",
)


@cache
def _texts() -> dict[str, str]:
    """Return all statements, read at once: a process that has run out of file descriptors must still be
    able to release its jobs."""
    found = (entry for entry in (_FOLDER / "sql").iterdir() if entry.name.endswith(".sql"))
    return {entry.name.removesuffix(".sql"): entry.read_text(encoding="utf-8").strip() for entry in found}


@cache
def statement(name: str, schema: str) -> str:
    """Return the SQL in `sql/<name>.sql`, on the tables of this schema."""
    return _in(_texts()[name], schema)


@cache
def commit_statement(names: tuple[str, ...], schema: str, *, skip_locked: bool = False) -> str:
    """Return one statement that does all the named writes, or fails and does none.

    Its parameters are: 1 how many rows the `CHECKED` writes must change, 2 the channel to notify (or ''),
    3 the time until which it must have its row locks (or NULL), 4 the payload of the notification, 5 the
    steps of the server's clock that this process knows of; then those of each write, renumbered. It returns
    whether it has written, the number of new facts, the transaction id, the time and the last new sequence.

    For ("touch_jobs", "insert_counts") it is, shortened:

        WITH touch_jobs AS MATERIALIZED (
        UPDATE holdfast.job SET … FROM unnest($6::holdfast.touched_job[]) AS new WHERE … RETURNING 1),
        agreed AS MATERIALIZED (
        SELECT holdfast.agree(n, $1::bigint, clock_timestamp() > $3::timestamptz OR … <> $5::text)
        FROM (SELECT (SELECT count(*) FROM touch_jobs) AS n OFFSET 0) AS c),
        insert_counts AS MATERIALIZED (
        INSERT INTO holdfast.queue_count … SELECT … FROM agreed, unnest($7::holdfast.changed_count[]) …)
        SELECT true, CASE WHEN $2::text <> '' AND true THEN pg_notify(…) END, 0, … FROM agreed

    `agree` raises a serialization failure when the count differs or it is too late. The unchecked writes
    select from `agreed`, so that they run after it; a new one must do so too. With `skip_locked`, a first
    part `unchanged` tries to lock the rows of update_jobs; if one is locked or was changed since it was
    read, every `unnest($n::type[])` becomes `unnest(NULL)` and nothing is written, without waiting or
    failing.
    """
    writes, used = [], 5
    for name in names:
        sql = statement(name, schema)
        if skip_locked and name == "update_jobs":
            unchanged = _renumbered(statement("lock_unchanged_jobs", schema), used)
        writes.append((name, _renumbered(sql, used)))
        used += _parameters(sql)
    checked = [name for name in names if name in CHECKED]
    found = " + ".join(f"(SELECT count(*) FROM {name})" for name in checked) or "0"  # noqa: S608
    expected, wrote = "$1::bigint", "true"
    parts: list[tuple[str, str]] = []
    if skip_locked:
        wrote = "(SELECT all_locked FROM unchanged)"
        expected = f"CASE WHEN {wrote} THEN {expected} ELSE 0 END"
        parts.append(("unchanged", unchanged))
        writes = [(name, _ROWS.sub(rf"unnest(CASE WHEN {wrote} THEN \1 END)", w)) for name, w in writes]
    steps = f"coalesce((SELECT value FROM {schema}.meta WHERE name = 'clock'), '')"  # noqa: S608
    late = f"clock_timestamp() > $3::timestamptz OR {steps} <> $5::text"
    agreed = f"SELECT {schema}.agree(n, {expected}, {late}) FROM (SELECT {found} AS n OFFSET 0) AS c"  # noqa: S608
    parts += [(name, sql) for name, sql in writes if name in CHECKED]
    parts.append(("agreed", agreed))
    parts += [(name, sql) for name, sql in writes if name not in CHECKED]
    notified = f"CASE WHEN $2::text <> '' AND {wrote} THEN pg_notify($2::text, $4::text) END"
    facts = "(SELECT count(*) FROM insert_facts)" if "insert_facts" in names else "0"
    numbered = "insert_unnumbered_jobs" in names
    last = "(SELECT max(seq) FROM insert_unnumbered_jobs)" if numbered else "NULL"
    result = f"{wrote}, {notified}, {facts}, pg_current_xact_id()::xid, clock_timestamp(), {last}"
    body = ",\n".join(f"{name} AS MATERIALIZED (\n{sql})" for name, sql in parts)
    return f"WITH {body}\nSELECT {result} FROM agreed"


_ROWS = re.compile(r"unnest\((\$\d+::[\w.]+\[\])\)")


def _renumbered(sql: str, by: int) -> str:
    return re.sub(r"\$(\d+)", lambda found: f"${int(found[1]) + by}", sql)


def _parameters(sql: str) -> int:
    return max(int(number) for number in re.findall(r"\$(\d+)", sql))


def migrations(schema: str) -> list[str]:
    """Return the scripts that build the schema, in order; the n-th takes version n - 1 to n."""
    folder = _FOLDER / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [_in((folder / name).read_text(encoding="utf-8"), schema) for name in names]


def _in(sql: str, schema: str) -> str:
    return sql if schema == DEFAULT_SCHEMA else sql.replace("holdfast.", f"{schema}.")
