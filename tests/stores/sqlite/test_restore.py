"""Restores: the old store or the new one, whoever comes and whatever fails."""

import errno
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

from holdfast.core.errors import Conflict, HoldfastError, Invalid, Unavailable
from holdfast.sdk.backup import restore
from tests.stores.sqlite.backup_folder import BackupFolder, at, fail_nth, in_thread
from verify.faulty_disk import Fault, FaultyDisk


def fail(path: Path) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))


def test_a_restore_unforced_keeps_the_log_of_a_store_that_was_moved(backups: BackupFolder) -> None:
    backups.leave_a_log()
    backups.store.rename(backups.folder / "aside.db")

    with pytest.raises(Conflict, match=r"jobs\.db-wal exists.*Move jobs\.db back.*--force"):
        backups.restore(force=False)

    (backups.folder / "aside.db").rename(backups.store)
    assert backups.jobs() == ["old", "acknowledged"]


def test_a_restore_by_force_removes_the_log_of_a_store_that_was_moved(
    backups: BackupFolder,
) -> None:
    backups.leave_a_log()
    backups.store.rename(backups.folder / "aside.db")

    backups.restore()

    assert backups.files() == ["aside.db", "copy.db", "jobs.db"]
    assert backups.jobs() == ["old"]


def test_nobody_opens_a_store_while_it_is_replaced(
    backups: BackupFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.stores.sqlite.connection.SECOND_LOG_SECONDS_MAX", 0)
    refused: list[HoldfastError] = []

    def come() -> None:
        with pytest.raises(HoldfastError) as raised:
            backups.enqueue("acknowledged")
        refused.append(raised.value)

    backups.leave_a_log()
    at("restore.closed_off", come)

    backups.restore()

    assert [type(error) for error in refused] == [Unavailable]
    assert backups.files() == ["copy.db", "jobs.db"]
    assert backups.jobs() == ["old"]


def test_whoever_waits_for_a_store_until_it_is_replaced_uses_the_new_one(
    backups: BackupFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.stores.sqlite.connection.SECOND_LOG_SECONDS_MAX", 60)
    waiting: list[Future[None]] = []
    waits = threading.Event()
    with ThreadPoolExecutor(1) as thread:

        def come() -> None:
            monkeypatch.setattr(apsw, "connection_hooks", [lambda connection: waits.set()])
            waiting.append(thread.submit(backups.enqueue, "acknowledged"))
            waits.wait(timeout=60)

        at("restore.closed_off", come)
        backups.restore()
        waiting[0].result(timeout=60)

    assert sorted(backups.jobs()) == ["acknowledged", "old"]
    assert backups.files() == ["copy.db", "jobs.db"]


def test_whoever_has_just_opened_the_file_that_is_replaced_cannot_use_it(
    backups: BackupFolder,
) -> None:
    at("sqlite.opened", backups.restore)

    with pytest.raises(Unavailable):
        backups.enqueue("acknowledged")

    assert backups.jobs() == ["old"]


@pytest.mark.parametrize("force", [False, True])
def test_a_store_that_is_made_during_a_restore_is_not_replaced(backups: BackupFolder, force: bool) -> None:
    backups.store.unlink()
    at("restore.closed_off", lambda: backups.enqueue("acknowledged"))

    with pytest.raises(Conflict, match=r"jobs\.db exists already"):
        backups.restore(force=force)

    assert backups.jobs() == ["acknowledged"]
    assert backups.files() == ["copy.db", "jobs.db"]


def test_two_restores_do_not_share_a_draft(backups: BackupFolder) -> None:
    at("restore.drafted", backups.restore)

    assert backups.restore().jobs == 1

    assert backups.jobs() == ["old"]
    assert backups.files() == ["copy.db", "jobs.db"]


def test_of_two_restores_at_the_last_step_one_is_refused(backups: BackupFolder) -> None:
    refused: list[str] = []

    def another() -> None:
        with pytest.raises(Conflict) as raised:
            backups.restore()
        refused.append(raised.value.message)

    at("restore.closed_off", another)

    backups.restore()

    assert [f"{backups.store} is in use" in words for words in refused] == [True]
    assert backups.jobs() == ["old"]


def test_a_restore_that_holds_a_file_without_a_name_replaces_nothing(
    backups: BackupFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace_what_was_opened(connection: apsw.Connection) -> None:
        if connection.filename == str(backups.store):
            monkeypatch.setattr(apsw, "connection_hooks", [])
            backups.restore()
            backups.enqueue("acknowledged")

    monkeypatch.setattr(apsw, "connection_hooks", [replace_what_was_opened])

    with pytest.raises(Conflict, match="in use"):
        backups.restore()

    assert backups.jobs() == ["old", "acknowledged"]


def test_a_damaged_store_is_replaced_together_with_its_log(backups: BackupFolder) -> None:
    backups.leave_a_log()
    backups.store.write_bytes(b"this is no database" * 1000)
    (backups.folder / "jobs.db-wal").write_bytes(b"nor is this a log" * 1000)

    backups.restore()

    assert backups.jobs() == ["old"]
    assert backups.files() == ["copy.db", "jobs.db"]


def test_a_restore_through_a_link_replaces_the_file_it_leads_to(backups: BackupFolder) -> None:
    (backups.folder / "disk").mkdir()
    real = backups.folder / "disk" / "real.db"
    backups.enqueue("new")
    backups.store.rename(real)
    backups.store.symlink_to(real)

    backups.restore()

    assert backups.store.is_symlink()
    assert backups.jobs(real) == ["old"]


POINTS = ("copied", "epoch_raised", "floor_raised", "locks_freed", "owners_fenced", "drafted")


@pytest.mark.parametrize("point", [*(f"restore.{name}" for name in POINTS), "restore.closed_off"])
def test_a_restore_that_fails_leaves_the_old_store_and_no_draft(backups: BackupFolder, point: str) -> None:
    backups.leave_a_log()
    at(point, lambda: fail(backups.store))

    with pytest.raises((OSError, Unavailable)):
        backups.restore()

    assert backups.jobs() == ["old", "acknowledged"]
    assert backups.files() == ["copy.db", "jobs.db"]


def test_a_restore_that_is_refused_leaves_no_draft_and_names_the_backup(
    backups: BackupFolder,
) -> None:
    connection = apsw.Connection(str(backups.copy))
    connection.pragma("user_version", 99)
    connection.close()

    with pytest.raises(Invalid, match=r"copy\.db was written by a newer holdfast"):
        backups.restore()

    assert backups.files() == ["copy.db", "jobs.db"]


def test_a_draft_that_somebody_looks_at_is_refused_at_once_and_told_truly(
    backups: BackupFolder,
) -> None:
    looking: list[apsw.Connection] = []

    def look() -> None:
        [draft] = backups.folder.glob("*.restoring")
        looking.append(apsw.Connection(str(draft)))
        looking[0].execute("BEGIN; SELECT * FROM meta").fetchall()

    at("restore.owners_fenced", look)

    with pytest.raises(Conflict, match=r"\.restoring is in use"):
        backups.restore()

    looking[0].close()
    assert backups.jobs() == ["old"]
    assert backups.files() == ["copy.db", "jobs.db"]


@pytest.mark.parametrize(
    ("call", "number", "applied"),
    [("fsync", 1, "no"), ("replace", 1, "no"), ("fsync", 2, "unknown")],
)
def test_a_restore_says_whether_the_old_store_is_still_there(
    backups: BackupFolder, monkeypatch: pytest.MonkeyPatch, call: str, number: int, applied: str
) -> None:
    backups.leave_a_log()
    fail_nth(monkeypatch, call, number)

    with pytest.raises(Unavailable, match=r"jobs\.db .*: Input/output error") as told:
        backups.restore()

    assert told.value.applied == applied
    assert backups.jobs() == (["old", "acknowledged"] if applied == "no" else ["old"])
    assert backups.files() == ["copy.db", "jobs.db"]


def test_a_restore_to_a_folder_that_is_not_there_names_the_folder(backups: BackupFolder) -> None:
    with pytest.raises(Invalid, match=r"The folder .*/nowhere does not exist"):
        in_thread(restore(backups.copy, f"sqlite:///{backups.folder}/nowhere/jobs.db"))


def test_a_disk_that_is_full_under_the_store_is_told_by_its_folder(backups: BackupFolder) -> None:
    with FaultyDisk() as disk:
        disk.arm(Fault("xWrite", 1, apsw.SQLITE_FULL))

        with pytest.raises(Unavailable) as told:
            backups.restore()

    assert f"{backups.copy} could not be copied to {backups.folder}: " in told.value.message
    assert "disk is full" in told.value.message
