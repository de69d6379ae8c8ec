"""`holdfast logs`: what a job wrote."""

import click

from holdfast.cli.exit_codes import outcome_exit
from holdfast.cli.job_argument import job_argument, run_for_job
from holdfast.cli.log_printer import LogPrinter, follow_logs, print_logs
from holdfast.cli.options import store_option

STREAMS = ("stdout", "stderr", "log", "terminal")


@click.command()
@job_argument
@click.option("--follow", "-f", is_flag=True, help="Follow until the job ends; exit with its exit code.")
@click.option("--attempt", type=int, metavar="N", help="Only this attempt.")
@click.option("--stream", type=click.Choice(STREAMS), help="Only this stream.")
@click.option("--timestamps", "-t", is_flag=True, help="Begin every line with its time (UTC).")
@store_option
def logs(job_id: str, *, follow: bool, attempt: int | None, stream: str | None, timestamps: bool) -> None:
    """Print what a job wrote: its stdout to stdout, its stderr to stderr.

    A pipe or file gets the bytes exactly as the job wrote them. On a terminal, everything but text
    and colours is removed, so that no output can control your terminal.
    """
    printer = LogPrinter(attempt=attempt, stream=stream, timestamps=timestamps)
    if not follow:
        run_for_job(job_id, lambda registry, found: print_logs(registry, found, printer))
        return
    job = run_for_job(job_id, lambda registry, found: follow_logs(registry, found, printer))
    raise SystemExit(outcome_exit(job))
