"""Backup and restore of a store in a file.

Both write a draft beside the target, readable by nobody else, and give it the target's name when it
is whole and synced. A draft is called `<target>.<some letters>.unfinished` or `….restoring`; only a
process that was killed leaves one behind, with its log, and both may be removed.
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
from holdfast.stores.sqlite.restoring import closed_off, open_copy
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.system import SystemIds

_COMPANIONS = ("-wal", "-shm", "-journal")
_LOGS = ("-wal", "-journal")
"""Companions that may hold commits which the file beside them does not have."""
_NOT_ALLOWED = (
    *(errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR),
    *(errno.ENAMETOOLONG, errno.ELOOP),
)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""What a file system without hard links answers, such as that of many memory sticks."""


class Restored(Struct, frozen=True):
    """What a restore found: all jobs, and how many of them were taken from their owners."""

    jobs: int
    requeued: int


async def backup(url: str, target: Path) -> None:
    """Write a consistent copy of the store to a new file, while others go on using it.

    It has the permissions of the store. A file that is there already is never overwritten (`Conflict`).
    A backup that is killed may leave its draft, `<target>.<some letters>.unfinished`.
    """
    source = StoreUrl(url).file
    _check_backup(source, target)
    with _draft(target, "unfinished") as draft:
        await _copy(source, draft, target)
        failpoint("backup.copied")
        with _told(target, "cannot be written"):
            _dress(draft, source)
            _sync(draft)
            _name(draft, target)
    _sync_name(target)
    failpoint("backup.synced")


async def restore(source: Path, url: str, *, force: bool = False) -> Restored:
    """Make the store of `url` from a backup, safe from every owner the backup does not know of.

    Every fencing token is raised by 2^40, so that no grant made after the backup can write; jobs that
    were leased are queued again; cursors from before are refused. Only with `force` is a store replaced,
    or a log that one has left; `Conflict` when somebody uses it. The new store has the permissions of the
    old one, else those of the backup. A restore that is killed may leave its draft,
    `<store>.<some letters>.restoring`.
    """
    target = _file(StoreUrl(url).file)
    there = _check_restore(source, target, force=force)
    with _draft(target, "restoring") as draft:
        restored = await open_copy(source, draft, SystemIds())
        failpoint("restore.drafted")
        with _told(target, "cannot be written"):
            _dress(draft, target if there else source)
            _sync(draft)
        _put_in_place(draft, target, there=there)
    _sync_name(target)
    failpoint("restore.synced")
    return Restored(*restored)


def _check_backup(source: Path, target: Path) -> None:
    if "://" in str(target):
        raise Invalid(f"{target} is a URL; a backup goes to a plain file, such as backup.db.")
    with _told(source, "cannot be read"):
        if not source.exists():
            raise NotFound(f"There is no store at {source}.", advice=NO_STORE)
    with _told(target, "cannot be written"):
        _check_folder(target)
        if target.exists():
            raise Conflict(f"{target} exists already; name another file.")


def _file(path: Path) -> Path:
    """Where a link leads to: that is the file which SQLite opens, and keeps a log beside."""
    with _told(path, "cannot be read"):
        return path.resolve() if path.is_symlink() else path


def _check_restore(source: Path, target: Path, *, force: bool) -> bool:
    """Whether there is a store to be replaced."""
    with _told(source, "cannot be read"):
        if not source.exists():
            raise NotFound(f"There is no backup at {source}.")
    with _told(target, "cannot be written"):
        _check_folder(target)
        there = target.exists()
        if there and not force:
            raise Conflict(f"{target} exists already; restore to another file, or say --force.")
        if there and target.samefile(source):
            raise Invalid("The backup and the store are the same file.")
        logs = [log.name for log in _beside(target, _LOGS) if log.exists()]
        if logs and not there and not force:
            raise Conflict(
                f"{target} is not there, but its log {logs[0]} is: it may hold the last commits of a"
                f" store that was moved. Move {target.name} back, or restore to another file; --force"
                " removes the log."
            )
    return there


def _check_folder(target: Path) -> None:
    if not target.absolute().parent.is_dir():
        raise Invalid(f"The folder {target.absolute().parent} does not exist; make it first.")


@contextmanager
def _draft(target: Path, ending: str) -> Iterator[Path]:
    """An empty file beside the target that no other call has; at the end it is gone."""
    with _told(target, "cannot be written"):
        descriptor, name = tempfile.mkstemp(
            dir=target.absolute().parent, prefix=f"{target.name[:40]}.", suffix=f".{ending}"
        )
        os.close(descriptor)
    draft = Path(name)
    try:
        yield draft
    except BaseException:
        for file in (draft, *_beside(draft)):
            with suppress(OSError):  # the error that brought us here is the one to tell
                file.unlink(missing_ok=True)
        raise
    with _told(draft, f"cannot be removed, though {target} is in its place", "unknown"):
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


def _dress(draft: Path, like: Path) -> None:
    """Give the draft the permissions of `like`, and its owner and group where we may.

    Whoever owns it can read and write it; a group that is not the same can do what others can.
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
    """Let the draft be the store, at a moment when nobody can have the old one open."""
    with (
        closed_off(target) if there else nullcontext(),
        _told(target, "cannot be replaced" if there else "cannot be written"),
    ):
        failpoint("restore.closed_off")
        _clear(target)
        if there:
            os.replace(draft, target)
        else:
            _name(draft, target)
        failpoint("restore.replaced")


def _name(draft: Path, target: Path) -> None:
    """Let the target lead to the draft's file. Unlike a rename, this replaces nothing."""
    try:
        os.link(draft, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
        os.replace(draft, target)


def _clear(path: Path) -> None:
    """Remove the log that a killed process may have left beside a store: it belongs to no other file."""
    for file in _beside(path):
        file.unlink(missing_ok=True)


def _beside(path: Path, suffixes: tuple[str, ...] = _COMPANIONS) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in suffixes]


def _sync_name(target: Path) -> None:
    """Make the name durable. The file is durable already, and must not be opened here: when it is closed
    again, the locks of any connection that this process has to it are lost."""
    with _told(target, "is in its place, but may not outlast a power cut", "unknown"):
        _sync(target.absolute().parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _told(path: Path, words: str, applied: Literal["no", "unknown"] = "no") -> Iterator[None]:
    """Turn what the system raises into what our callers can act on."""
    try:
        yield
    except FileExistsError as error:
        raise Conflict(f"{path} exists already; name another file.") from error
    except OSError as error:
        message = f"{path} {words}: {error.strerror or error}."
        if applied == "no" and error.errno in _NOT_ALLOWED:
            raise Invalid(message) from error
        raise Unavailable(message, applied=applied) from error
