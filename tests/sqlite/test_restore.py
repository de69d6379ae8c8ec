"""Restores: the old store or the new one, whoever comes and whatever fails."""

import errno
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest
from backup_place import Place, at, elsewhere, fail_nth

from holdfast.core.errors import Conflict, HoldfastError, Invalid, Unavailable
from holdfast.failpoint import arm
from holdfast.sdk.backup import restore
from verify.faulty_disk import Fault, FaultyDisk


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    yield Place(tmp_path)
    arm(None)


def fail(path: Path) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))


def test_a_restore_unforced_keeps_the_log_of_a_store_that_was_moved(place: Place) -> None:
    place.leave_a_log()
    place.store.rename(place.folder / "aside.db")

    with pytest.raises(Conflict, match=r"jobs\.db-wal is.*Move jobs\.db back.*--force"):
        place.restore(force=False)

    (place.folder / "aside.db").rename(place.store)
    assert place.jobs() == ["old", "acknowledged"]


def test_a_restore_by_force_removes_the_log_of_a_store_that_was_moved(place: Place) -> None:
    place.leave_a_log()
    place.store.rename(place.folder / "aside.db")

    place.restore()

    assert place.files() == ["aside.db", "copy.db", "jobs.db"]
    assert place.jobs() == ["old"]


