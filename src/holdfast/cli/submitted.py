"""What is said of a job that was just submitted: its id, whether it is new, and what to do next."""

import click

from holdfast.cli.output_summary import is_cached
from holdfast.cli.terminal import clock, hint, note, on_terminal
from holdfast.core.job import Job
from holdfast.ports import Registry


async def show_submitted(registry: Registry, job: Job, worker: str, *, wait: bool, existed: bool) -> None:
    """Print the id of the job, and on a terminal what to do next; to who waits for it, where it waits. Of a
    job that `existed`, say so."""
    worker = f"{worker} -q {job.spec.queue}"
    if is_cached(job):
        promised = job.spec.promised_outputs
        there = f"All {promised:,} outputs are" if promised > 1 else "Its output is"
        note(f"{there} there already: nothing was run.")
    elif existed:
        note(_existing(job))
    if not wait:
        click.echo(job.job_id)
        hint(await _next_step(registry, job, worker))
    elif on_terminal(err=True) and not job.ended:
        hint(
            f"Job {job.job_id} waits for a worker; if none runs: {worker}\nCtrl-C stops waiting, not the job."
        )


def _existing(job: Job) -> str:
    now = f"it has ended ({job.state})" if job.ended else f"it is {job.state}"
    return f"Job {job.job_id} exists since {clock(job.created_at)}; {now}. Nothing was submitted."


async def _next_step(registry: Registry, job: Job, worker: str) -> str:
    if is_cached(job):
        return f"See them: holdfast outputs {job.job_id}"
    if job.ended:
        return f"See it: holdfast status {job.job_id}. To run it again, submit it under another id."
    if job.ready_at > await registry.now():
        return f"It waits until {clock(job.ready_at)}. See it: holdfast status {job.job_id}"
    return f"Execute it: {worker}\nFollow it:  holdfast logs -f {job.job_id}"
