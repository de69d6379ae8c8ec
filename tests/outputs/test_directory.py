"""An output store in a directory: durable when it says so, and never outside of its root."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.core.errors import Invalid, NotFound, Unavailable
from holdfast.outputs.directory import DirectoryOutputs
from holdfast.outputs.files import PART_BYTES
from holdfast.testing.outputs_contract import everything, read_whole
from tests.outputs.directory_store import drafts, open_directory


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store of outputs"


DYING = """
import asyncio, os, signal, sys
from pathlib import Path
from holdfast.outputs.directory import DirectoryOutputs

async def main():
    outputs = await DirectoryOutputs.open(Path(sys.argv[1]), create=False)
    def die(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(os, sys.argv[2], die)
    await outputs.put("run/data", b"new")

asyncio.run(main())
"""


@pytest.mark.parametrize("moment", ["write", "rename"])
async def test_a_writer_that_is_killed_leaves_the_old_object_and_a_draft_nobody_sees(
    root: Path, moment: str
) -> None:
    async with open_directory(root) as outputs:
        await outputs.put("run/data", b"old")

    done = subprocess.run([sys.executable, "-c", DYING, root, moment], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert [draft.suffix for draft in drafts(root)] == [".part"]

    async with open_directory(root) as outputs:
        assert await outputs.get("run/data") == b"old"
        assert await everything(outputs) == [("run/data", 3)]
        await outputs.put("run/data", b"new")
        assert await outputs.get("run/data") == b"new"


def recorded(monkeypatch: pytest.MonkeyPatch, root: Path) -> list[str]:
    """What is asked of the disk from now on, in order."""
    calls: list[str] = []

    def name_of(file: int) -> str:
        path = Path(os.readlink(f"/proc/self/fd/{file}"))
        return "draft" if path.name.endswith(".part") else str(path.relative_to(root))

    def fsync(file: int, call: Callable[[int], None] = os.fsync) -> None:
        calls.append(f"sync {name_of(file)}")
        call(file)

    def rename(old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        calls.append(f"rename to {new}")
        _rename(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def mkdir(name: str, *, dir_fd: int) -> None:
        calls.append(f"make {name}")
        _mkdir(name, dir_fd=dir_fd)

    _rename, _mkdir = os.rename, os.mkdir
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(os, "mkdir", mkdir)
    return calls


async def test_an_object_is_durable_before_it_is_named_and_its_name_before_it_is_acknowledged(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_directory(root) as outputs:
        calls = recorded(monkeypatch, root)

        await outputs.put("a/b/data", b"x")

        first = ["make a", "sync .", "make b", "sync a"]
        each = ["sync draft", "rename to data", "sync a/b"]
        assert calls == first + each
        calls.clear()
        await outputs.put("a/b/data", b"y")
        assert calls == each
        calls.clear()
        await outputs.delete("a/b/data")
        assert calls == ["sync a/b"]


async def test_a_folder_that_somebody_else_has_made_is_not_taken_for_durable(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_directory(root) as outputs:
        (root / "a" / "b").mkdir(parents=True)
        calls = recorded(monkeypatch, root)

        await outputs.put("a/b/data", b"x")

        assert [call for call in calls if call.startswith("sync")] == [
            "sync .",
            "sync a",
            "sync draft",
            "sync a/b",
        ]


def failing_sync(wanted: Callable[[str], bool]) -> Callable[[int], None]:
    def fsync(file: int, call: Callable[[int], None] = os.fsync) -> None:
        if wanted(os.readlink(f"/proc/self/fd/{file}")):
            raise OSError(errno.EIO, "Input/output error")
        call(file)

    return fsync


async def test_an_object_that_cannot_be_made_durable_is_not_there(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_directory(root) as outputs:
        monkeypatch.setattr(os, "fsync", failing_sync(lambda path: path.endswith(".part")))

        with pytest.raises(Unavailable, match=r"a/data: Input/output error") as caught:
            await outputs.put("a/data", b"x")

        assert caught.value.applied == "no"
        assert await outputs.get("a/data") is None
        assert drafts(root) == []


async def test_a_name_that_cannot_be_made_durable_is_not_acknowledged(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_directory(root) as outputs:
        monkeypatch.setattr(os, "fsync", failing_sync(lambda path: path.endswith("/a")))

        with pytest.raises(Unavailable, match="Input/output error") as caught:
            await outputs.put("a/data", b"x")

        assert caught.value.applied == "unknown"


async def test_links_that_lead_out_of_the_store_are_not_followed(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")

    async with open_directory(root) as outputs:
        await outputs.put("inside/a", b"x")
        (root / "file").symlink_to(outside / "secret")
        (root / "folder").symlink_to(outside)
        (root / "parent").symlink_to("..")

        for attempt in (
            outputs.get("file"),
            outputs.get("folder/secret"),
            outputs.get("parent/outside/secret"),
            outputs.digests(["folder/secret"]),
            read_whole(outputs, "file"),
            outputs.put("folder/new", b"x"),
            outputs.put("folder/deep/new", b"x"),
            outputs.delete("folder/secret"),
            everything(outputs, "folder"),
        ):
            with pytest.raises(Unavailable, match="leads out of the output store"):
                await attempt
        assert [path.name for path in outside.iterdir()] == ["secret"]
        assert await everything(outputs) == [("inside/a", 1)]


async def test_a_store_whose_name_begins_with_ours_is_outside(root: Path) -> None:
    beside = root.with_name(root.name + "2")
    beside.mkdir()
    (beside / "secret").write_bytes(b"secret")

    async with open_directory(root) as outputs:
        (root / "link").symlink_to(beside)
        with pytest.raises(Unavailable, match="leads out"):
            await outputs.get("link/secret")


async def test_links_within_the_store_are_followed_and_a_write_replaces_the_link(
    root: Path,
) -> None:
    async with open_directory(root) as outputs:
        await outputs.put("a/b", b"x")
        (root / "link").symlink_to("a/b")

        assert await outputs.get("link") == b"x"
        await outputs.put("link", b"y")

        assert await outputs.get("a/b") == b"x"
        assert await outputs.get("link") == b"y"


async def test_a_store_may_be_reached_by_a_link(root: Path) -> None:
    async with open_directory(root) as outputs:
        await outputs.put("a/b", b"x")
        root.with_name("link").symlink_to(root)
        same = await DirectoryOutputs.open(root.with_name("link"), create=False)

        assert same.store_id == outputs.store_id
        assert await same.get("a/b") == b"x"
        await same.close()


async def test_a_link_that_leads_nowhere_is_nothing_and_one_in_a_circle_is_told(root: Path) -> None:
    async with open_directory(root) as outputs:
        (root / "nowhere").symlink_to("absent")
        (root / "circle").symlink_to("circle")

        assert await outputs.get("nowhere") is None
        with pytest.raises(Unavailable, match="circle: Too many levels"):
            await outputs.get("circle")


async def test_a_pipe_in_the_store_does_not_hold_a_reader(root: Path) -> None:
    async with open_directory(root) as outputs:
        os.mkfifo(root / "pipe")

        with pytest.raises(Unavailable, match="neither a file nor a folder"):
            await outputs.get("pipe")

        assert await everything(outputs) == []


async def test_an_object_has_nothing_below_it(root: Path) -> None:
    async with open_directory(root) as outputs:
        await outputs.put("a/b", b"x")

        with pytest.raises(Invalid, match="a/b is an object"):
            await outputs.put("a/b/c", b"y")
        with pytest.raises(Invalid, match="a has objects below it"):
            await outputs.put("a", b"y")

        assert await everything(outputs) == [("a/b", 1)]
        assert drafts(root) == []


async def test_the_umask_says_who_may_read(root: Path) -> None:
    before = os.umask(0o027)
    try:
        async with open_directory(root) as outputs:
            await outputs.put("a/b", b"x")
    finally:
        os.umask(before)

    modes = [oct(path.stat().st_mode & 0o777) for path in (root, root / "a", root / "a" / "b")]
    assert modes == ["0o750", "0o750", "0o640"]


async def test_whatever_happens_no_file_stays_open(root: Path) -> None:
    async def settled(wanted: int) -> int:
        for _ in range(400):
            if len(os.listdir("/proc/self/fd")) <= wanted:
                break
            await asyncio.sleep(0.01)
        return len(os.listdir("/proc/self/fd"))

    async with open_directory(root) as outputs:

        async def once() -> None:
            await outputs.put("a/b", bytes(3 * PART_BYTES))
            await outputs.get_many(["a/b", "absent", "a"])
            with pytest.raises(NotFound):
                await read_whole(outputs, "absent")
            with pytest.raises(Invalid):
                await outputs.put("a", b"")
            async for _ in outputs.list(""):
                break
            async for _ in outputs.read("a/b"):
                break
            reading = asyncio.ensure_future(read_whole(outputs, "a/b"))
            await asyncio.sleep(0)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await outputs.delete("a/b")

        await once()
        opened = await settled(len(os.listdir("/proc/self/fd")))
        for _ in range(20):
            await once()

        assert await settled(opened) <= opened


async def test_a_relative_path_means_the_folder_it_was_opened_in(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.mkdir()
    monkeypatch.chdir(root)

    async with open_directory(Path("store")) as outputs:
        os.chdir("/")
        await outputs.put("a", b"x")

        assert (root / "store" / "a").read_bytes() == b"x"
        assert outputs.place == (root / "store").as_uri()
