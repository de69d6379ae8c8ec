"""`holdfast rebuild`: make every record again from the log."""

import asyncio
import sys

import click

from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.options import chosen_store, store_option
from holdfast.cli.terminal import confirm, count, on_terminal, say
from holdfast.cli.terminal_escape import plain
from holdfast.ports import RebuildResult
from holdfast.sdk import rebuild as rebuilding
from holdfast.sdk.store_url import shown_url


@click.command()
@click.option("--check", is_flag=True, help="Change nothing; exit with 1 if anything differs.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@store_option
def rebuild(*, check: bool, yes: bool) -> None:
    """Make every record again from the log, in one transaction. Stop workers and servers first.

    Records that say what their log says stay as they are. A record that was missing, damaged or
    different loses what is in no event: progress, checkpoint and heartbeats. If its job is leased,
    its owner has one lease from the last event on to renew it.
    """
    if not (check or yes) and on_terminal() and sys.stdin.isatty():
        confirm(f"Make all records of {plain(shown_url(chosen_store()))} again?")
    found = asyncio.run(rebuilding.rebuild(chosen_store(), check=check))
    say(_words(found, check=check))
    if check and not found.equal:
        raise SystemExit(ExitCode.NO)


def _words(found: RebuildResult, *, check: bool) -> str:
    jobs = count(found.jobs, "job")
    if found.equal:
        return f"{jobs}: equal. Every record is what its log says."
    differences = (
        f"{count(found.missing, 'record')} missing or damaged, {found.different:,} different,"
        f" {count(found.lists, 'row')} of queues, claims, alarms, counts and locks missing or wrong"
    )
    return f"{jobs}: {'NOT equal: ' if check else 'made again. '}{differences}."
