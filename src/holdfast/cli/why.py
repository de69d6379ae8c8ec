"""`holdfast why`: why a job is where it is."""

import click

from holdfast.cli.options import job_argument, store_option
from holdfast.cli.safe import plain
from holdfast.cli.session import run


@click.command()
@job_argument
@store_option
def why(job_id: str) -> None:
    """Say in a sentence or two why a job is where it is, and what will happen next."""
    click.echo(plain(run(lambda registry: registry.why(job_id))))
