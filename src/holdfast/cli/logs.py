"""`holdfast logs`: what a job wrote."""

import click

from holdfast.cli.exits import outcome_exit
from holdfast.cli.options import job_argument, store_option
from holdfast.cli.output import Output, follow_output, print_output
from holdfast.cli.session import run

STREAMS = ("stdout", "stderr", "log", "terminal")


@click.command()
@job_argument
@click.option("--follow", "-f", is_flag=True, help="Go on until the job ends; exit as it does.")
@click.option("--attempt", type=int, metavar="N", help="Only this attempt.")
@click.option("--stream", type=click.Choice(STREAMS), help="Only this stream.")
@click.option("--timestamps", "-t", is_flag=True, help="Begin every line with its time (UTC).")
@store_option
def logs(
    job_id: str, *, follow: bool, attempt: int | None, stream: str | None, timestamps: bool
) -> None:
    """Print what a job wrote: its stdout to stdout, its stderr to stderr.

    A pipe or file gets the bytes exactly as the job wrote them. On a terminal, everything but text
    and colours is taken out, so that no output can act on your terminal.
    """
    output = Output(attempt=attempt, stream=stream, timestamps=timestamps)
    if not follow:
        run(lambda registry: print_output(registry, job_id, output))
        return
    job = run(lambda registry: follow_output(registry, job_id, output))
    raise SystemExit(outcome_exit(job))
