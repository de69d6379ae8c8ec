"""The SQL statements: in `sql/`, each under its name, and the scripts that build the schema."""

import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from operator import attrgetter
from typing import Any, TypeAlias

Row: TypeAlias = tuple[Any, ...]
"""A row as the driver sends and returns it; only the statement knows the types of its columns."""

DEFAULT_SCHEMA = "holdfast"
_FOLDER = files(__package__)
_by_name = attrgetter("name")
_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def _texts() -> dict[str, str]:
    """Return all statements, read at once: a process that has run out of file descriptors must still be
    able to release its jobs."""
    found: dict[str, str] = {}
    for entry in sorted((_FOLDER / "sql").iterdir(), key=_by_name):
        if entry.name.endswith(".sql"):
            _, *parts = _NAME.split(entry.read_text(encoding="utf-8"))
            named = dict(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))
            assert not named.keys() & found.keys()
            found |= named
    return found


@cache
def statement(name: str, schema: str) -> str:
    """Return the SQL of this name, on the tables of this schema."""
    return _in(_texts()[name], schema)


def migrations(schema: str) -> list[str]:
    """Return the scripts that build the schema, in order; the n-th takes version n - 1 to n. A long one is a
    folder of files by purpose."""
    steps = [entry for entry in (_FOLDER / "migrations").iterdir() if entry.name[0].isdigit()]
    return [_in("\n".join(_parts(step)), schema) for step in sorted(steps, key=_by_name)]


def _parts(entry: Traversable) -> list[str]:
    files = sorted(entry.iterdir(), key=_by_name) if entry.is_dir() else [entry]
    return [file.read_text(encoding="utf-8") for file in files]


def _in(sql: str, schema: str) -> str:
    return sql if schema == DEFAULT_SCHEMA else sql.replace("holdfast.", f"{schema}.")
