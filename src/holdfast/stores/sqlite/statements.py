"""The SQL statements: a few files in `sql/`, each statement under its name (`-- name: select_ready`)."""

from functools import cache
from importlib.resources import files
from typing import TypeAlias

Value: TypeAlias = int | float | bytes | str | None
"""What a column can hold."""

Row: TypeAlias = tuple[Value, ...]

_FOLDER = files(__package__)
_NAME = "-- name: "


@cache
def _texts() -> dict[str, str]:
    """Every statement, read at the first use of any: a process without descriptors must still be able to
    give its jobs back."""
    found: dict[str, str] = {}
    for entry in (_FOLDER / "sql").iterdir():
        if entry.name.endswith(".sql"):
            for part in entry.read_text(encoding="utf-8").split(_NAME)[1:]:
                name, _, text = part.partition("\n")
                if name in found:
                    raise ValueError(f"Two statements are called {name}.")
                found[name] = text.strip()
    return found


def statement(name: str) -> str:
    """Return the SQL under this name."""
    return _texts()[name]


def migrations() -> list[str]:
    """Return the scripts that build the schema, in order; the n-th takes version n - 1 to n."""
    folder = _FOLDER / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(folder / name).read_text(encoding="utf-8") for name in names]
