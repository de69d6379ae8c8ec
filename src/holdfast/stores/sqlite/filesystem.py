"""The filesystem under the store's file: its kind, its free space, and who may write to it.

Nothing is opened here: closing a file that is open elsewhere in this process would drop the locks of
every connection to it.
"""

import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from holdfast.ports import Finding
from holdfast.stores.sqlite.connection import LOG_BYTES_MAX

MOUNTS = Path("/proc/self/mountinfo")
FREE_BYTES_MIN = 1024**3
FREE_SHARE_MIN = 0.05
NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smbfs", "smb3", "afs", "ceph", "glusterfs", "lustre", "gpfs"),
        *("beegfs", "ocfs2", "gfs2", "orangefs", "coda", "fuse.sshfs", "fuse.s3fs"),
        *("fuse.mount-s3", "fuse.gcsfuse", "fuse.goofys", "fuse.rclone", "fuse.juicefs"),
        *("fuse.glusterfs", "fuse.ceph-fuse", "fuse.davfs", "fuse.smbnetfs"),
    }
)
FOREIGN = frozenset({"9p", "virtiofs", "vboxsf", "vmhgfs", "prl_fs", "drvfs", "fuse"})
IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})
UNSYNCED = frozenset({"nobarrier", "barrier=0"})


class Filesystem(Struct, frozen=True):
    """The kind of a filesystem, and the options it is mounted with."""

    kind: str
    options: frozenset[str]


def filesystem_of(path: Path) -> Filesystem | None:
    """Return the filesystem that holds the file; None where the system does not tell."""
    mounts = _mounts()
    return None if mounts is None else filesystem_in(mounts, path.resolve())


def is_mount_point(file: Path) -> bool:
    """Whether something is mounted at exactly this path; False where the system does not tell."""
    lines = (line.split(" ") for line in (_mounts() or "").splitlines())
    return any(len(parts) > 4 and Path(_unescaped(parts[4])) == file for parts in lines)


def _mounts() -> str | None:
    try:
        return MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None


def filesystem_in(mounts: str, file: Path) -> Filesystem | None:
    """Return the filesystem with the deepest mount point above the file; of several at one mount point the
    last, which hides the others."""
    deepest, found = -1, None
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        place, kind = before.split(" "), after.split(" ")
        if len(place) < 6 or len(kind) < 3:
            continue  # not a line that Linux writes
        point = Path(_unescaped(place[4]))
        if len(point.parts) >= deepest and file.is_relative_to(point):
            deepest = len(point.parts)
            found = Filesystem(kind[0], frozenset(f"{place[5]},{kind[2]}".split(",")))
    return found


def _unescaped(name: str) -> str:
    for code, character in (("040", " "), ("011", "\t"), ("012", "\n"), ("134", "\\")):
        name = name.replace(f"\\{code}", character)
    return name


def sharing(filesystem: Filesystem | None) -> Iterator[Finding]:
    move = "Move it to a disk of one machine: holdfast backup FILE makes a copy."
    if filesystem is None:
        words = "Any number of processes on this machine may use it, but no other machine."
        keep = "This system does not name its file systems: do not keep it on one of a network."
        yield Finding("sharing", "note", words, keep)
    elif filesystem.kind in NETWORK:
        yield Finding(
            "sharing",
            "fault",
            f"It is on a network file system ({filesystem.kind}), where several machines cannot share it:"
            " two that use it would destroy it.",
            move,
        )
    elif filesystem.kind in FOREIGN or filesystem.kind.startswith("fuse."):
        yield Finding(
            "sharing",
            "warning",
            f"It is on a file system that another system or program serves ({filesystem.kind}): whether"
            " its locks work is unknown.",
            move,
        )
    else:
        yield Finding(
            "sharing",
            "good",
            f"Any number of processes on this machine may use it ({filesystem.kind}), but no other machine.",
        )


def privileges(path: Path) -> Iterator[Finding]:
    file = path.resolve()
    troubles = [*_closed(file), *_open_to_all(file)]
    yield from troubles
    if not troubles:
        mode = stat.S_IMODE(os.stat(file).st_mode)
        who = "Only you and its group" if mode & stat.S_IWGRP else "Only you"
        yield Finding("privileges", "good", f"{who} may write it (mode {mode:04o}).")


def _closed(file: Path) -> Iterator[Finding]:
    """What this user may not write. The log and its index lie beside the file, in its folder."""
    beside = [file.with_name(file.name + suffix) for suffix in ("-wal", "-shm")]
    needs = [(one, os.R_OK | os.W_OK) for one in (file, *beside) if one is file or one.exists()]
    for one, need in (*needs, (file.parent, os.W_OK | os.X_OK)):
        if not os.access(one, need, effective_ids=os.access in os.supports_effective_ids):
            yield Finding(
                "privileges",
                "fault",
                f"You may not write {one}: with your rights the store cannot be opened.",
                f"Use it as user {os.stat(one).st_uid}, who owns it, or have the right given to you.",
            )


def _open_to_all(file: Path) -> Iterator[Finding]:
    mode = stat.S_IMODE(os.stat(file).st_mode)
    folder = stat.S_IMODE(os.stat(file.parent).st_mode)
    if mode & stat.S_IWOTH:
        words = f"Every user of this machine may change it (mode {mode:04o})."
        yield Finding("privileges", "warning", words, f"chmod o-rw {_quoted(file)}")
    elif mode & stat.S_IROTH and folder & stat.S_IXOTH:
        words = f"Every user of this machine may read its jobs and its secret (mode {mode:04o})."
        yield Finding("privileges", "note", words, f"chmod o-r {_quoted(file)}")
    if folder & stat.S_IWOTH and not folder & stat.S_ISVTX:
        words = f"Every user of this machine may replace it: mode {folder:04o} of {file.parent}."
        yield Finding("privileges", "warning", words, f"chmod o-w {_quoted(file.parent)}")


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def disk(path: Path) -> Iterator[Finding]:
    file = path.resolve()
    log = file.with_name(f"{file.name}-wal")
    log_bytes = log.stat().st_size if log.exists() else 0
    sizes = f"the file has {size(file.stat().st_size)}, its log {size(log_bytes)}"
    found = os.statvfs(file)
    free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    share = free / total if total else 1.0
    words = f"{size(free)} of {size(total)} are free ({share:.0%}); {sizes}."
    if total and (free < FREE_BYTES_MIN or share < FREE_SHARE_MIN):
        room = "Make room on the disk, or remove old jobs: holdfast prune --older-than 30d"
        yield Finding("disk", "warning", f"Only {words}", room)
    else:
        yield Finding("disk", "good", words)
    if log_bytes > LOG_BYTES_MAX:
        yield Finding(
            "disk",
            "warning",
            f"Its log has grown to {size(log_bytes)}: a process has been reading for long, or it cannot"
            " be brought into the file.",
            f"See which processes have it open, and end those that only read: fuser -v {_quoted(file)}",
        )


def size(count: float) -> str:
    """Return a number of bytes for people to read."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
