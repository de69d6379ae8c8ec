"""The SQL statements, one per file in `sql/` and named as the file."""

from functools import cache
from importlib.resources import files
from typing import TypeAlias

Value: TypeAlias = int | float | bytes | str | None
"""What a column can hold."""

Row: TypeAlias = tuple[Value, ...]

_FOLDER = files(__package__)


@cache
def _texts() -> dict[str, str]:
    """Every statement, read at the first use of any: a process without descriptors must still be able to
    give its jobs back."""
    found = (entry for entry in (_FOLDER / "sql").iterdir() if entry.name.endswith(".sql"))
    return {entry.name.removesuffix(".sql"): entry.read_text(encoding="utf-8").strip() for entry in found}


def statement(name: str) -> str:
    """Return the SQL in `sql/<name>.sql`."""
    return _texts()[name]


def migrations() -> list[str]:
    """Return the scripts that build the schema, in order; the n-th takes version n - 1 to n."""
    folder = _FOLDER / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(folder / name).read_text(encoding="utf-8") for name in names]