def test_nobody_opens_a_store_while_it_is_replaced(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.stores.sqlite.connection.SECOND_LOG_SECONDS_MAX", 0)
    refused: list[HoldfastError] = []

    def come() -> None:
        with pytest.raises(HoldfastError) as raised:
            place.enqueue("acknowledged")
        refused.append(raised.value)

    place.leave_a_log()
    at("restore.closed_off", come)

    place.restore()

    assert [type(error) for error in refused] == [Unavailable]
    assert place.files() == ["copy.db", "jobs.db"]
    assert place.jobs() == ["old"]


def test_whoever_waits_for_a_store_until_it_is_replaced_uses_the_new_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.stores.sqlite.connection.SECOND_LOG_SECONDS_MAX", 60)
    waiting: list[Future[None]] = []
    waits = threading.Event()
    with ThreadPoolExecutor(1) as thread:

        def come() -> None:
            monkeypatch.setattr(apsw, "connection_hooks", [lambda connection: waits.set()])
            waiting.append(thread.submit(place.enqueue, "acknowledged"))
            waits.wait(timeout=60)

        at("restore.closed_off", come)
        place.restore()
        waiting[0].result(timeout=60)

    assert sorted(place.jobs()) == ["acknowledged", "old"]
    assert place.files() == ["copy.db", "jobs.db"]


def test_whoever_has_just_opened_the_file_that_is_replaced_cannot_use_it(place: Place) -> None:
    at("sqlite.opened", place.restore)

    with pytest.raises(Unavailable):
        place.enqueue("acknowledged")

    assert place.jobs() == ["old"]


@pytest.mark.parametrize("force", [False, True])
def test_a_store_that_is_made_during_a_restore_is_not_replaced(place: Place, force: bool) -> None:
    place.store.unlink()
    at("restore.closed_off", lambda: place.enqueue("acknowledged"))

    with pytest.raises(Conflict, match=r"jobs\.db exists already"):
        place.restore(force=force)

    assert place.jobs() == ["acknowledged"]
    assert place.files() == ["copy.db", "jobs.db"]


def test_two_restores_do_not_share_a_draft(place: Place) -> None:
    at("restore.drafted", place.restore)

    assert place.restore().jobs == 1

    assert place.jobs() == ["old"]
    assert place.files() == ["copy.db", "jobs.db"]


def test_of_two_restores_at_the_last_step_one_is_refused(place: Place) -> None:
    refused: list[str] = []

    def another() -> None:
        with pytest.raises(Conflict) as raised:
            place.restore()
        refused.append(raised.value.message)

    at("restore.closed_off", another)

    place.restore()

    assert [f"{place.store} is in use" in words for words in refused] == [True]
    assert place.jobs() == ["old"]


def test_a_restore_that_holds_a_file_without_a_name_replaces_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace_what_was_opened(connection: apsw.Connection) -> None:
        if connection.filename == str(place.store):
            monkeypatch.setattr(apsw, "connection_hooks", [])
            place.restore()
            place.enqueue("acknowledged")

    monkeypatch.setattr(apsw, "connection_hooks", [replace_what_was_opened])

    with pytest.raises(Conflict, match="in use"):
        place.restore()

    assert place.jobs() == ["old", "acknowledged"]


def test_a_damaged_store_is_replaced_together_with_its_log(place: Place) -> None:
    place.leave_a_log()
    place.store.write_bytes(b"this is no database" * 1000)
    (place.folder / "jobs.db-wal").write_bytes(b"nor is this a log" * 1000)

    place.restore()

    assert place.jobs() == ["old"]
    assert place.files() == ["copy.db", "jobs.db"]


def test_a_restore_through_a_link_replaces_the_file_it_leads_to(place: Place) -> None:
    (place.folder / "disk").mkdir()
    real = place.folder / "disk" / "real.db"
    place.enqueue("new")
    place.store.rename(real)
    place.store.symlink_to(real)

    place.restore()

    assert place.store.is_symlink()
    assert place.jobs(real) == ["old"]


POINTS = ("copied", "epoch_raised", "floor_raised", "locks_freed", "owners_shut_out", "drafted")


@pytest.mark.parametrize("point", [*(f"restore.{name}" for name in POINTS), "restore.closed_off"])
def test_a_restore_that_fails_leaves_the_old_store_and_no_draft(place: Place, point: str) -> None:
    place.leave_a_log()
    at(point, lambda: fail(place.store))

    with pytest.raises((OSError, Unavailable)):
        place.restore()

    assert place.jobs() == ["old", "acknowledged"]
    assert place.files() == ["copy.db", "jobs.db"]


def test_a_restore_that_is_refused_leaves_no_draft_and_names_the_backup(place: Place) -> None:
    connection = apsw.Connection(str(place.copy))
    connection.pragma("user_version", 99)
    connection.close()

    with pytest.raises(Invalid, match=r"copy\.db was written by a newer holdfast"):
        place.restore()

    assert place.files() == ["copy.db", "jobs.db"]


def test_a_draft_that_somebody_looks_at_is_refused_at_once_and_told_truly(place: Place) -> None:
    looking: list[apsw.Connection] = []

    def look() -> None:
        [draft] = place.folder.glob("*.restoring")
        looking.append(apsw.Connection(str(draft)))
        looking[0].execute("BEGIN; SELECT * FROM meta").fetchall()

    at("restore.owners_shut_out", look)

    with pytest.raises(Conflict, match=r"\.restoring is in use"):
        place.restore()

    looking[0].close()
    assert place.jobs() == ["old"]
    assert place.files() == ["copy.db", "jobs.db"]


@pytest.mark.parametrize(
    ("call", "number", "applied"),
    [("fsync", 1, "no"), ("replace", 1, "no"), ("fsync", 2, "unknown")],
)
def test_a_restore_says_whether_the_old_store_is_still_there(
    place: Place, monkeypatch: pytest.MonkeyPatch, call: str, number: int, applied: str
) -> None:
    place.leave_a_log()
    fail_nth(monkeypatch, call, number)

    with pytest.raises(Unavailable, match=r"jobs\.db .*: Input/output error") as told:
        place.restore()

    assert told.value.applied == applied
    assert place.jobs() == (["old", "acknowledged"] if applied == "no" else ["old"])
    assert place.files() == ["copy.db", "jobs.db"]


def test_a_restore_to_a_folder_that_is_not_there_names_the_folder(place: Place) -> None:
    with pytest.raises(Invalid, match=r"The folder .*/nowhere does not exist"):
        elsewhere(restore(place.copy, f"sqlite:///{place.folder}/nowhere/jobs.db"))


def test_a_disk_that_is_full_under_the_store_is_told_by_its_folder(place: Place) -> None:
    with FaultyDisk() as disk:
        disk.arm(Fault("xWrite", 1, apsw.SQLITE_FULL))

        with pytest.raises(Unavailable) as told:
            place.restore()

    assert f"{place.copy} could not be copied to {place.folder}: " in told.value.message
    assert "disk is full" in told.value.message
