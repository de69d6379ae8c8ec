"""Plain paths: what a command wrote by itself, found where it ran."""

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest

from holdfast.core.errors import Unavailable
from holdfast.core.outputs import File, Output
from holdfast.outputs import plain

LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
ENDLESS = "*/" * 20 + "x"


def check(file: File | str, base: Path, since: datetime | None = None) -> Output:
    wanted = File(file) if isinstance(file, str) else file
    return asyncio.run(plain.validate_file(wanted, base, since))


def write(path: Path, body: bytes = b"body") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    return path


@contextmanager
def unprivileged() -> Iterator[Path]:
    """A folder that others may enter, and a process that is not root."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        before = os.geteuid()
        if before == 0:
            os.chown(folder, 65534, 65534)
            os.seteuid(65534)
        try:
            yield folder
        finally:
            os.seteuid(before)


@contextmanager
def nested(folder: Path, depth: int) -> Iterator[Path]:
    """Folders called d in each other. They are removed one by one: shutil may not get so deep."""
    made = []
    for _ in range(depth):
        folder = folder / "d"
        folder.mkdir()
        made.append(folder)
    try:
        yield folder
    finally:
        for one in reversed(made):
            one.rmdir()


def test_a_file_that_is_there_is_told_with_its_size_and_checksum(tmp_path: Path) -> None:
    write(tmp_path / "results/model.pt")

    found = check("results/model.pt", tmp_path)

    assert found == Output(
        name="results/model.pt",
        path=str(tmp_path / "results/model.pt"),
        size=4,
        sha256=sha256(b"body").hexdigest(),
    )


def test_a_file_that_is_not_there_is_missing(tmp_path: Path) -> None:
    write(tmp_path / "file")

    for path in ("model.pt", "no/such/folder", "file/below", "x" * 300):
        assert check(path, tmp_path).missing == "not there"


def test_an_absolute_path_is_taken_as_it_is(tmp_path: Path) -> None:
    there = write(tmp_path / "a/model.pt")
    (tmp_path / "b").mkdir()

    assert check(str(there), tmp_path / "b").missing is None
    assert check(f"{tmp_path}/a/*.pt", tmp_path / "b").missing is None


def test_another_size_does_not_count(tmp_path: Path) -> None:
    write(tmp_path / "model.pt")

    assert check(File("model.pt", size=4), tmp_path).missing is None
    found = check(File("model.pt", size=5000), tmp_path)
    assert (found.missing, found.size) == ("has 4 bytes, not 5,000", 4)


def test_another_checksum_does_not_count(tmp_path: Path) -> None:
    write(tmp_path / "model.pt")

    whole = check(File("model.pt", sha256=sha256(b"body").hexdigest()), tmp_path)
    other = check(File("model.pt", sha256=sha256(b"Body").hexdigest()), tmp_path)

    assert whole.missing is None
    assert other.missing == "its sha256 differs"
    assert other.sha256 == whole.sha256


def test_a_large_file_is_hashed_only_when_its_checksum_was_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain, "HASHED_BYTES_MAX", 3)
    write(tmp_path / "model.pt")

    assert check("model.pt", tmp_path).sha256 is None
    promised = File("model.pt", sha256=sha256(b"body").hexdigest())
    assert check(promised, tmp_path).sha256 == promised.sha256


def test_a_folder_is_an_output_without_a_size(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()

    found = check("checkpoints", tmp_path)
    sized = check(File("checkpoints", size=4096), tmp_path)

    assert (found.missing, found.size, found.reused) == (None, None, False)
    assert sized.missing == "a folder, not a file"


def test_links_are_followed_and_one_to_nothing_is_missing(tmp_path: Path) -> None:
    write(tmp_path / "real/model.pt")
    (tmp_path / "good").symlink_to("real/model.pt")
    (tmp_path / "bad").symlink_to("real/gone")
    (tmp_path / "loop").symlink_to("loop")

    assert check("good", tmp_path).size == 4
    assert check("bad", tmp_path).missing == "a link to nothing"
    assert check("loop", tmp_path).missing == "a link to nothing"


def test_a_pipe_is_no_output_and_holds_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert check("pipe", tmp_path).missing == "neither a file nor a folder"


def test_a_pattern_needs_as_many_files_as_were_promised(tmp_path: Path) -> None:
    for n in range(3):
        write(tmp_path / f"run-7/part-{n}.parquet", b"x" * n)
    write(tmp_path / "run-7/notes.txt")

    found = check(File("run-7/*.parquet", count=3), tmp_path)
    fewer = check(File("run-7/*.parquet", count=4), tmp_path)
    more = check(File("run-7/*.parquet", count=2), tmp_path)

    assert (found.missing, found.size, found.path) == (None, 3, None)
    assert fewer.missing == "3 files match, not 4"
    assert more.missing == "3 files match, not 2"
    assert check("run-7/part-[12].parquet", tmp_path).size == 3
    assert check("run-7/*.csv", tmp_path).missing == "nothing matches"
    assert check("run-*/part-?.parquet", tmp_path).missing is None
    assert check("no-such/*", tmp_path).missing == "nothing matches"


def test_two_stars_stand_for_any_folders_and_each_file_counts_once(tmp_path: Path) -> None:
    write(tmp_path / "a.csv")
    write(tmp_path / "x/a.csv")
    write(tmp_path / "x/x/a.csv")
    write(tmp_path / ".hidden/a.csv")
    (tmp_path / "x/circle").symlink_to(tmp_path)

    assert check(File("**/a.csv", count=3), tmp_path).missing is None
    assert check(File("**/x/**/a.csv", count=2), tmp_path).missing is None
    assert check(File("x/**", count=3), tmp_path).missing is None
    assert check(File(".*/a.csv", count=1), tmp_path).missing is None


def test_a_link_to_nothing_matches_no_pattern(tmp_path: Path) -> None:
    write(tmp_path / "a.csv")
    (tmp_path / "b.csv").symlink_to("gone")

    assert check(File("*.csv", count=1), tmp_path).missing is None


def test_what_is_promised_of_a_pattern_is_promised_of_each_file(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", b"1234")
    write(tmp_path / "b.csv", b"12345")

    assert check(File("*.csv", size=4), tmp_path).missing == "b.csv: has 5 bytes, not 4"


def test_a_file_whose_name_looks_like_a_pattern_is_itself(tmp_path: Path) -> None:
    write(tmp_path / "results[1].txt", b"itself")
    write(tmp_path / "results1.txt", b"not this one")

    assert check("results[1].txt", tmp_path).size == len(b"itself")


def test_a_single_path_with_a_count_is_that_one_file(tmp_path: Path) -> None:
    write(tmp_path / "odd:3")

    assert check(File("odd:3", count=1), tmp_path).missing is None
    assert check(File("odd:3", count=2), tmp_path).missing == "1 file matches, not 2"


def test_what_was_there_before_is_reused(tmp_path: Path) -> None:
    old, new = write(tmp_path / "old.csv"), write(tmp_path / "new.csv")
    os.utime(old, (LONG_AGO.timestamp(),) * 2)
    since = LONG_AGO + timedelta(seconds=1)

    assert check("old.csv", tmp_path, since).reused
    assert not check("old.csv", tmp_path, LONG_AGO).reused
    assert not check("new.csv", tmp_path, since).reused
    assert not check("*.csv", tmp_path, since).reused
    new.unlink()
    assert check("*.csv", tmp_path, since).reused
    assert not check("old.csv", tmp_path, None).reused


def test_a_folder_that_is_gone_is_trouble(tmp_path: Path) -> None:
    write(tmp_path / "file")

    for base in (tmp_path / "mnt", tmp_path / "file"):
        with pytest.raises(Unavailable, match="is it mounted"):
            check("model.pt", base)


def test_not_to_be_allowed_to_look_is_trouble(tmp_path: Path) -> None:
    with unprivileged() as folder:
        write(folder / "closed/model.pt")
        write(folder / "secret.pt").chmod(0)
        (folder / "closed").chmod(0)

        for path in ("closed/model.pt", "closed/*.pt", "**/*.pt", "*/model.pt"):
            with pytest.raises(PermissionError):
                check(path, folder)
        with pytest.raises(PermissionError):
            check(File("secret.pt", sha256="0" * 64), folder)
        with pytest.raises(PermissionError):
            check("x", folder / "closed/below")
        found = check("secret.pt", folder)
        (folder / "closed").chmod(0o755)

    assert (found.missing, found.size, found.sha256) == (None, 4, None)


def test_folders_may_be_nested_as_deep_as_the_disk_allows(tmp_path: Path) -> None:
    with nested(tmp_path, 1200) as deepest:
        file = write(deepest / "x.csv")
        try:
            assert check(File("**/x.csv", count=1), tmp_path).missing is None
            assert check("**/y.csv", tmp_path).missing == "nothing matches"
        finally:
            file.unlink()


@pytest.mark.parametrize("pattern", ["**/" * 12 + "nothing", "**/d/" * 12 + "**/nothing"])
def test_many_stars_take_no_longer_than_two(tmp_path: Path, pattern: str) -> None:
    with nested(tmp_path, 60):
        looking = plain.validate_file(File(pattern), tmp_path, None)

        assert asyncio.run(asyncio.wait_for(looking, 60)).missing == "nothing matches"


def test_a_pattern_that_leads_everywhere_is_to_be_narrowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain, "WALKED_MAX", 1000)
    circles(tmp_path)

    assert check("*/*/x", tmp_path).missing == "nothing matches"
    with pytest.raises(Unavailable, match="1,000 files and folders: narrow the pattern"):
        check(ENDLESS, tmp_path)


def test_whoever_is_cancelled_leaves_no_thread_behind_that_reads(tmp_path: Path) -> None:
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(1 << 40)

    cancel(File("huge", sha256="0" * 64), tmp_path)

    wait_for_threads()  # a terabyte would take its time


def test_whoever_is_cancelled_leaves_no_thread_behind_that_walks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain, "WALKED_MAX", 10**12)
    circles(tmp_path)

    cancel(File(ENDLESS), tmp_path)

    wait_for_threads()


def test_a_disk_that_hangs_keeps_no_process_from_leaving(tmp_path: Path) -> None:
    program = """
import asyncio, threading
from pathlib import Path
from holdfast.core.outputs import File
from holdfast.outputs import plain
plain._validate = lambda *_: threading.Event().wait()
try:
    asyncio.run(asyncio.wait_for(plain.validate_file(File("x"), Path("."), None), 0.01))
except TimeoutError:
    print("left")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout == "left\n"


def circles(folder: Path) -> None:
    """Ten links to the folder they are in."""
    for n in range(10):
        (folder / f"circle-{n}").symlink_to(folder)


def cancel(file: File, base: Path) -> None:
    """Begin to look, and leave off."""

    async def main() -> None:
        looking = asyncio.create_task(plain.validate_file(file, base, None))
        await asyncio.sleep(0.05)
        looking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looking

    asyncio.run(main())


def wait_for_threads() -> None:
    for thread in threading.enumerate():
        if thread.name == plain.THREAD_NAME:
            thread.join(30)
            assert not thread.is_alive()
