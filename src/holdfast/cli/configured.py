"""Settings as the flags of a command take them: one parser for flags, variables and the file."""

from collections.abc import Sequence

import click

from holdfast.cli.exits import Exit
from holdfast.cli.safe import plain
from holdfast.sdk.settings import SETTINGS, Given, Settings, read_settings


class Misconfigured(click.ClickException):
    """Everything that is wrong with the settings, one thing a line."""

    exit_code = Exit.INVALID

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(plain(problem) for problem in problems))


def defaults(ctx: click.Context) -> dict[str, object]:
    """What the settings say for the parameters of this command. Raises `Misconfigured`."""
    settings = read_settings()
    found, problems = taken(ctx, settings)
    if problems := [*settings.problems, *problems]:
        raise Misconfigured(problems)
    return found


def taken(ctx: click.Context, settings: Settings) -> tuple[dict[str, object], list[str]]:
    """The values by parameter, each of which its flag would accept, and what is wrong with others."""
    found: dict[str, object] = {}
    problems: list[str] = []
    for name, option in options(ctx.command).items():
        if given := settings.given.get(name):
            try:
                found[option.name] = _shaped(option, given)
                option.type_cast_value(ctx, found[option.name])
            except click.BadParameter as error:
                problems.append(f"{given.place}: {error.message}")
    return found, problems


def options(command: click.Command) -> dict[str, click.Option]:
    """The options of a command that may be set, by the names of their settings."""
    by_flag = {
        flag.removeprefix("--").replace("-", "_"): option
        for option in command.params
        if isinstance(option, click.Option)
        for flag in option.opts
    }
    table = command.name or ""
    return {f"{table}.{key}": by_flag[key] for key in SETTINGS[table]}


def _shaped(option: click.Option, given: Given) -> object:
    """A value of the kind that the option converts. A list is one in TOML, and has commas as text."""
    value, lists = given.value, option.multiple or getattr(option.type, "is_list", False)
    if given.file is not None:
        _check_kind(option, value, lists=lists)
    if not lists:
        return value
    parts = value if isinstance(value, list) else str(value).split(",")
    names = [name for part in parts if (name := part.strip())]
    if not names:
        raise click.BadParameter("this is a list with nothing in it; leave it out.")
    return names if option.multiple else ",".join(names)


def _check_kind(option: click.Option, value: object, *, lists: bool) -> None:
    """Raise BadParameter for what TOML calls something else than the flag would."""
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
        raise click.BadParameter(f"this is {kind}; not {value!r}.")
