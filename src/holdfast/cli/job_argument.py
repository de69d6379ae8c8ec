"""The id of a job as an argument, with the shell's completion."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from holdfast.cli.session import run
from holdfast.cli.terminal_escape import plain
from holdfast.core.errors import HoldfastError
from holdfast.core.job import Job
from holdfast.ports import Registry

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., object])

_NEWEST = 500


def job_argument(command: F) -> F:
    """The id of one job, as `job_id`."""
    return click.argument("job_id", metavar="JOB", shell_complete=complete_jobs)(command)


def complete_jobs(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Return the newest jobs whose id begins so, with state and name; none when they cannot be read."""
    from click.shell_completion import CompletionItem

    async def newest(registry: Registry) -> tuple[Job, ...]:
        return (await registry.list_jobs(limit=_NEWEST, newest=True)).jobs

    try:
        jobs = run(newest)
    except (HoldfastError, OSError):
        return []
    return [
        CompletionItem(job.job_id, help=f"{job.state} {plain(job.spec.name or job.spec.kind)}")
        for job in jobs
        if job.job_id.startswith(incomplete)
    ]
