"""The ground under a file: its file system, its disk, and who may write to it."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from holdfast.ports import Finding
from holdfast.registry.local import LocalRegistry
from holdfast.stores.sqlite import filesystem
from holdfast.stores.sqlite.store import SqliteStore
from tests.stores.sqlite.doctor_file import (
    diagnose,
    enqueue,
    finding_on,
    findings_on,
    mounted,
    owned_file,
)

NOBODY = 65534
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts, and becomes nobody")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return owned_file(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("kind", "level"),
    [
        ("nfs4", "fault"),
        ("cifs", "fault"),
        ("smb3", "fault"),
        ("fuse.sshfs", "fault"),
        ("9p", "warning"),
        ("virtiofs", "warning"),
        ("fuse.unheard-of", "warning"),
        ("fuseblk", "good"),
        ("xfs", "good"),
        ("overlay", "good"),
    ],
)
def test_what_other_machines_serve_cannot_be_shared(
    path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, level: str
) -> None:
    mounted(monkeypatch, path.parent, kind)

    finding = finding_on(diagnose(path), "sharing")

    assert finding.level == level
    assert f"({kind})" in finding.words
    assert ("several machines cannot share it" in finding.words) == (level == "fault")
    assert (finding.advice is None) == (level == "good")


def test_where_file_systems_have_no_names_that_is_said(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "MOUNTS", path.parent / "nothing")

    found = diagnose(path)

    assert finding_on(found, "sharing").level == "note"
    assert finding_on(found, "durability").level == "good"


@pytest.mark.parametrize(
    ("kind", "options", "levels", "words"),
    [
        ("tmpfs", "rw", ["warning"], "gone at reboot"),
        ("ext4", "rw,nobarrier", ["warning"], "nobarrier"),
        ("ext4", "rw,barrier=0", ["warning"], "barrier=0"),
        ("overlay", "rw", ["good", "note"], "gone with the container"),
    ],
)
def test_the_ground_may_not_keep_what_the_file_does(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    options: str,
    levels: list[str],
    words: str,
) -> None:
    mounted(monkeypatch, path.parent, kind, options)

    found = findings_on(diagnose(path), "durability")

    assert [level for level, _ in found] == levels
    assert words in found[-1][1]


@pytest.mark.skipif(
    not filesystem.MOUNTS.exists() or filesystem.filesystem_of(Path("/dev/shm/x")) is None,
    reason="this system has no /proc/self/mountinfo",
)
def test_a_link_into_real_memory_is_seen_through(tmp_path: Path) -> None:
    memory = Path(f"/dev/shm/holdfast-{os.getpid()}")
    memory.mkdir()
    try:
        link = tmp_path / "jobs.db"
        link.symlink_to(memory / "jobs.db")
        finding = finding_on(diagnose(link), "durability")
    finally:
        for file in memory.iterdir():
            file.unlink()
        memory.rmdir()

    assert finding.level == "warning"
    assert "in memory (tmpfs)" in finding.words


def test_the_deepest_mount_counts_and_of_equals_the_last() -> None:
    mounts = (
        "1 0 8:1 / / rw - ext4 /dev/a rw\n"
        "2 1 0:2 / /a\\040b rw - xfs /dev/b rw\n"
        "3 2 0:3 / /a\\040b rw,noatime - nfs4 s:/x rw,vers=4.2\n"
        "4 1 0:4 / /a rw - tmpfs tmpfs rw\n"
    )

    assert filesystem.filesystem_in(mounts, Path("/a b/jobs.db")) == filesystem.Filesystem(
        "nfs4", frozenset({"rw", "noatime", "vers=4.2"})
    )
    assert filesystem.filesystem_in(mounts, Path("/a/jobs.db")) == filesystem.Filesystem(
        "tmpfs", frozenset({"rw"})
    )
    assert filesystem.filesystem_in(mounts, Path("/ab/jobs.db")) == filesystem.Filesystem(
        "ext4", frozenset({"rw"})
    )
    assert filesystem.filesystem_in("no - such line here\n1 0 8:1 / / rw - ext4\n", Path("/jobs.db")) is None


@ROOT_ONLY
def test_a_small_disk_is_called_small(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", tmp_path], check=True)
    try:
        found = diagnose(tmp_path / "jobs.db")
    finally:
        subprocess.run(["umount", tmp_path], check=True)

    finding = finding_on(found, "disk")
    assert finding.level == "warning"
    assert "of 4.2 MB are free" in finding.words
    assert finding.advice is not None
    assert "holdfast prune" in finding.advice
    assert "tmpfs" in finding_on(found, "durability").words


@pytest.mark.parametrize(
    ("free", "total", "level"),
    [
        (4_000_000, 100_000_000, "warning"),
        (6_000_000, 100_000_000, "good"),
        (1_000_000, 10_000_000, "warning"),
        (2_000_000, 10_000_000, "good"),
        (0, 10_000_000, "warning"),
        (0, 0, "good"),
    ],
)
def test_free_room_is_measured_by_share_and_by_bytes(
    path: Path, monkeypatch: pytest.MonkeyPatch, free: int, total: int, level: str
) -> None:
    room = os.statvfs_result((1024, 1024, total, free, free, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda file: room)

    assert finding_on(diagnose(path), "disk").level == level


def test_a_log_that_a_long_reader_keeps_growing_is_noticed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "LOG_BYTES_MAX", 10_000_000)

    def grown(*, reading: bool) -> list[Finding]:
        reader = apsw.Connection(str(path))
        if reading:
            reader.execute("BEGIN").fetchall()
            reader.execute("SELECT * FROM job").fetchall()

        async def fill(registry: LocalRegistry) -> None:
            for _ in range(8):
                await enqueue(registry, size=50_000, jobs=40)

        try:
            return [f for f in diagnose(path, before=fill) if f.topic == "disk"]
        finally:
            reader.close()

    assert all("log has grown" not in finding.words for finding in grown(reading=False))
    last = grown(reading=True)[-1]
    assert last.level == "warning"
    assert "Its log has grown to 1" in last.words


@pytest.mark.parametrize(
    ("mode", "folder", "levels", "advice"),
    [
        (0o600, 0o755, ["good"], None),
        (0o660, 0o770, ["good"], None),
        (0o644, 0o700, ["good"], None),
        (0o644, 0o755, ["note"], "chmod o-r "),
        (0o666, 0o755, ["warning"], "chmod o-rw "),
        (0o600, 0o777, ["warning"], "chmod o-w "),
        (0o600, 0o1777, ["good"], None),
        (0o666, 0o777, ["warning", "warning"], "chmod o-w "),
    ],
)
def test_what_everybody_may_do_is_said(
    path: Path, mode: int, folder: int, levels: list[str], advice: str | None
) -> None:
    path.chmod(mode)
    path.parent.chmod(folder)

    found = [finding for finding in diagnose(path) if finding.topic == "privileges"]

    assert [finding.level for finding in found] == levels
    assert f"{mode:04o}" in found[0].words or f"{folder:04o}" in found[0].words
    assert (found[-1].advice or "").startswith(advice or "")
    assert (found[-1].advice is None) == (advice is None)


@pytest.fixture
def unowned() -> Iterator[Path]:
    """A file of root's in a folder of root's that others may enter; at the end we are root again."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder).resolve() / "jobs.db"
        os.seteuid(0)


@ROOT_ONLY
def test_a_file_that_we_may_not_write_is_a_fault_in_an_open_store_too(unowned: Path) -> None:
    def trouble(store: SqliteStore) -> None:
        unowned.chmod(0o644)
        os.seteuid(NOBODY)

    found = [f for f in diagnose(unowned, trouble) if f.topic == "privileges"]

    faults = [finding.words for finding in found if finding.level == "fault"]
    assert [words.partition(":")[0] for words in faults] == [
        f"You may not write {unowned}",
        f"You may not write {unowned}-wal",
        f"You may not write {unowned}-shm",
        f"You may not write {unowned.parent}",
    ]
    assert "as user 0" in (found[0].advice or "")


@ROOT_ONLY
def test_our_file_in_a_folder_that_we_may_not_write_is_a_fault(unowned: Path) -> None:
    def trouble(store: SqliteStore) -> None:
        for file in unowned.parent.iterdir():
            os.chown(file, NOBODY, NOBODY)
        os.seteuid(NOBODY)

    faults = [f.words for f in diagnose(unowned, trouble) if f.level == "fault"]

    assert [words.partition(":")[0] for words in faults] == [f"You may not write {unowned.parent}"]
