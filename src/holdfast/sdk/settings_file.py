"""The file of settings: where it is searched, whether it can be trusted, and its values."""

import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from holdfast.core.errors import Invalid

FILE = "holdfast.toml"
CONFIG_VARIABLE = "HOLDFAST_CONFIG"
_HEADER = re.compile(r"\s*\[\s*([\w-]+)\s*\]\s*(?:#.*)?\Z")


class SettingsFile(Struct, frozen=True, kw_only=True):
    """The values of one file, by full name, such as serve.listen."""

    path: Path
    text: str
    values: Mapping[str, object]
    found_here: bool
    """Whether it was not named, but found in the current folder, which another user may have made."""

    def line(self, name: str) -> int | None:
        """Return the line where `name` is set, if it is written in the usual way."""
        table, _, key = name.rpartition(".")
        setting, current = re.compile(rf"\s*{re.escape(key)}\s*="), ""
        for number, line in enumerate(self.text.splitlines(), 1):
            if header := _HEADER.match(line):
                current = header[1]
            elif current == table and setting.match(line):
                return number
        return None


def read_file(environ: Mapping[str, str]) -> SettingsFile | None:
    """Return the file that HOLDFAST_CONFIG names, else the first of `places` that exists. `Invalid` when it
    is not TOML, cannot be read, or another user may have written it."""
    named = environ.get(CONFIG_VARIABLE)
    if named == os.devnull:
        return None
    here, *others = search_paths(environ)
    if named:
        return _read(here, named=True, found_here=False)
    for path in (here, *others):
        if path.is_absolute() and os.path.isfile(path):
            return _read(path, named=False, found_here=path == here and path not in others)
    return None


def search_paths(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the file that is named, else all places to search: only the first that exists counts."""
    here = Path(environ.get(CONFIG_VARIABLE) or FILE)
    with suppress(OSError):  # the current folder may be gone
        here = here.absolute()
    if environ.get(CONFIG_VARIABLE):
        return (here,)
    own = environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return here, Path(own, "holdfast", FILE), Path("/etc/holdfast", FILE)


def _read(path: Path, *, named: bool, found_here: bool) -> SettingsFile:
    import tomllib

    try:
        with path.open("rb") as opened:
            _check_writers(path, os.fstat(opened.fileno()), named=named)
            text = opened.read().decode()
        tables = tomllib.loads(text)
    except OSError as error:
        raise Invalid(
            f"{path} cannot be read: {error.strerror}. {CONFIG_VARIABLE} names another file of settings, or"
            f" {os.devnull} for none."
        ) from error
    except ValueError as error:
        raise Invalid(f"{path} is not TOML: {error}.") from error
    return SettingsFile(path=path, text=text, values=_flat(tables), found_here=found_here)


def _check_writers(path: Path, opened: os.stat_result, *, named: bool) -> None:
    """Raise `Invalid` if other users can write the file: it decides which store a command works on."""
    owners = {opened.st_uid, path.lstat().st_uid}  # of the file, and of a link to it
    if not named and not owners <= {0, os.geteuid()}:
        raise Invalid(
            f"{path} belongs to another user, who could choose your store. If you trust it, name it:"
            f" {CONFIG_VARIABLE}={path}; else go to another folder, or set {CONFIG_VARIABLE}={os.devnull}."
        )
    if opened.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Invalid(f"{path} can be written by others: chmod go-w {path}")


def _flat(tables: Mapping[str, object]) -> dict[str, object]:
    """Return every value by its full name. Values deeper than a table are refused as settings later."""
    values: dict[str, object] = {}
    for name, value in tables.items():
        if isinstance(value, dict) and value:
            values |= {f"{name}.{key}": below for key, below in value.items()}
        else:
            values[name] = value
    return values
