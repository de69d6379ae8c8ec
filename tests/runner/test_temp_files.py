"""Files that a handler is writing: named, removed when done, and cleaned up after a kill."""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.runner.temp_files import PREFIX, TempFiles


@pytest.fixture
def temp_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TempFiles]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    temp_files = TempFiles()
    yield temp_files
    temp_files.close()


def test_a_file_has_its_own_name_and_goes_when_it_is_done(temp_files: TempFiles, tmp_path: Path) -> None:
    first, second = temp_files.new("a.csv"), temp_files.new("a.csv")
    first.write(b"1")

    assert Path(first.name).name == Path(second.name).name == "a.csv"
    assert first.name != second.name
    temp_files.remove(first)
    temp_files.remove(second)
    [folder] = tmp_path.glob(f"{PREFIX}*")
    assert [path.name for path in folder.iterdir()] == ["lock"]
    temp_files.close()
    assert list(tmp_path.glob(f"{PREFIX}*")) == []


def test_what_a_killed_process_has_left_is_removed_and_what_a_living_one_has_is_not(
    temp_files: TempFiles, tmp_path: Path
) -> None:
    code = (
        "import os, signal, sys, tempfile\n"
        "from holdfast.runner.temp_files import TempFiles\n"
        "tempfile.tempdir = sys.argv[1]\n"
        "file = TempFiles().new('a.csv')\n"
        "print(file.name, flush=True)\n"
        "sys.stdin.read()\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, **pipes) as living, subprocess.Popen(words, **pipes) as dead:  # type: ignore[call-overload]
        kept, left = (Path(one.stdout.readline().decode().strip()) for one in (living, dead))
        dead.send_signal(signal.SIGKILL)
        dead.wait()

        temp_files.remove(temp_files.new("mine"))

        assert kept.exists()
        assert not left.parent.parent.exists()


def test_a_folder_that_was_tidied_away_is_made_again(temp_files: TempFiles, tmp_path: Path) -> None:
    temp_files.remove(temp_files.new("a"))
    [folder] = tmp_path.glob(f"{PREFIX}*")
    lock = os.open(folder / "lock", os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(lock)
    (folder / "lock").unlink()
    folder.rmdir()

    temp_files.remove(temp_files.new("a"))
