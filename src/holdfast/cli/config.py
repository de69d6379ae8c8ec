"""`holdfast config`: every setting, its value, and who said so."""

import os
from collections.abc import Iterator

import click
from msgspec import Struct

from holdfast.cli.configured import Misconfigured, options, taken
from holdfast.cli.costs import rate_of
from holdfast.cli.documents import print_json
from holdfast.cli.options import config_option, given_store, store_option
from holdfast.cli.safe import plain
from holdfast.cli.terminal import note, rows
from holdfast.cli.traces import WHERE
from holdfast.core.cost import RATE
from holdfast.core.errors import Invalid
from holdfast.sdk.open import DEFAULT_STORE
from holdfast.sdk.outputs import default_outputs
from holdfast.sdk.settings import SETTINGS, Settings, read_settings
from holdfast.sdk.settings_file import places
from holdfast.sdk.store_url import shown_url

_DEFAULTS = {"store": DEFAULT_STORE, "traces": "off", "cost_per_hour": f"{RATE:.2f}"}


class Shown(Struct, frozen=True):
    """One setting as it counts. Without a value there is none."""

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
    A flag goes before a variable of the environment, that before the file,
    and that before the default. Of these files the first counts, alone:
      --config FILE, or HOLDFAST_CONFIG
      holdfast.toml in the current folder
      ~/.config/holdfast/holdfast.toml
      /etc/holdfast/holdfast.toml
    """
    settings = read_settings()
    problems = [*settings.problems, *_wrong_traces(settings), *_wrong_rate(settings)]
    shown = list(_general(settings))
    for table in filter(None, SETTINGS):
        below = _context(ctx, table)
        problems += taken(below, settings)[1]
        shown += _of_command(below, settings)
    if problems:
        raise Misconfigured(problems)
    if as_json:
        values = {one.name: {"value": one.value, "origin": one.origin} for one in shown}
        file = str(settings.file) if settings.file else None
        print_json({"file": file, "settings": values})
        return
    rows(("NAME", "VALUE", "ORIGIN"), [(one.name, _text(one.value), one.origin) for one in shown])
    looked = ", ".join(str(place) for place in places(os.environ))
    note(plain(f"File: {settings.file}" if settings.file else f"File: none; looked for {looked}"))


def _general(settings: Settings) -> Iterator[Shown]:
    """What belongs to no command. No password is shown, and of a key only whether it is there."""
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
        yield Shown(name, shown, origin)
    if os.environ.get("HOLDFAST_KEY"):
        yield Shown("key", "set", "env HOLDFAST_KEY")
    else:
        yield Shown("key", "not set", "default")


def _wrong_traces(settings: Settings) -> Iterator[str]:
    given = settings.given.get("traces")
    if given and given.value not in WHERE:
        yield f"{given.place}: traces are {' or '.join(WHERE)}, not {given.value!r}."


def _wrong_rate(settings: Settings) -> Iterator[str]:
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


def _of_command(ctx: click.Context, settings: Settings) -> Iterator[Shown]:
    for name, option in options(ctx.command).items():
        if given := settings.given.get(name):
            yield Shown(name, given.value, given.origin)
        else:
            yield Shown(name, _default(option), "default")


def _default(option: click.Option) -> object:
    """The default as one would write it, or the words for it that --help has."""
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
