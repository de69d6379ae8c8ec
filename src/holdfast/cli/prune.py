"""`holdfast prune`: remove old jobs and old output."""

from datetime import timedelta
from functools import partial

import click

from holdfast.cli.bulk import at_prompt
from holdfast.cli.durations import Duration
from holdfast.cli.options import chosen_store, store_option
from holdfast.cli.session import run
from holdfast.cli.terminal import confirm, count, say
from holdfast.cli.terminal_escape import plain
from holdfast.core.explanation import format_duration
from holdfast.ports import PruneResult, Registry
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
@click.option("--dry-run", is_flag=True, help="Only say how much would be removed.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@store_option
def prune(*, older_than: timedelta, output_older_than: timedelta | None, dry_run: bool, yes: bool) -> None:
    """Remove ended jobs with all their events, and old output. This cannot be undone.

    Jobs that have not ended stay, and what stays can still be verified. On a terminal it says how much
    that is, and asks first.

    \b
      holdfast prune --older-than 30d --output-older-than 7d
    """
    output = older_than if output_older_than is None else output_older_than

    async def work(registry: Registry, *, dry_run: bool = False) -> PruneResult:
        return await registry.prune(older_than=older_than, output_older_than=output, dry_run=dry_run)

    asks = not yes and at_prompt()
    if dry_run or asks:
        found = run(partial(work, dry_run=True))
        jobs, pieces = count(found.jobs, "job"), f"{count(found.events, 'piece')} of output"
        words = f"{jobs} that ended more than {format_duration(older_than)} ago, with all their events, and"
        words += f" {pieces} of other jobs that is older than {format_duration(output)}"
        if dry_run:
            say(f"Would remove {words}; nothing was changed.")
            return
        if not found.jobs and not found.events:
            say("There is nothing as old as that; nothing was removed.")
            return
        confirm(f"Remove from {plain(shown_url(chosen_store()))} {words}?")
    pruned = run(work)
    say(f"Removed {count(pruned.jobs, 'job')} and {count(pruned.events, 'event')}.")
