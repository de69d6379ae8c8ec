"""The statements: one per file in `sql/`, read once, named as their file."""

from functools import cache
from importlib.resources import files
from typing import TypeAlias

Value: TypeAlias = int | float | bytes | str | None
"""What a column can hold."""

Row: TypeAlias = tuple[Value, ...]

_FOLDER = files(__package__)


@cache
def statement(name: str) -> str:
    """The SQL in `sql/<name>.sql`."""
    return (_FOLDER / "sql" / f"{name}.sql").read_text(encoding="utf-8").strip()


def migrations() -> list[str]:
    """The scripts that build the schema, in order; the n-th takes version n - 1 to n."""
    folder = _FOLDER / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(folder / name).read_text(encoding="utf-8") for name in names]
