"""A job as an argument: by its id, a short form of it, its name, or @last; with the shell's completion."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from holdfast.cli.named_job import LAST, job_id_of, job_ids_of
from holdfast.cli.options import newest_option
from holdfast.cli.session import run
from holdfast.cli.terminal_escape import plain
from holdfast.core.errors import HoldfastError
from holdfast.core.job import Job
from holdfast.core.short_ids import short_id
from holdfast.ports import Registry

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["complete_jobs", "job_argument", "job_id_of", "job_ids_of", "newest_option", "run_for_job"]

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")

_NEWEST = 500


def job_argument(command: F) -> F:
    """One job as it was named, as `job_id`: `run_for_job` finds it."""
    return click.argument("job_id", metavar="JOB", shell_complete=complete_jobs)(newest_option(command))


def run_for_job(name: str, work: Callable[[Registry, str], Awaitable[T]]) -> T:
    """Return what `work` returns for the chosen registry and the id of the job of this name."""

    async def named(registry: Registry) -> T:
        return await work(registry, await job_id_of(registry, name))

    return run(named)


def complete_jobs(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the newest jobs of which the short id, the name or the whole id begins so, with state and name;
    none when they cannot be read."""
    from click.shell_completion import CompletionItem

    async def newest(registry: Registry) -> tuple[Job, ...]:
        return (await registry.list_jobs(limit=_NEWEST, newest=True)).jobs

    try:
        jobs = run(newest)
    except (HoldfastError, OSError):
        return []
    found = {
        word: f"{job.state} {plain(job.spec.name or job.spec.kind)}"
        for job in jobs
        for word in _words(job, incomplete)
    }
    if jobs and incomplete and LAST.startswith(incomplete):
        found[LAST] = "the newest job"
    return [CompletionItem(word, help=text) for word, text in found.items()]


def _words(job: Job, incomplete: str) -> Sequence[str]:
    """Return the words for this job that begin so: the whole id only where the short one does not."""
    name = job.spec.name or ""
    names = [name] if incomplete and name.startswith(incomplete) and not set(name) & _SPECIAL else []
    ids = [one for one in (short_id(job.job_id), job.job_id) if one.startswith(incomplete)]
    return [*names, *ids[:1]]


_SPECIAL = frozenset(" \t\n\"'\\$`&|;<>(){}[]*?!#~")
"""Characters of a name that a shell would not leave as they are."""
