"""Defaults of flags from the settings: the parser of a flag also reads variables and the file."""

from collections.abc import Sequence

import click

from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.terminal_escape import plain
from holdfast.sdk.settings import SETTINGS, Setting, Settings, read_settings


class Misconfigured(click.ClickException):
    """All problems of the settings, one a line."""

    exit_code = ExitCode.INVALID

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(plain(problem) for problem in problems))


def flag_defaults(ctx: click.Context) -> dict[str, object]:
    """Return the settings for the parameters of this command. Raise `Misconfigured` when one is wrong."""
    settings = read_settings()
    found, problems = parse_settings(ctx, settings)
    if problems := [*settings.problems, *problems]:
        raise Misconfigured(problems)
    return found


def parse_settings(ctx: click.Context, settings: Settings) -> tuple[dict[str, object], list[str]]:
    """Return the values by parameter, each of which its flag accepts, and the problems of the others."""
    found: dict[str, object] = {}
    problems: list[str] = []
    for name, option in settable_options(ctx.command).items():
        if given := settings.given.get(name):
            try:
                found[option.name] = _convertible(option, given)
                option.type_cast_value(ctx, found[option.name])
            except click.BadParameter as error:
                problems.append(f"{given.place}: {error.message}")
    return found, problems


def settable_options(command: click.Command) -> dict[str, click.Option]:
    """Return the options of a command that settings may set, by the names of their settings."""
    by_flag = {
        flag.removeprefix("--").replace("-", "_"): option
        for option in command.params
        if isinstance(option, click.Option)
        for flag in option.opts
    }
    table = command.name or ""
    return {f"{table}.{key}": by_flag[key] for key in SETTINGS[table]}


def _convertible(option: click.Option, given: Setting) -> object:
    """Return a value that the option can convert. A list is a list in TOML, and has commas as text."""
    value, lists = given.value, option.multiple or getattr(option.type, "is_list", False)
    if given.file is not None:
        _check_kind(option, value, lists=lists)
    if not lists:
        return value
    parts = value if isinstance(value, list) else str(value).split(",")
    names = [name for part in parts if (name := part.strip())]
    if not names:
        raise click.BadParameter("the list is empty; leave the setting out.")
    return names if option.multiple else ",".join(names)


def _check_kind(option: click.Option, value: object, *, lists: bool) -> None:
    """Raise BadParameter for a value whose TOML type is not that of the flag."""
    if option.is_flag:
        right, kind = isinstance(value, bool), "true or false"
    elif isinstance(option.type, click.types.IntParamType):
        right, kind = isinstance(value, int) and not isinstance(value, bool), "a whole number"
    elif lists:
        listed = value if isinstance(value, list) else [value]
        right, kind = all(isinstance(part, str) for part in listed), 'a list: ["one", "two"]'
    else:
        right = isinstance(value, str | int | float) and not isinstance(value, bool)
        kind = "text, in quotes"
    if not right:
        raise click.BadParameter(f"expected {kind}, not {value!r}.")
