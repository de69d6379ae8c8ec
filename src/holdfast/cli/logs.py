"""`holdfast logs`: what a job wrote."""

from datetime import datetime, timedelta

import click

from holdfast.cli.durations import Since
from holdfast.cli.exit_codes import outcome_exit
from holdfast.cli.job_argument import job_argument, run_for_job
from holdfast.cli.log_printer import LogPrinter, follow_logs, print_logs
from holdfast.cli.options import store_option
from holdfast.core.job import Job
from holdfast.core.output_part import OutputPart
from holdfast.ports import Registry

STREAMS = ("stdout", "stderr", "log", "terminal")


@click.command()
@job_argument
@click.option("--follow", "-f", is_flag=True, help="Follow until the job ends; exit with its exit code.")
@click.option("--tail", "-n", type=click.IntRange(0), metavar="N", help="Only the last N lines so far.")
@click.option(
    "--since",
    type=Since(),
    metavar="TIME",
    help="Only what was written since then: a time, or how long ago, such as 10m.",
)
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="Only this attempt.")
@click.option(
    "--stream",
    type=click.Choice(STREAMS),
    help="Only this stream; log is what a function logs, terminal that of --pty.",
)
@click.option("--timestamps", "-t", is_flag=True, help="Begin every line with its time (UTC).")
@store_option
def logs(
    job_id: str,
    *,
    follow: bool,
    tail: int | None,
    since: datetime | timedelta | None,
    attempt: int | None,
    stream: str | None,
    timestamps: bool,
) -> None:
    """Print what a job wrote: its stdout to stdout, its stderr to stderr.

    Where a further attempt begins, a line on stderr says so: which one, on which worker, and when.

    A pipe or file gets the bytes exactly as the job wrote them. On a terminal, everything but text
    and colours is removed, so that no output can control your terminal.
    """

    async def work(registry: Registry, found: str) -> Job | None:
        begin = since if not isinstance(since, timedelta) else await registry.now() - since
        part = OutputPart(tail=tail, since=begin, attempt=attempt, stream=stream)
        printer = LogPrinter(part, timestamps=timestamps)
        if follow:
            return await follow_logs(registry, found, printer)
        await print_logs(registry, found, printer)
        return None

    job = run_for_job(job_id, work)
    if job is not None:
        raise SystemExit(outcome_exit(job))
