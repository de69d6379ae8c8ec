"""`holdfast config`: every setting, its value, and where that comes from."""

import os
from collections.abc import Iterator

import click
from msgspec import Struct

from holdfast.cli.costs import rate_of
from holdfast.cli.flag_defaults import Misconfigured, parse_settings, settable_options
from holdfast.cli.json_output import print_json
from holdfast.cli.layout import Column
from holdfast.cli.options import config_option, given_store, store_option
from holdfast.cli.terminal import note, on_terminal, rows
from holdfast.cli.terminal_escape import plain
from holdfast.cli.traces import TRACE_EXPORTERS
from holdfast.core.cost import RATE
from holdfast.core.errors import Invalid
from holdfast.sdk.open import DEFAULT_STORE
from holdfast.sdk.output_store import default_outputs
from holdfast.sdk.settings import SETTINGS, Settings, read_settings
from holdfast.sdk.settings_file import search_paths
from holdfast.sdk.store_url import shown_url

_COLUMNS = (Column("NAME"), Column("VALUE"), Column("ORIGIN"))
_TERMINAL_COLUMNS = (Column("NAME"), Column("ORIGIN"), Column("VALUE"))
_DEFAULTS = {"store": DEFAULT_STORE, "traces": "off", "cost_per_hour": f"{RATE:.2f}"}


class ShownSetting(Struct, frozen=True):
    """One setting as it is in force; `value` is None where nothing is set."""

    name: str
    value: object
    origin: str


@click.command()
@click.option("--json", "as_json", is_flag=True, help='{"file": ..., "settings": {NAME: ...}}')
@store_option
@config_option
@click.pass_context
def config(ctx: click.Context, *, as_json: bool) -> None:
    """Show every setting, its value and where that comes from.

    \b
    A flag overrides an environment variable, that overrides the file, and
    that overrides the default. Only the first of these files is read:
      --config FILE, or HOLDFAST_CONFIG
      holdfast.toml in the current folder
      ~/.config/holdfast/holdfast.toml
      /etc/holdfast/holdfast.toml
    """
    settings = read_settings()
    problems = [*settings.problems, *_trace_problems(settings), *_rate_problems(settings)]
    shown = list(_general_settings(settings))
    for table in filter(None, SETTINGS):
        below = _context(ctx, table)
        problems += parse_settings(below, settings)[1]
        shown += _command_settings(below, settings)
    if problems:
        raise Misconfigured(problems)
    if as_json:
        values = {one.name: {"value": one.value, "origin": one.origin} for one in shown}
        file = str(settings.file) if settings.file else None
        print_json({"file": file, "settings": values})
        return
    if on_terminal():
        rows(_TERMINAL_COLUMNS, [(one.name, one.origin, _text(one.value)) for one in shown])
    else:
        rows(_COLUMNS, [(one.name, _text(one.value), one.origin) for one in shown])
    searched = ", ".join(str(place) for place in search_paths(os.environ))
    note(plain(f"File: {settings.file}" if settings.file else f"File: none; searched for {searched}"))


def _general_settings(settings: Settings) -> Iterator[ShownSetting]:
    """Yield what belongs to no command. Passwords are not shown, and of a key only whether it is set."""
    store = DEFAULT_STORE
    for name in SETTINGS[""]:
        given = settings.given.get(name)
        value = given.value if given else _DEFAULTS.get(name)
        origin = given.origin if given else "default"
        if name == "store":
            if flag := given_store():
                value, origin = flag, "flag --store"
            store = str(value)
        elif name == "outputs" and given is None:
            value = default_outputs(store)
        shown = shown_url(str(value)) if name in ("store", "outputs") and value else value
        yield ShownSetting(name, shown, origin)
    if os.environ.get("HOLDFAST_KEY"):
        yield ShownSetting("key", "set", "env HOLDFAST_KEY")
    else:
        yield ShownSetting("key", "not set", "default")


def _trace_problems(settings: Settings) -> Iterator[str]:
    given = settings.given.get("traces")
    if given and given.value not in TRACE_EXPORTERS:
        yield f"{given.place}: traces are {' or '.join(TRACE_EXPORTERS)}, not {given.value!r}."


def _rate_problems(settings: Settings) -> Iterator[str]:
    if given := settings.given.get("cost_per_hour"):
        try:
            rate_of(given)
        except Invalid as error:
            yield error.message


def _context(ctx: click.Context, name: str) -> click.Context:
    root = ctx.find_root()
    assert isinstance(root.command, click.Group)  # it is what was called
    command = root.command.get_command(root, name)
    assert command is not None  # a test walks the table
    return click.Context(command, parent=root, info_name=name)


def _command_settings(ctx: click.Context, settings: Settings) -> Iterator[ShownSetting]:
    for name, option in settable_options(ctx.command).items():
        if given := settings.given.get(name):
            yield ShownSetting(name, given.value, given.origin)
        else:
            yield ShownSetting(name, _default(option), "default")


def _default(option: click.Option) -> object:
    """Return the default as a user would write it, or its description in --help."""
    value = option.to_info_dict()["default"]
    if option.is_flag:
        return bool(value)
    if value is None and isinstance(option.show_default, str):
        return option.show_default
    return list(value) if isinstance(value, tuple) else value


def _text(value: object) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case list():
            return ",".join(str(part) for part in value)
        case _:
            return str(value)
