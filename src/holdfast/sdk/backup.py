"""Backup and restore of a store in a file.

Both write a draft beside the target, which other users cannot read, and rename it to the target when it is
complete and synced. A draft is called `<target>.<some letters>.unfinished` or `….restoring`; only a killed
process leaves one behind, with its log, and both may be removed.
"""

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

from holdfast.core.errors import Conflict, Corrupt, HoldfastError, Invalid, NotFound, Unavailable
from holdfast.failpoint import failpoint
from holdfast.sdk.open import NO_STORE
from holdfast.sdk.store_url import StoreUrl
from holdfast.stores.sqlite.restore import locked_for_restore, restore_copy
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.system import SystemIds, flush_to_disk

_COMPANIONS = ("-wal", "-shm", "-journal")
_LOGS = ("-wal", "-journal")
"""Companions that may hold commits which the file beside them does not have."""
_NOT_ALLOWED = (
    *(errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR),
    *(errno.ENAMETOOLONG, errno.ELOOP),
)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""The errors of a file system without hard links, such as that of many memory sticks."""


class Restored(Struct, frozen=True):
    """The result of a restore: the number of jobs, and how many of them lost their owners."""

    jobs: int
    requeued: int


async def backup(url: str, target: Path) -> None:
    """Write a consistent copy of the store to a new file, while other processes go on using it.

    It has the permissions of the store. A file that exists is never overwritten (`Conflict`).
    A backup that is killed may leave its draft, `<target>.<some letters>.unfinished`.
    """
    source = StoreUrl(url).file
    _check_backup(source, target)
    with _draft(target, "unfinished") as draft:
        await _copy(source, draft, target)
        failpoint("backup.copied")
        with _translate_errors(target, "cannot be written"):
            _copy_permissions(draft, source)
            _sync(draft)
            _link(draft, target)
    _sync_name(target)
    failpoint("backup.synced")


async def restore(source: Path, url: str, *, force: bool = False) -> Restored:
    """Make the store of `url` from a backup, with every owner fenced that the backup does not know.

    Every fencing token is raised by 2^40, so that no grant made after the backup can write; jobs that
    were leased are queued again; cursors from before are refused. Only with `force` is a store replaced,
    or the log of an earlier one; `Conflict` when a process uses it. The new store has the permissions of the
    old one, else those of the backup. A restore that is killed may leave its draft,
    `<store>.<some letters>.restoring`.
    """
    target = _file(StoreUrl(url).file)
    there = _check_restore(source, target, force=force)
    with _draft(target, "restoring") as draft:
        restored = await restore_copy(source, draft, SystemIds())
        failpoint("restore.drafted")
        with _translate_errors(target, "cannot be written"):
            _copy_permissions(draft, target if there else source)
            _sync(draft)
        _put_in_place(draft, target, there=there)
    _sync_name(target)
    failpoint("restore.synced")
    return Restored(*restored)


def _check_backup(source: Path, target: Path) -> None:
    if "://" in str(target):
        raise Invalid(f"{target} is a URL; a backup goes to a plain file, such as backup.db.")
    with _translate_errors(source, "cannot be read"):
        if not source.exists():
            raise NotFound(f"There is no store at {source}.", advice=NO_STORE)
    with _translate_errors(target, "cannot be written"):
        _check_folder(target)
        if target.exists():
            raise Conflict(f"{target} exists already; name another file.")


def _file(path: Path) -> Path:
    """Return the target of a link: that is the file which SQLite opens, and keeps a log beside."""
    with _translate_errors(path, "cannot be read"):
        return path.resolve() if path.is_symlink() else path


def _check_restore(source: Path, target: Path, *, force: bool) -> bool:
    """Return whether there is a store to be replaced."""
    with _translate_errors(source, "cannot be read"):
        if not source.exists():
            raise NotFound(f"There is no backup at {source}.")
    with _translate_errors(target, "cannot be written"):
        _check_folder(target)
        there = target.exists()
        if there and not force:
            raise Conflict(f"{target} exists already; restore to another file, or use --force.")
        if there and target.samefile(source):
            raise Invalid("The backup and the store are the same file.")
        logs = [log.name for log in _beside(target, _LOGS) if log.exists()]
        if logs and not there and not force:
            raise Conflict(
                f"{target} does not exist, but its log {logs[0]} exists: it may hold the last commits of a"
                f" store that was moved. Move {target.name} back, or restore to another file; --force"
                " removes the log."
            )
    return there


def _check_folder(target: Path) -> None:
    if not target.absolute().parent.is_dir():
        raise Invalid(f"The folder {target.absolute().parent} does not exist; make it first.")


@contextmanager
def _draft(target: Path, ending: str) -> Iterator[Path]:
    """A context with an empty file of its own beside the target; at the end the file is gone."""
    with _translate_errors(target, "cannot be written"):
        descriptor, name = tempfile.mkstemp(
            dir=target.absolute().parent, prefix=f"{target.name[:40]}.", suffix=f".{ending}"
        )
        os.close(descriptor)
    draft = Path(name)
    try:
        yield draft
    except BaseException:
        for file in (draft, *_beside(draft)):
            with suppress(OSError):  # the first error is the one to raise
                file.unlink(missing_ok=True)
        raise
    with _translate_errors(draft, f"cannot be removed, though {target} is in its place", "unknown"):
        _clear(draft)
        draft.unlink(missing_ok=True)


async def _copy(source: Path, draft: Path, target: Path) -> None:
    store = await SqliteStore.open(source, ids=SystemIds())
    try:
        await store.backup(str(draft))
    except Corrupt:
        raise
    except HoldfastError as error:
        words = error.__cause__ or error.message
        raise Unavailable(f"{source} could not be copied to {target}: {words}.") from error
    finally:
        await store.close()


def _copy_permissions(draft: Path, like: Path) -> None:
    """Give the draft the permissions of `like`, and its owner and group where that is allowed.

    The owner can always read and write it; a different group gets the permissions of others.
    """
    found = os.stat(like)
    for owner in (found.st_uid, -1):
        with suppress(OSError):
            os.chown(draft, owner, found.st_gid)
            break
    mode = (found.st_mode & 0o777) | stat.S_IRUSR | stat.S_IWUSR
    if os.stat(draft).st_gid != found.st_gid:
        mode = (mode & ~0o070) | (mode & 0o007) << 3
    with suppress(PermissionError):  # a file system without permissions
        os.chmod(draft, mode)


def _put_in_place(draft: Path, target: Path, *, there: bool) -> None:
    """Make the draft the store, while no process can have the old one open."""
    with (
        locked_for_restore(target) if there else nullcontext(),
        _translate_errors(target, "cannot be replaced" if there else "cannot be written"),
    ):
        failpoint("restore.closed_off")
        _clear(target)
        if there:
            os.replace(draft, target)
        else:
            _link(draft, target)
        failpoint("restore.replaced")


def _link(draft: Path, target: Path) -> None:
    """Give the draft the name of the target. Unlike a rename, this replaces nothing."""
    try:
        os.link(draft, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
        os.replace(draft, target)


def _clear(path: Path) -> None:
    """Remove the log that a killed process may have left beside a store: it fits no other file."""
    for file in _beside(path):
        file.unlink(missing_ok=True)


def _beside(path: Path, suffixes: tuple[str, ...] = _COMPANIONS) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in suffixes]


def _sync_name(target: Path) -> None:
    """Make the name durable. The file is durable already, and must not be opened here: closing it would
    drop the locks of every connection that this process has to it."""
    with _translate_errors(target, "is in its place, but may not outlast a power cut", "unknown"):
        _sync(target.absolute().parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        flush_to_disk(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _translate_errors(path: Path, words: str, applied: Literal["no", "unknown"] = "no") -> Iterator[None]:
    """Translate errors of the system into those of holdfast."""
    try:
        yield
    except FileExistsError as error:
        raise Conflict(f"{path} exists already; name another file.") from error
    except OSError as error:
        message = f"{path} {words}: {error.strerror or error}."
        if applied == "no" and error.errno in _NOT_ALLOWED:
            raise Invalid(message) from error
        raise Unavailable(message, applied=applied) from error
