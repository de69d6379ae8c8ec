"""Options that many commands share: the store, the output store, the settings file, pairs K=V."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

_STORE = "holdfast.store"
_OUTPUTS = "holdfast.outputs"
_NEWEST = "holdfast.newest"

F = TypeVar("F", bound=Callable[..., object])


def store_option(command: F) -> F:
    """`--store URL`, before or after the name of the command; read it with `chosen_store`."""
    return click.option(
        "--store",
        metavar="URL",
        expose_value=False,
        callback=_remember_store,
        is_eager=True,
        help="URL of the store.  [env: HOLDFAST_STORE; default: sqlite:///holdfast.db]",
    )(command)


def chosen_store() -> str:
    """Return the URL by --store, else by HOLDFAST_STORE, else by holdfast.toml, else the default."""
    from holdfast.sdk.defaults import chosen_url

    return chosen_url(given_store())


def given_store() -> str | None:
    """Return the URL by --store, if it was given."""
    context = click.get_current_context(silent=True)
    given: str | None = context.meta.get(_STORE) if context else None
    return given


def _remember_store(ctx: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta[_STORE] = value


def outputs_option(command: F) -> F:
    """`--outputs URL`; read it with `given_outputs`."""
    return click.option(
        "--outputs",
        metavar="URL",
        expose_value=False,
        callback=_remember_outputs,
        help="URL of the output store.  [env: HOLDFAST_OUTPUTS; default: a folder beside a sqlite store]",
    )(command)


def given_outputs() -> str | None:
    """Return the URL by --outputs, if it was given: for `open_chosen_outputs` of `sdk.output_store`."""
    context = click.get_current_context(silent=True)
    given: str | None = context.meta.get(_OUTPUTS) if context else None
    return given


def _remember_outputs(ctx: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta[_OUTPUTS] = value


def newest_option(command: F) -> F:
    """`--newest`, where a job is named; read it with `newest_wanted`."""
    return click.option(
        "--newest",
        is_flag=True,
        expose_value=False,
        callback=_remember_newest,
        help="Take the newest of the jobs that JOB fits.",
    )(command)


def newest_wanted() -> bool:
    """Whether --newest was given."""
    context = click.get_current_context(silent=True)
    return bool(context and context.meta.get(_NEWEST))


def _remember_newest(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    ctx.meta[_NEWEST] = value


def config_option(command: F) -> F:
    """`--config FILE`; a command that has a table in the file takes what is not given from there."""
    return click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        expose_value=False,
        callback=_use_settings,
        is_eager=True,
        help="Settings file.  [env: HOLDFAST_CONFIG; default: holdfast.toml here, of the user, in /etc]",
    )(command)


def _use_settings(ctx: click.Context, option: click.Parameter, file: Path | None) -> None:
    if ctx.resilient_parsing:
        return
    if file is not None:
        _set_config_file(ctx, str(file.absolute()))
    if ctx.command.name in ("serve", "worker"):
        from holdfast.cli.flag_defaults import flag_defaults

        ctx.default_map = flag_defaults(ctx)


def _set_config_file(ctx: click.Context, file: str) -> None:
    """Set HOLDFAST_CONFIG for this command and for every process it starts."""
    before = os.environ.get("HOLDFAST_CONFIG")
    os.environ["HOLDFAST_CONFIG"] = file

    def restore() -> None:
        if before is None:
            os.environ.pop("HOLDFAST_CONFIG", None)
        else:
            os.environ["HOLDFAST_CONFIG"] = before

    ctx.call_on_close(restore)


class Pair(click.ParamType[tuple[str, str]]):
    """K=V."""

    name = "k=v"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not equals or not key:
            self.fail(f"{value!r} is not a pair; write it as NAME=VALUE.", param, ctx)
        return key, text
