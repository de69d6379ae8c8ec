"""`holdfast cancel`: ask a job to stop, or end it now."""

import click

from holdfast.cli.bulk import run_many
from holdfast.cli.bulk_options import Chosen, bulk_options
from holdfast.cli.job_argument import run_for_job
from holdfast.cli.options import store_option
from holdfast.cli.terminal import say
from holdfast.cli.terminal_escape import plain
from holdfast.core.bulk import BulkVerb
from holdfast.core.explanation import format_duration
from holdfast.core.job import Job
from holdfast.ports import Registry
from holdfast.sdk.defaults import actor


@click.command()
@bulk_options
@click.option("--hard", is_flag=True, help="End the job now; do not wait for its owner.")
@click.option("--reason", help="Why; stored with the job.")
@store_option
def cancel(chosen: Chosen, *, hard: bool, reason: str | None) -> None:
    """Cancel one job or many.

    A job without an owner is cancelled at once. The owner of a running job is asked to stop, and the job
    ends when it has stopped; with --hard the job ends now, and whatever its owner still reports is refused.
    A worker of holdfast then kills the process with its next heartbeat; other workers may let it run on.

    Of many jobs, those that have ended are passed over. On a terminal it asks first, with their number,
    unless they are named. To repeat it does no harm.

    \b
      holdfast cancel JOB JOB
      holdfast cancel --queue bulk --state queued
    """
    job_id = chosen.one
    if job_id is None:
        raise SystemExit(run_many(BulkVerb.CANCEL, chosen, force=hard, reason=reason))
    told = run_for_job(job_id, lambda registry, found: _cancel(registry, found, hard=hard, reason=reason))
    say(plain(told))


async def _cancel(registry: Registry, job_id: str, *, hard: bool, reason: str | None) -> str:
    before = await registry.status(job_id)
    job = await registry.cancel(job_id, actor=actor(), hard=hard, reason=reason)
    if job.ended:
        return _ended(before, job)
    if job.lease is None:
        return f"Job {job_id} is being handed to its executor and is cancelled right after that."
    left = job.lease.expires_at - await registry.now()
    if left.total_seconds() <= 0:
        return (
            f"Job {job_id} is cancelled as soon as a worker claims from the queue: the lease of its"
            f" owner {job.owner} has lapsed. To end it now: holdfast cancel --hard {job_id}"
        )
    asked = "was asked before" if before.cancel is not None else "is asked"
    return (
        f"Job {job_id} goes on for now: {job.owner} {asked} to stop and learns of it when it next"
        " renews its lease. The job ends when it stops, or when its lease ends: in"
        f" {format_duration(left)}, unless renewed."
        f" To end it now: holdfast cancel --hard {job_id}"
    )


def _ended(before: Job, job: Job) -> str:
    if not before.leased:
        return f"Job {job.job_id} is cancelled; it had no owner."
    return (
        f"Job {job.job_id} is cancelled, and whatever {before.owner} still reports is refused."
        " A worker of holdfast kills the process with its next heartbeat; other workers may let it run on."
    )
