"""Backups: whole or not there, told by their name; and who may read what is written."""

import errno
import os
from pathlib import Path

import apsw
import pytest

from holdfast.core.errors import Conflict, Invalid, Unavailable
from holdfast.failpoint import arm
from tests.stores.sqlite.backup_folder import BackupFolder, at, fail_nth, mode_of
from verify.faulty_disk import Fault, FaultyDisk

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
NOBODY = 65534


def test_two_backups_to_one_name_do_not_share_a_draft(backups: BackupFolder, tmp_path: Path) -> None:
    target = tmp_path / "both.db"
    at("backup.copied", lambda: backups.backup(target))

    with pytest.raises(Conflict, match=r"both\.db exists already"):
        backups.backup(target)

    assert backups.jobs(target) == ["old"]
    assert backups.files() == ["both.db", "copy.db", "jobs.db"]


def test_a_backup_goes_to_a_disk_without_hard_links_and_overwrites_nothing_there(
    backups: BackupFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(draft: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_links)
    backups.backup(tmp_path / "stick.db")
    at("backup.copied", lambda: (tmp_path / "mine.db").write_text("mine"))

    with pytest.raises(Conflict, match=r"mine\.db exists already"):
        backups.backup(tmp_path / "mine.db")

    assert backups.jobs(tmp_path / "stick.db") == ["old"]
    assert (tmp_path / "mine.db").read_text() == "mine"
    assert backups.files() == ["copy.db", "jobs.db", "mine.db", "stick.db"]


def test_nobody_else_can_read_a_draft(backups: BackupFolder) -> None:
    modes: dict[str, int] = {}

    def hook(name: str) -> None:
        for file in (*backups.folder.glob("*.restoring*"), *backups.folder.glob("*.unfinished*")):
            modes[f"{name} {file.suffix}"] = mode_of(file)
        if name == "restore.drafted":  # what comes next gives it the permissions of the store
            arm(None)

    arm(hook)
    backups.backup(backups.folder / "again.db")
    backups.restore()

    assert {"backup.copied .unfinished", "sqlite.committed .restoring-wal"} <= modes.keys()
    assert set(modes.values()) == {0o600}


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_backup_and_store_keep_the_permissions_of_the_store(backups: BackupFolder, mode: int) -> None:
    backups.store.chmod(mode)
    backups.copy.unlink()

    backups.backup(backups.copy)
    backups.restore()

    assert (mode_of(backups.copy), mode_of(backups.store)) == (mode, mode)


@pytest.mark.parametrize(("mode", "expected"), [(0o600, 0o600), (0o440, 0o640)])
def test_a_new_store_has_the_permissions_of_the_backup_and_can_be_written(
    backups: BackupFolder, mode: int, expected: int
) -> None:
    backups.store.unlink()
    backups.copy.chmod(mode)

    backups.restore(force=False)

    assert mode_of(backups.store) == expected


@ROOT_ONLY
def test_a_restored_store_belongs_to_whom_it_belonged(backups: BackupFolder) -> None:
    os.chown(backups.store, NOBODY, NOBODY)

    backups.restore()

    found = backups.store.stat()
    assert (found.st_uid, found.st_gid) == (NOBODY, NOBODY)


@ROOT_ONLY
def test_a_group_that_is_not_the_stores_gets_no_more_than_others(
    backups: BackupFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, owner: int, group: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    os.chown(backups.store, -1, NOBODY)
    backups.store.chmod(0o664)
    monkeypatch.setattr(os, "chown", refused)

    backups.restore()

    assert mode_of(backups.store) == 0o644


def test_a_backup_that_cannot_be_synced_or_named_is_not_there(
    backups: BackupFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for call in ("fsync", "link", "chmod"):
        with monkeypatch.context() as patched:
            fail_nth(patched, call, 1)
            with pytest.raises(Unavailable, match=r"new\.db cannot be written: Input/output") as told:
                backups.backup(tmp_path / "new.db")

        assert told.value.applied == "no"
        assert backups.files() == ["copy.db", "jobs.db"]


def test_a_backup_whose_name_cannot_be_synced_is_there_but_not_for_sure(
    backups: BackupFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_nth(monkeypatch, "fsync", 2)

    with pytest.raises(Unavailable, match=r"new\.db is in its place, but") as told:
        backups.backup(tmp_path / "new.db")

    assert told.value.applied == "unknown"
    assert backups.jobs(tmp_path / "new.db") == ["old"]
    assert backups.files() == ["copy.db", "jobs.db", "new.db"]


@pytest.mark.parametrize("target", ["/proc/new.db", "/sys/new.db", f"/tmp/{'n' * 300}"])
def test_a_backup_that_cannot_be_made_is_told_by_its_own_name(backups: BackupFolder, target: str) -> None:
    with pytest.raises(Invalid, match=f"^{target} cannot be written: "):
        backups.backup(Path(target))


def test_a_disk_that_is_full_under_the_backup_is_told_by_the_backups_name(
    backups: BackupFolder,
) -> None:
    with FaultyDisk() as disk:
        disk.arm(None)
        backups.backup(backups.folder / "first.db")
        for number in range(1, disk.calls["xWrite"] + 1):
            disk.arm(Fault("xWrite", number, apsw.SQLITE_FULL))
            try:
                backups.backup(backups.folder / f"full-{number}.db")
            except Unavailable as error:
                told = error.message
            disk.free()

    assert f"could not be copied to {backups.folder}/full-" in told
    assert "disk is full" in told
