"""`holdfast backup` and `holdfast restore`: a copy of the store, and a store from a copy."""

import asyncio
from pathlib import Path

import click

from holdfast.cli.options import chosen_store, store_option
from holdfast.cli.terminal import count, say
from holdfast.cli.terminal_escape import plain
from holdfast.sdk import backup as copies
from holdfast.sdk.open import check_exists


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@store_option
def backup(file: Path) -> None:
    """Copy the store to the new file FILE, consistently, while workers keep using it."""
    check_exists(chosen_store())
    asyncio.run(copies.backup(chosen_store(), file))
    say(f"Wrote {plain(str(file))}, {count(file.stat().st_size, 'byte')}.")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Replace the existing store. Stop its workers first.")
@store_option
def restore(file: Path, *, force: bool) -> None:
    """Create the store from the backup FILE.

    Every fencing token is raised by 2^40, so that no owner from before the restore can write any
    more, here or to a service that checks tokens. Jobs that were leased are queued again.
    """
    restored = asyncio.run(copies.restore(file, chosen_store(), force=force))
    say(f"Restored {count(restored.jobs, 'job')} to {plain(chosen_store())}.")
    if restored.requeued:
        say(f"Queued again, because an owner held it: {count(restored.requeued, 'job')}.")
    say("Every fencing token is raised by 2^40: no owner from before can write any more.")
