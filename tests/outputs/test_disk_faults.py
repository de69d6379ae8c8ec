"""Disks that are full, gone, or do not answer: what an output store in a directory says then."""

import asyncio
import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.core.errors import Unavailable
from holdfast.outputs.directory import DirectoryOutputs
from holdfast.outputs.files import PART_BYTES
from holdfast.testing.outputs_contract import everything, read_whole
from tests.outputs.directory_store import drafts, open_directory


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store of outputs"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte: a real file system, in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=False, capture_output=True)


def unmount(*words: str | Path) -> None:
    subprocess.run(["umount", *words], check=True)


async def test_a_full_disk_keeps_what_it_had_and_no_half_of_what_it_could_not_take(
    disk: Path,
) -> None:
    async with open_directory(disk) as outputs:
        await outputs.put("a", b"old")
        source = disk.parent / "source"
        source.write_bytes(bytes(2 * 1024 * 1024))

        for attempt in (
            outputs.put("a", bytes(2 * 1024 * 1024)),
            outputs.put_file("a", source),
        ):
            with pytest.raises(Unavailable, match="a: No space left on device") as caught:
                await attempt
            assert caught.value.applied == "no"

        assert await outputs.get("a") == b"old"
        assert drafts(disk) == []
        await outputs.put("a", b"new")


async def test_a_disk_that_was_unmounted_is_not_an_empty_store(disk: Path) -> None:
    async with open_directory(disk) as outputs:
        await outputs.put("a", b"x")
        unmount(disk)

        for attempt in (
            outputs.check_available(),
            outputs.get("a"),
            outputs.digests(["a"]),
            outputs.delete("a"),
            everything(outputs),
            read_whole(outputs, "a"),
            outputs.put("b", b"y"),
        ):
            with pytest.raises(Unavailable, match=r"is not an output store \(is it mounted\?\)"):
                await attempt

    assert list(disk.iterdir()) == []


async def test_a_disk_that_is_taken_away_in_the_middle_is_read_to_the_end(disk: Path) -> None:
    async with open_directory(disk) as outputs:
        await outputs.put("a", bytes(3 * PART_BYTES))
        reading = outputs.read("a")
        size = len(await anext(reading))
        unmount("--lazy", disk)

        async for part in reading:
            size += len(part)

        assert size == 3 * PART_BYTES
        with pytest.raises(Unavailable):
            await outputs.get("a")


async def test_a_root_that_is_gone_is_not_made_again_by_a_write(root: Path) -> None:
    async with open_directory(root) as outputs:
        os.rename(root, root.with_name("elsewhere"))

        with pytest.raises(Unavailable, match="is not an output store"):
            await outputs.put("a", b"x")

    assert not root.exists()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
async def test_what_the_system_says_instead_of_not_there_is_told_with_the_path(
    root: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(
        path: str | Path, *more: object, call: Callable[..., int] = os.open, **and_more: object
    ) -> int:
        if str(path) in ("a/b", "a"):
            raise OSError(number, os.strerror(number))
        return call(path, *more, **and_more)

    async with open_directory(root) as outputs:
        monkeypatch.setattr(os, "open", refuse)

        for attempt in (
            outputs.get("a/b"),
            outputs.get_many(["c", "a/b"]),
            outputs.digests(["a/b"]),
            outputs.delete("a/b"),
            outputs.put("a/b", b""),
            everything(outputs, "a"),
            read_whole(outputs, "a/b"),
        ):
            with pytest.raises(Unavailable, match=f"outputs/a.*{os.strerror(number)}"):
                await attempt


def test_an_identity_that_makes_no_sense_is_not_overwritten(root: Path) -> None:
    root.mkdir()
    identity = root / "holdfast-outputs.json"
    for body, words in (
        (b"", "is damaged"),
        (b"{}", "is damaged"),
        (b'{"holdfast": "jobs", "layout": 1, "store_id": "a"}', "does not say which"),
        (b'{"holdfast": "outputs", "layout": 2, "store_id": "a"}', "layout 2.*Update holdfast"),
    ):
        identity.write_bytes(body)

        for create in (True, False):
            with pytest.raises(Unavailable, match=words):
                asyncio.run(DirectoryOutputs.open(root, create=create))

        assert identity.read_bytes() == body
