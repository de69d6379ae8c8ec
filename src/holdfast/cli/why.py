"""`holdfast why`: why a job is in its state."""

import click

from holdfast.cli.job_argument import job_argument, run_for_job
from holdfast.cli.options import store_option
from holdfast.cli.terminal import say
from holdfast.cli.terminal_escape import plain


@click.command()
@job_argument
@store_option
def why(job_id: str) -> None:
    """Explain in a sentence or two why a job is in its state, and what happens next."""
    say(plain(run_for_job(job_id, lambda registry, found: registry.why(found))))
