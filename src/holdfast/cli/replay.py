"""`holdfast replay`: run a job that did not succeed again, as a new job."""

import click

from holdfast.cli.job_argument import job_argument
from holdfast.cli.options import store_option
from holdfast.cli.session import run
from holdfast.cli.terminal import hint
from holdfast.sdk.defaults import actor


@click.command()
@job_argument
@store_option
def replay(job_id: str) -> None:
    """Run a job that ended without success again, as a new job, and print the new id.

    The old job stays as it is; each of the two names the other in its status.
    """
    job = run(lambda registry: registry.replay(job_id, actor=actor()))
    click.echo(job.job_id)
    if job.spec.promised_outputs:
        hint(f"It promises all outputs. For the missing ones: holdfast resume {job_id}")
    hint(f"Follow it: holdfast logs -f {job.job_id}")
