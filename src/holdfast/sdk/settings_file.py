"""The file of settings: where it is looked for, whether it can be trusted, and what it says."""

import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from holdfast.core.errors import Invalid

FILE = "holdfast.toml"
WHICH = "HOLDFAST_CONFIG"
_HEADER = re.compile(r"\s*\[\s*([\w-]+)\s*\]\s*(?:#.*)?\Z")


class File(Struct, frozen=True, kw_only=True):
    """What one file says, by full name, such as serve.listen."""

    path: Path
    text: str
    values: Mapping[str, object]
    found_here: bool
    """Nobody named it: it lies in the current folder, and whoever made that may have made it."""

    def line(self, name: str) -> int | None:
        """The line where `name` is set, if it is written in the usual way."""
        table, _, key = name.rpartition(".")
        setting, current = re.compile(rf"\s*{re.escape(key)}\s*="), ""
        for number, line in enumerate(self.text.splitlines(), 1):
            if header := _HEADER.match(line):
                current = header[1]
            elif current == table and setting.match(line):
                return number
        return None


def read_file(environ: Mapping[str, str]) -> File | None:
    """The file that HOLDFAST_CONFIG names, else the first of `places` that is there. `Invalid` when it
    is no TOML, cannot be read, or somebody else may have written it."""
    named = environ.get(WHICH)
    if named == os.devnull:
        return None
    here, *others = places(environ)
    if named:
        return _read(here, named=True, found_here=False)
    for path in (here, *others):
        if path.is_absolute() and os.path.isfile(path):
            return _read(path, named=False, found_here=path == here and path not in others)
    return None


def places(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The file that is named, else where one is looked for: the first that is there counts, alone."""
    here = Path(environ.get(WHICH) or FILE)
    with suppress(OSError):  # the current folder may be gone
        here = here.absolute()
    if environ.get(WHICH):
        return (here,)
    own = environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return here, Path(own, "holdfast", FILE), Path("/etc/holdfast", FILE)


def _read(path: Path, *, named: bool, found_here: bool) -> File:
    import tomllib

    try:
        with path.open("rb") as opened:
            _check_writers(path, os.fstat(opened.fileno()), named=named)
            text = opened.read().decode()
        tables = tomllib.loads(text)
    except OSError as error:
        raise Invalid(
            f"{path} cannot be read: {error.strerror}. {WHICH} names another file of settings, or"
            f" {os.devnull} for none."
        ) from error
    except ValueError as error:
        raise Invalid(f"{path} is not TOML: {error}.") from error
    return File(path=path, text=text, values=_flat(tables), found_here=found_here)


def _check_writers(path: Path, opened: os.stat_result, *, named: bool) -> None:
    """A file decides which store a command works on: nobody else may be able to write it."""
    owners = {opened.st_uid, path.lstat().st_uid}  # of the file, and of a link to it
    if not named and not owners <= {0, os.geteuid()}:
        raise Invalid(
            f"{path} belongs to another user, who could choose your store. If you trust it, name it:"
            f" {WHICH}={path}; else go to another folder, or set {WHICH}={os.devnull}."
        )
    if opened.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Invalid(f"{path} can be written by others: chmod go-w {path}")


def _flat(tables: Mapping[str, object]) -> dict[str, object]:
    """Every value by its full name; what is deeper than a table is left for its setting to refuse."""
    values: dict[str, object] = {}
    for name, value in tables.items():
        if isinstance(value, dict) and value:
            values |= {f"{name}.{key}": below for key, below in value.items()}
        else:
            values[name] = value
    return values
