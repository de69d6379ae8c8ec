"""Backups: whole or not there, told by their name; and who may read what is written."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from backup_place import Place, at, fail_nth, mode_of

from holdfast.core.errors import Conflict, Invalid, Unavailable
from holdfast.failpoint import arm
from verify.faulty_disk import Fault, FaultyDisk

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
NOBODY = 65534


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    yield Place(tmp_path)
    arm(None)


def test_two_backups_to_one_name_do_not_share_a_draft(place: Place, tmp_path: Path) -> None:
    target = tmp_path / "both.db"
    at("backup.copied", lambda: place.backup(target))

    with pytest.raises(Conflict, match=r"both\.db exists already"):
        place.backup(target)

    assert place.jobs(target) == ["old"]
    assert place.files() == ["both.db", "copy.db", "jobs.db"]


def test_a_backup_goes_to_a_disk_without_hard_links_and_overwrites_nothing_there(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(draft: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_links)
    place.backup(tmp_path / "stick.db")
    at("backup.copied", lambda: (tmp_path / "mine.db").write_text("mine"))

    with pytest.raises(Conflict, match=r"mine\.db exists already"):
        place.backup(tmp_path / "mine.db")

    assert place.jobs(tmp_path / "stick.db") == ["old"]
    assert (tmp_path / "mine.db").read_text() == "mine"
    assert place.files() == ["copy.db", "jobs.db", "mine.db", "stick.db"]


def test_nobody_else_can_read_a_draft(place: Place) -> None:
    modes: dict[str, int] = {}

    def hook(name: str) -> None:
        for file in (*place.folder.glob("*.restoring*"), *place.folder.glob("*.unfinished*")):
            modes[f"{name} {file.suffix}"] = mode_of(file)
        if name == "restore.drafted":  # what comes next gives it the permissions of the store
            arm(None)

    arm(hook)
    place.backup(place.folder / "again.db")
    place.restore()

    assert {"backup.copied .unfinished", "sqlite.committed .restoring-wal"} <= modes.keys()
    assert set(modes.values()) == {0o600}


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_backup_and_store_keep_the_permissions_of_the_store(place: Place, mode: int) -> None:
    place.store.chmod(mode)
    place.copy.unlink()

    place.backup(place.copy)
    place.restore()

    assert (mode_of(place.copy), mode_of(place.store)) == (mode, mode)


@pytest.mark.parametrize(("mode", "expected"), [(0o600, 0o600), (0o440, 0o640)])
def test_a_new_store_has_the_permissions_of_the_backup_and_can_be_written(
    place: Place, mode: int, expected: int
) -> None:
    place.store.unlink()
    place.copy.chmod(mode)

    place.restore(force=False)

    assert mode_of(place.store) == expected


@ROOT_ONLY
def test_a_restored_store_belongs_to_whom_it_belonged(place: Place) -> None:
    os.chown(place.store, NOBODY, NOBODY)

    place.restore()

    found = place.store.stat()
    assert (found.st_uid, found.st_gid) == (NOBODY, NOBODY)


@ROOT_ONLY
def test_a_group_that_is_not_the_stores_gets_no_more_than_others(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, owner: int, group: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    os.chown(place.store, -1, NOBODY)
    place.store.chmod(0o664)
    monkeypatch.setattr(os, "chown", refused)

    place.restore()

    assert mode_of(place.store) == 0o644


def test_a_backup_that_cannot_be_synced_or_named_is_not_there(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for call in ("fsync", "link", "chmod"):
        with monkeypatch.context() as patched:
            fail_nth(patched, call, 1)
            with pytest.raises(
                Unavailable, match=r"new\.db cannot be written: Input/output"
            ) as told:
                place.backup(tmp_path / "new.db")

        assert told.value.applied == "no"
        assert place.files() == ["copy.db", "jobs.db"]


def test_a_backup_whose_name_cannot_be_synced_is_there_but_not_for_sure(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_nth(monkeypatch, "fsync", 2)

    with pytest.raises(Unavailable, match=r"new\.db is in its place, but") as told:
        place.backup(tmp_path / "new.db")

    assert told.value.applied == "unknown"
    assert place.jobs(tmp_path / "new.db") == ["old"]
    assert place.files() == ["copy.db", "jobs.db", "new.db"]


@pytest.mark.parametrize("target", ["/proc/new.db", "/sys/new.db", f"/tmp/{'n' * 300}"])
def test_a_backup_that_cannot_be_made_is_told_by_its_own_name(place: Place, target: str) -> None:
    with pytest.raises(Invalid, match=f"^{target} cannot be written: "):
        place.backup(Path(target))


def test_a_disk_that_is_full_under_the_backup_is_told_by_the_backups_name(place: Place) -> None:
    with FaultyDisk() as disk:
        disk.arm(None)
        place.backup(place.folder / "first.db")
        for number in range(1, disk.calls["xWrite"] + 1):
            disk.arm(Fault("xWrite", number, apsw.SQLITE_FULL))
            try:
                place.backup(place.folder / f"full-{number}.db")
            except Unavailable as error:
                told = error.message
            disk.free()

    assert f"could not be copied to {place.folder}/full-" in told
    assert "disk is full" in told
