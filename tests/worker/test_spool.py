"""The spool of one attempt on disks that are full, broken or damaged."""

import errno
import os
from pathlib import Path

import pytest

from holdfast.worker.spool import AttemptHeader, FileAttemptLog, Seal, SpooledEvent, read_file

TITLE = AttemptHeader("job-1", 1, 1)


def piece(sequence: int, data: bytes = b"words") -> SpooledEvent:
    return SpooledEvent(sequence, "output", 1.0, "stdout", data, {})


def test_what_a_full_disk_does_not_take_is_read_and_keeps_the_seal_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = FileAttemptLog(tmp_path / "log", TITLE)
    log.append(piece(1))
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.worker.spool.os.pwrite", full_disk)
        log.append(piece(2))
    log.append(piece(3))
    log.seal(b"note")

    assert not any(isinstance(record, Seal) for record in read_file(tmp_path / "log"))
    read: list[int] = []
    while batch := log.read(1, 1000):
        read += [found.sequence for found in batch.events]
        log.mark_sent(batch.end)
    assert read == [1, 2, 3]
    log.remove()


def test_what_is_sealed_before_it_is_read_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = FileAttemptLog(tmp_path / "log", TITLE)
    log.append(piece(1))
    log.seal(b"note")
    batch = log.read(10, 1000)
    assert batch is not None
    log.mark_sent(batch.end)
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.worker.spool.os.pwrite", full_disk)
        log.append(piece(2))

    rest = log.read(10, 1000)

    assert rest is not None
    assert rest.events == [piece(2)]
    assert isinstance(read_file(tmp_path / "log")[-1], Seal)
    log.remove()


def sequences(log: FileAttemptLog) -> list[int]:
    """All that the log returns, as if it were sent."""
    read: list[int] = []
    while batch := log.read(1, 1000):
        read += [found.sequence for found in batch.events]
        log.mark_sent(batch.end)
    return read


def test_a_disk_that_takes_half_and_lets_none_of_it_be_removed_costs_no_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(file: int, data: bytes, offset: int) -> int:
        pwrite(file, data[: len(data) // 2], offset)
        return full_disk(file, data, offset)

    log, pwrite = FileAttemptLog(tmp_path / "log", TITLE), os.pwrite
    log.append(piece(1))
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.worker.spool.os.pwrite", half)
        patch.setattr("holdfast.worker.spool.os.ftruncate", broken_disk)
        log.append(piece(2, b"long" * 20))
    assert sequences(log) == [1, 2]

    log.append(piece(3))
    log.seal(b"note")

    assert sequences(log) == [3]
    assert isinstance(read_file(tmp_path / "log")[-1], Seal)
    log.remove()


@pytest.mark.parametrize("damage", ["truncated", "overwritten", "unreadable"])
def test_what_comes_after_a_damage_of_the_spool_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    path = tmp_path / "log"
    log = FileAttemptLog(path, TITLE)
    log.append(piece(1))
    assert sequences(log) == [1]
    log.append(piece(2))
    with monkeypatch.context() as patch:
        if damage == "truncated":
            os.truncate(path, 0)
        elif damage == "overwritten":
            path.write_bytes(bytes(path.stat().st_size))
        else:
            patch.setattr("holdfast.worker.spool.os.pread", broken_disk)
        assert sequences(log) == []

    log.append(piece(3))
    log.seal(b"note")

    assert sequences(log) == [3]
    log.remove()


def test_a_damaged_spool_is_never_recovered_as_a_success(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = FileAttemptLog(path, TITLE)
    titled = path.stat().st_size
    log.append(piece(1))
    os.truncate(path, titled)
    log.seal(b"note")

    assert read_file(path) == [TITLE]
    log.remove()


def broken_disk(*_: object) -> bytes:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def full_disk(file: int, data: bytes, offset: int) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
