"""`holdfast prune`: remove old jobs and old output."""

import sys
from datetime import timedelta

import click

from holdfast.cli.durations import Duration
from holdfast.cli.options import chosen_store, store_option
from holdfast.cli.session import run
from holdfast.cli.terminal import confirm, count, on_terminal, say
from holdfast.cli.terminal_escape import plain
from holdfast.core.explanation import format_duration
from holdfast.sdk.store_url import shown_url


@click.command()
@click.option(
    "--older-than",
    type=Duration(unit=True),
    required=True,
    help="Remove jobs that ended longer ago.",
)
@click.option(
    "--output-older-than",
    type=Duration(unit=True),
    help="Remove job output older than this, also of jobs that stay.  [default: as --older-than]",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@store_option
def prune(*, older_than: timedelta, output_older_than: timedelta | None, yes: bool) -> None:
    """Remove ended jobs with all their events, and old output. This cannot be undone.

    Jobs that have not ended stay, and what stays can still be verified. On a terminal it asks
    first.

    \b
      holdfast prune --older-than 30d --output-older-than 7d
    """
    output = older_than if output_older_than is None else output_older_than
    if not yes and on_terminal() and sys.stdin.isatty():
        confirm(
            f"Remove from {plain(shown_url(chosen_store()))} all jobs that ended more than"
            f" {format_duration(older_than)} ago, and output older than {format_duration(output)}?"
        )
    pruned = run(lambda registry: registry.prune(older_than=older_than, output_older_than=output))
    say(f"Removed {count(pruned.jobs, 'job')} and {count(pruned.events, 'event')}.")
