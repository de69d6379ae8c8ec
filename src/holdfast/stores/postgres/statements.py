"""The statements: one per file in `sql/`, read once, named as their file; and commits made of them."""

import re
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

Row: TypeAlias = tuple[Any, ...]
"""What a driver takes and gives: only the statement knows the types of its columns."""

DEFAULT_SCHEMA = "holdfast"
_FOLDER = files(__package__)
CHECKED = (
    "insert_jobs",
    "insert_drawn_jobs",
    "update_jobs",
    "touch_jobs",
    "insert_resources",
    "update_resources",
    "insert_claims",
)


@cache
def _texts() -> dict[str, str]:
    """Every statement, read at the first use of any: a process without descriptors must still be able to give
    its jobs back."""
    found = (entry for entry in (_FOLDER / "sql").iterdir() if entry.name.endswith(".sql"))
    return {
        entry.name.removesuffix(".sql"): entry.read_text(encoding="utf-8").strip()
        for entry in found
    }


@cache
def statement(name: str, schema: str) -> str:
    """The SQL in `sql/<name>.sql`, on the tables of this schema."""
    return _in(_texts()[name], schema)


@cache
def commit_statement(names: tuple[str, ...], schema: str, *, yielding: bool = False) -> str:
    """One statement that does all the named writes, or none: how many rows must change is its first
    parameter, the channel to notify its second, the moment before which it must have the locks of its rows
    its third, what is told on the channel its fourth, the steps of the clock that are known its fifth, and
    each write's own parameters follow in turn. It answers whether it has written.

    Otherwise it fails, and undoes itself. `yielding`, it writes nothing without that: not even a wait,
    where somebody else has one of its rows or has had it since it was read.
    """
    writes, used = [], 5
    for name in names:
        sql = statement(name, schema)
        if yielding and name == "update_jobs":
            mine = _renumbered(statement("hold_jobs", schema), used)
        writes.append((name, _renumbered(sql, used)))
        used += _parameters(sql)
    checked = [name for name in names if name in CHECKED]
    found = " + ".join(f"(SELECT count(*) FROM {name})" for name in checked) or "0"  # noqa: S608
    expected, so = "$1::bigint", "true"
    parts: list[tuple[str, str]] = []
    if yielding:
        so = "(SELECT so FROM mine)"
        expected = f"CASE WHEN {so} THEN {expected} ELSE 0 END"
        parts.append(("mine", mine))
        writes = [
            (name, _ROWS.sub(rf"unnest(CASE WHEN {so} THEN \1 END)", w)) for name, w in writes
        ]
    steps = f"coalesce((SELECT value FROM {schema}.meta WHERE name = 'clock'), '')"  # noqa: S608
    late = f"clock_timestamp() > $3::timestamptz OR {steps} <> $5::text"
    agreed = f"SELECT {schema}.agree(n, {expected}, {late}) AS so FROM (SELECT {found} AS n OFFSET 0) AS c"  # noqa: S608
    parts += [(name, sql) for name, sql in writes if name in CHECKED]
    parts.append(("agreed", agreed))
    parts += [(name, sql) for name, sql in writes if name not in CHECKED]
    told = f"CASE WHEN $2::text <> '' AND {so} THEN pg_notify($2::text, $4::text) END"
    counted = "(SELECT count(*) FROM insert_facts)" if "insert_facts" in names else "0"
    last = "(SELECT max(seq) FROM insert_drawn_jobs)" if "insert_drawn_jobs" in names else "NULL"
    answer = f"{so}, {told}, {counted}, pg_current_xact_id()::xid, clock_timestamp(), {last}"
    body = ",\n".join(f"{name} AS MATERIALIZED (\n{sql})" for name, sql in parts)
    return f"WITH {body}\nSELECT {answer} FROM agreed"


_ROWS = re.compile(r"unnest\((\$\d+::[\w.]+\[\])\)")


def _renumbered(sql: str, by: int) -> str:
    return re.sub(r"\$(\d+)", lambda found: f"${int(found[1]) + by}", sql)


def _parameters(sql: str) -> int:
    return max(int(number) for number in re.findall(r"\$(\d+)", sql))


def migrations(schema: str) -> list[str]:
    """The scripts that build the schema, in order; the n-th takes version n - 1 to n."""
    folder = _FOLDER / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [_in((folder / name).read_text(encoding="utf-8"), schema) for name in names]


def _in(sql: str, schema: str) -> str:
    return sql if schema == DEFAULT_SCHEMA else sql.replace("holdfast.", f"{schema}.")
