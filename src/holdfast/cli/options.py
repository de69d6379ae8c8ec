"""What many commands take: the store, the id of a job, and pairs such as K=V."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_STORE = "holdfast.store"

F = TypeVar("F", bound=Callable[..., object])


def store_option(command: F) -> F:
    """`--store URL`, before or after the name of the command; read it with `chosen_store`."""
    return click.option(
        "--store",
        metavar="URL",
        expose_value=False,
        callback=_remember_store,
        is_eager=True,
        help="Where the jobs live.  [env: HOLDFAST_STORE; default: sqlite:///holdfast.db]",
    )(command)


def chosen_store() -> str:
    """The URL by --store, else by HOLDFAST_STORE, else the default."""
    from holdfast.sdk.caller import chosen_url

    return chosen_url(given_store())


def given_store() -> str | None:
    """The URL by --store, if it was given."""
    context = click.get_current_context(silent=True)
    given: str | None = context.meta.get(_STORE) if context else None
    return given


def _remember_store(ctx: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta[_STORE] = value


def job_argument(command: F) -> F:
    """The id of one job, as `job_id`."""
    return click.argument("job_id", metavar="JOB", shell_complete=complete_jobs)(command)


def complete_jobs(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    """Ids of jobs for the shell's completion."""
    from click.shell_completion import CompletionItem

    from holdfast.cli.session import known_jobs

    return [
        CompletionItem(job_id, help=words)
        for job_id, words in known_jobs()
        if job_id.startswith(incomplete)
    ]


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
