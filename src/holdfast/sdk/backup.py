"""Backup and restore of a store in a file."""

import os
from pathlib import Path

from msgspec import Struct

from holdfast.core.errors import Conflict, Invalid, NotFound
from holdfast.failpoint import failpoint
from holdfast.sdk.open import sqlite_path
from holdfast.stores.sqlite.restoring import close_off, open_copy
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.system import SystemIds


class Restored(Struct, frozen=True):
    """What a restore found: all jobs, and how many of them were taken from their owners."""

    jobs: int
    requeued: int


async def backup(url: str, target: Path) -> None:
    """Write a consistent copy of the store to a new file, while others go on using it."""
    source = sqlite_path(url)
    _check_backup(source, target)
    draft = target.with_name(f"{target.name}.unfinished")
    draft.unlink(missing_ok=True)
    store = await SqliteStore.open(source, ids=SystemIds())
    try:
        await store.backup(str(draft))
        failpoint("backup.copied")
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    finally:
        await store.close()
    _sync(draft)
    draft.replace(target)
    _sync(target)
    failpoint("backup.synced")


async def restore(source: Path, url: str, *, force: bool = False) -> Restored:
    """Make the store of `url` from a backup, safe from every owner the backup does not know of.

    Every fencing token is raised by 2^40, so that no grant made after the backup can write; jobs that
    were leased are queued again; cursors from before are refused.
    """
    target = sqlite_path(url)
    draft = target.with_name(f"{target.name}.restoring")
    _check_restore(source, target, draft, force=force)
    restored = await open_copy(source, draft, SystemIds())
    failpoint("restore.drafted")
    if _exists(target):
        close_off(target)
    failpoint("restore.closed_off")
    _clear(target)
    draft.replace(target)
    failpoint("restore.replaced")
    _sync(target)
    failpoint("restore.synced")
    return Restored(*restored)


def _check_backup(source: Path, target: Path) -> None:
    if not source.exists():
        raise NotFound(f"There is no store at {source}.")
    if "://" in str(target):
        raise Invalid(f"{target} is a URL; a backup goes to a plain file, such as backup.db.")
    if not target.absolute().parent.is_dir():
        raise Invalid(f"The folder {target.absolute().parent} does not exist; make it first.")
    if target.exists():
        raise Conflict(f"{target} exists already; name another file.")


def _check_restore(source: Path, target: Path, draft: Path, *, force: bool) -> None:
    if not source.exists():
        raise NotFound(f"There is no backup at {source}.")
    if target.exists() and not force:
        raise Conflict(f"{target} exists already; restore to another file, or say --force.")
    if target.exists() and target.samefile(source):
        raise Invalid("The backup and the store are the same file.")
    draft.unlink(missing_ok=True)
    _clear(draft)


def _clear(path: Path) -> None:
    """Remove the log that a killed process may have left beside a store: it belongs to no other file."""
    for suffix in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _exists(path: Path) -> bool:
    return path.exists()


def _sync(path: Path) -> None:
    """Make the file and its name durable."""
    for name, flags in (
        (path, os.O_RDONLY),
        (path.absolute().parent, os.O_RDONLY | os.O_DIRECTORY),
    ):
        descriptor = os.open(name, flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
