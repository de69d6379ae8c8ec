"""`holdfast cancel`: ask a job to stop, or end it now."""

import click

from holdfast.cli.options import job_argument, store_option
from holdfast.cli.safe import plain
from holdfast.cli.session import run
from holdfast.core.explain import span
from holdfast.core.job import Job
from holdfast.ports import Registry
from holdfast.sdk.caller import actor


@click.command()
@job_argument
@click.option("--hard", is_flag=True, help="End the job now; do not wait for its owner.")
@click.option("--reason", help="Why; kept with the job.")
@store_option
def cancel(job_id: str, *, hard: bool, reason: str | None) -> None:
    """Cancel a job.

    A job nobody works on is cancelled at once. For a running one the owner is asked to stop and the
    job ends when it has stopped; with --hard the job ends now and its owner is shut out. A worker of
    holdfast then kills the process when it hears of it; a worker that others wrote may let it run on.
    """
    click.echo(plain(run(lambda registry: _cancel(registry, job_id, hard=hard, reason=reason))))


async def _cancel(registry: Registry, job_id: str, *, hard: bool, reason: str | None) -> str:
    before = await registry.get(job_id)
    job = await registry.cancel(job_id, actor=actor(), hard=hard, reason=reason)
    if job.ended:
        return _ended(before, job)
    if job.lease is None:
        return f"Job {job_id} is being handed to its executor and is cancelled right after that."
    left = job.lease.expires_at - await registry.now()
    if left.total_seconds() <= 0:
        return (
            f"Job {job_id} is cancelled as soon as a worker looks at the queue: its owner"
            f" {job.owner} has let the lease lapse. To end it now: holdfast cancel --hard {job_id}"
        )
    asked = "was asked before" if before.cancel is not None else "is asked"
    return (
        f"Job {job_id} goes on for now: {job.owner} {asked} to stop and hears of it with its next"
        f" sign of life. The job ends when it stops, or when its lease ends: in {span(left)}, unless"
        " renewed."
        f" To end it now: holdfast cancel --hard {job_id}"
    )


def _ended(before: Job, job: Job) -> str:
    if not before.leased:
        return f"Job {job.job_id} is cancelled; nobody was working on it."
    return (
        f"Job {job.job_id} is cancelled, and whatever {before.owner} still reports is refused. It hears of"
        " that with its next sign of life: a worker of holdfast kills the process then; one that others"
        " wrote may let it run on."
    )
