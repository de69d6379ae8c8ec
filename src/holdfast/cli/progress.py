"""A progress bar on the terminal while the outputs of a job are validated."""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from holdfast.cli.terminal import console, on_terminal
from holdfast.core.job import Job
from holdfast.ports import Registry
from holdfast.system import SystemClock
from holdfast.worker.tasks import stop

if TYPE_CHECKING:
    from rich.progress import Progress

REFRESH_SECONDS = 0.25


async def with_progress_bar(registry: Registry, job_id: str, validation: Coroutine[Any, Any, Job]) -> Job:
    """Return the job that the validation returns; meanwhile show its progress on a terminal."""
    if not on_terminal(err=True):
        return await validation
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(err=True), transient=True) as progress:
        ticking = asyncio.create_task(_tick(registry, job_id, progress))
        try:
            return await validation
        finally:
            await stop(ticking)


async def _tick(registry: Registry, job_id: str, progress: "Progress") -> None:
    """Show the progress that the validator reports, here or at a server."""
    clock = SystemClock()
    bar = progress.add_task("", total=None, visible=False)
    while True:
        await clock.sleep(REFRESH_SECONDS)
        check = (await registry.status(job_id)).check
        if check is not None and check.total:
            progress.update(bar, completed=check.done, total=check.total, visible=True)
