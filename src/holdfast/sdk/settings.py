"""Settings: what may be set without flags: in the environment, else in one file."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from holdfast.core.errors import Invalid
from holdfast.sdk.settings_file import SettingsFile, read_file
from holdfast.sdk.store_url import StoreUrl

SETTINGS: dict[str, tuple[str, ...]] = {
    "": ("store", "outputs", "key_file", "ca_file", "traces", "cost_per_hour"),
    "serve": (
        "listen",
        "services",
        "keys",
        "tls_cert",
        "tls_key",
        "behind_proxy",
        "poll",
        "queue_limit",
        "cors_origin",
        "grpc",
        "log",
        "verbose",
    ),
    "worker": (
        "queue",
        "concurrency",
        "commands",
        "region",
        "lease",
        "pass_env",
        "leave",
        "spool",
        "log",
        "metrics",
    ),
}
"""The settings, by their table in the file. The table of a command has flags of that command, with _ for -;
type, default and meaning are those of the flag."""

NAMES = tuple(f"{table}.{key}" if table else key for table, keys in SETTINGS.items() for key in keys)


class Setting(Struct, frozen=True, kw_only=True):
    """The value of one setting, and where it was set: in a file, or in the environment."""

    name: str
    value: object
    file: Path | None = None
    line: int | None = None

    @property
    def origin(self) -> str:
        return f"file {self.file}:{self.name}" if self.file else f"env {variable(self.name)}"

    @property
    def place(self) -> str:
        """Where to correct it."""
        return f"{self.origin} (line {self.line})" if self.line else self.origin


class Settings(Struct, frozen=True, kw_only=True):
    """All settings by name, the file that was read, and everything that is wrong."""

    file: Path | None
    given: Mapping[str, Setting]
    problems: tuple[str, ...]


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of the environment and the file; `Invalid` for a file that cannot be read or
    trusted."""
    file = read_file(environ)
    given = _from_file(file) if file else {}
    given |= {name: found for name in NAMES if (found := _from_environment(name, environ))}
    problems = (*(_file_problems(file) if file else ()), *_variable_problems(environ))
    return Settings(file=file.path if file else None, given=given, problems=problems)


def read_setting(name: str, environ: Mapping[str, str] = os.environ) -> Setting | None:
    """Return the value of one setting, if it is set. The file is read only if the environment does not set
    it; `Invalid` if anything in the file is wrong."""
    if found := _from_environment(name, environ):
        return found
    file = read_file(environ)
    if file is None:
        return None
    if problems := tuple(_file_problems(file)):
        raise Invalid(" ".join(problems))
    return _from_file(file).get(name)


def variable(name: str) -> str:
    """Return the environment variable of a setting: HOLDFAST_SERVE_LISTEN for serve.listen."""
    return f"HOLDFAST_{name.replace('.', '_').upper()}"


def _from_environment(name: str, environ: Mapping[str, str]) -> Setting | None:
    text = environ.get(variable(name))
    return Setting(name=name, value=text) if text else None


def _from_file(file: SettingsFile) -> dict[str, Setting]:
    return {
        name: Setting(name=name, value=value, file=file.path, line=file.line(name))
        for name, value in file.values.items()
        if name in NAMES
    }


def _file_problems(file: SettingsFile) -> Iterator[str]:
    for name, value in file.values.items():
        place = Setting(name=name, value=None, file=file.path, line=file.line(name)).place
        if name == "key":
            yield (
                f"{place}: a key does not belong here: put it into a file of its own and name that"
                " with key_file, or use HOLDFAST_KEY."
            )
        elif name in SETTINGS:
            if value != {}:
                yield f"{place}: this is a table; write [{name}] on a line of its own."
        elif name not in NAMES:
            yield f"{place}: there is no such setting; {_advice(name)}"
        elif "." not in name and not (value and isinstance(value, str)):
            yield f"{place}: this is text, in quotes."
        elif file.found_here and (name in ("key_file", "ca_file") or _names_server(name, value)):
            yield (
                f"{place}: a file that is only found in the current folder decides nothing about"
                f" servers and keys; if you trust it, name it: HOLDFAST_CONFIG={file.path}."
            )


def _names_server(name: str, value: object) -> bool:
    url = StoreUrl(str(value))
    if name == "outputs":  # all but a folder is used over the network, with keys of this process
        return "://" in url.text and url.scheme.lower() != "file"
    return name == "store" and url.is_server


def _variable_problems(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield variables that look like settings of a command, but are not."""
    known = {variable(name) for name in NAMES}
    for table in filter(None, SETTINGS):
        start = variable(f"{table}.")
        for name in sorted(environ):
            if name.startswith(start) and name not in known and not _kubernetes(name, environ):
                key = f"{table}.{name.removeprefix(start).lower()}"
                yield f"env {name}: there is no such setting; {_advice(key, variables=True)}"


def _kubernetes(name: str, environ: Mapping[str, str]) -> bool:
    """Whether Kubernetes has set it for a service in the cluster that is called, say, holdfast-worker."""
    services = (n.removesuffix("SERVICE_HOST") for n in environ if n.endswith("_SERVICE_HOST"))
    return any(name.startswith((f"{service}SERVICE_", f"{service}PORT")) for service in services)


def _advice(name: str, *, variables: bool = False) -> str:
    """Return advice with the setting that may have been meant: of the same table, else of any other."""
    from difflib import get_close_matches

    table, _, key = name.rpartition(".")
    by_key = {known.rpartition(".")[2]: known for known in NAMES}
    if near := get_close_matches(key, SETTINGS.get(table, ()), 1):
        meant = f"{table}.{near[0]}" if table else near[0]
    elif table not in SETTINGS and (near := get_close_matches(table, SETTINGS, 1)):
        return f"did you mean the table [{near[0]}]?"
    elif near := get_close_matches(key, by_key, 1):
        meant = by_key[near[0]]
    else:
        return "holdfast config shows all settings."
    return f"did you mean {variable(meant) if variables else meant}?"
