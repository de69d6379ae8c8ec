"""The contract of every `Outputs`: whole objects or none, and never "missing" for what could not be read.

Subclass it in a few lines.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import pytest

from holdfast.core.errors import Invalid, NotFound, Unavailable
from holdfast.ports import Digest, Outputs
from holdfast.testing.contract_tests import contract_test

EVERY_BYTE = bytes(range(256))
LARGE = EVERY_BYTE * 4 * 1024 * 17
"""17 MB: more than is sent or read in one piece."""

NAMES = (
    "sp ace", " lead", "per%20cent", "per cent", "p%", "%2F", "ha#sh", "qu?e=1&b", "pl+us", "~t", "*[x]{}",
    'q"uote', "new'", "<&>", "a:b", "a=b", "a,b;c", "x|y^`", "dot.", ".hidden", "...", "-dash", "日本", "ünï",
    "e\u0301", "\u00e9", "🙂", "UPPER", "upper", "result.json", "x" * 250,
)  # fmt: skip
"""Each is a name of its own: also those that look alike, or are equal when decoded once too often."""

BAD_PATHS = (
    "", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/..", "a/./b", "a\x00b", "a\nb", "a\x7f",
    "a\\b", "\ud800", "x" * 256, "/".join(["x" * 100] * 10), "holdfast-outputs.json", ".holdfast-1.part",
    "a/.holdfast-1.part",
)  # fmt: skip


class Place(Protocol):
    """The location of a test's store: empty at first."""

    def open(self, *, create: bool = True) -> Awaitable[Outputs]: ...

    def lose(self) -> Awaitable[None]:
        """Remove everything, as when a disk is unmounted: the empty location stays."""
        ...


def digest_of(body: bytes) -> Digest:
    return Digest(len(body), sha256(body).hexdigest())


async def everything(outputs: Outputs, prefix: str = "") -> list[tuple[str, int]]:
    return sorted([found async for found in outputs.list(prefix)])


async def read_whole(outputs: Outputs, path: str) -> bytes:
    return b"".join([part async for part in outputs.read(path)])


@contract_test
@asynccontextmanager
async def with_outputs(contract: "OutputsContract", folder: Path) -> AsyncIterator[Outputs]:
    outputs = await contract.new_place().open()
    try:
        yield outputs
    finally:
        await outputs.close()


@contract_test
@asynccontextmanager
async def with_place(contract: "OutputsContract", folder: Path) -> AsyncIterator[Place]:
    yield contract.new_place()


class OutputsContract:
    """Set `new_place` to a function that returns an empty place, another each time."""

    new_place: Callable[[], Place]

    @with_outputs
    async def test_what_is_not_there_is_none(self, outputs: Outputs) -> None:
        assert await outputs.get("a/b") is None
        assert await outputs.get_many(["a", "b"]) == [None, None]
        assert await outputs.digests(["a"]) == [None]
        assert await everything(outputs) == []
        with pytest.raises(NotFound, match="a/b"):
            await read_whole(outputs, "a/b")
        await outputs.delete("a/b")
        await outputs.check_available()

    @pytest.mark.parametrize("value", [b"", EVERY_BYTE, LARGE], ids=["none", "all", "17 MB"])
    @with_outputs
    async def test_bytes_are_read_back_as_they_were_written(self, outputs: Outputs, value: bytes) -> None:
        await outputs.put("runs/1/data", value)

        assert await outputs.get("runs/1/data") == value
        assert await outputs.digests(["runs/1/data"]) == [digest_of(value)]
        assert await read_whole(outputs, "runs/1/data") == value
        assert await everything(outputs) == [("runs/1/data", len(value))]

    @pytest.mark.parametrize("value", [b"", EVERY_BYTE, LARGE], ids=["none", "all", "17 MB"])
    @with_outputs
    async def test_a_file_is_kept_as_it_is(self, outputs: Outputs, tmp_path: Path, value: bytes) -> None:
        source = tmp_path / "a source"
        source.write_bytes(value)

        await outputs.put_file("runs/1/data", source)

        assert await outputs.digests(["runs/1/data"]) == [digest_of(value)]
        assert source.read_bytes() == value

    @with_outputs
    async def test_a_large_file_is_there_as_a_whole_or_not_at_all(
        self, outputs: Outputs, tmp_path: Path
    ) -> None:
        source = tmp_path / "source"
        source.write_bytes(LARGE)
        writing = asyncio.ensure_future(outputs.put_file("a/b", source))
        seen: list[Digest | None] = []

        while not writing.done():
            seen += await outputs.digests(["a/b"])
            assert await everything(outputs) in ([], [("a/b", len(LARGE))])
        await writing

        assert {one for one in seen if one} <= {digest_of(LARGE)}
        assert await outputs.digests(["a/b"]) == [digest_of(LARGE)]

    @with_outputs
    async def test_a_file_that_is_none_is_named_and_writes_nothing(
        self, outputs: Outputs, tmp_path: Path
    ) -> None:
        with pytest.raises(NotFound, match="absent"):
            await outputs.put_file("a", tmp_path / "absent")
        with pytest.raises(Invalid, match="folder"):
            await outputs.put_file("a", tmp_path)

        assert await outputs.get("a") is None

    @with_outputs
    async def test_a_large_object_is_read_in_parts(self, outputs: Outputs) -> None:
        await outputs.put("a", LARGE)

        sizes = [len(part) async for part in outputs.read("a")]

        assert len(sizes) > 1
        assert 0 < min(sizes) <= max(sizes) <= len(LARGE) // 2

    @with_outputs
    async def test_writing_again_replaces(self, outputs: Outputs) -> None:
        await outputs.put("a/b", EVERY_BYTE)
        await outputs.put("a/b", b"short")

        assert await outputs.get("a/b") == b"short"
        assert await everything(outputs) == [("a/b", 5)]

    @with_outputs
    async def test_what_is_there_is_not_created_again(self, outputs: Outputs) -> None:
        assert await outputs.create("a/b", EVERY_BYTE) is True
        assert await outputs.create("a/b", b"other") is False
        assert await outputs.get("a/b") == EVERY_BYTE

        await outputs.put("a/c", b"put")
        assert await outputs.create("a/c", b"other") is False
        assert await everything(outputs) == [("a/b", 256), ("a/c", 3)]

        await outputs.delete("a/b")
        assert await outputs.create("a/b", b"") is True
        assert await outputs.create("a/b", b"x") is False

    @with_outputs
    async def test_a_creation_of_which_nobody_heard_is_ours(self, outputs: Outputs) -> None:
        assert await outputs.create("a", b"x") is True
        assert await outputs.create("a", b"x") is True

    @with_outputs
    async def test_of_many_who_create_at_once_one_does(self, outputs: Outputs) -> None:
        bodies = [bytes([n]) * (1000 + n) for n in range(16)]

        made = await asyncio.gather(*(outputs.create("a/b", one) for one in bodies))

        assert made.count(True) == 1
        assert await outputs.get("a/b") == bodies[made.index(True)]
        assert len(await everything(outputs)) == 1

    @with_outputs
    async def test_many_are_answered_in_the_order_in_which_they_were_asked_for(
        self, outputs: Outputs
    ) -> None:
        for n in range(0, 200, 2):
            await outputs.put(f"runs/{n}", str(n).encode())
        bodies = [str(n).encode() if n % 2 == 0 else None for n in range(200)]
        paths = [f"runs/{n}" for n in range(200)]

        assert await outputs.get_many(paths) == bodies
        assert await outputs.digests(paths) == [one and digest_of(one) for one in bodies]
        assert await outputs.get_many(["runs/2", "runs/1", "runs/2"]) == [b"2", None, b"2"]
        assert await outputs.get_many([]) == []
        assert await outputs.digests([]) == []

    @with_outputs
    async def test_what_is_below_a_prefix_is_listed(self, outputs: Outputs) -> None:
        for path in ("runs/1/a", "runs/1/b/c", "runs/10/a", "runs/x", "run", "runs2/a"):
            await outputs.put(path, path.encode())

        assert await everything(outputs, "runs/1") == [("runs/1/a", 8), ("runs/1/b/c", 10)]
        assert await everything(outputs, "runs/1/") == await everything(outputs, "runs/1")
        assert len(await everything(outputs, "runs")) == 4
        assert len(await everything(outputs, "")) == 6
        assert await everything(outputs, "runs/1/a") == []
        assert await everything(outputs, "absent") == []

    @with_outputs
    async def test_a_listing_of_many_is_whole(self, outputs: Outputs) -> None:
        paths = [f"runs/{n % 7}/{n:04d}" for n in range(1_100)]
        for start in range(0, len(paths), 50):
            some = paths[start : start + 50]
            await asyncio.gather(*(outputs.put(path, b"x") for path in some))

        assert await everything(outputs) == [(path, 1) for path in sorted(paths)]

    @with_outputs
    async def test_every_legal_name_is_its_own(self, outputs: Outputs) -> None:
        for name in NAMES:
            await outputs.put(f"names/{name}/{name}", name.encode())

        paths = [f"names/{name}/{name}" for name in NAMES]
        assert await outputs.get_many(paths) == [name.encode() for name in NAMES]
        assert [path for path, _ in await everything(outputs, "names")] == sorted(paths)
        for path in paths:
            await outputs.delete(path)
        assert await everything(outputs) == []

    @pytest.mark.parametrize("path", BAD_PATHS, ids=ascii)
    @with_outputs
    async def test_a_path_that_leads_elsewhere_is_refused(
        self, outputs: Outputs, tmp_path: Path, path: str
    ) -> None:
        source = tmp_path / "source"
        source.write_bytes(b"")
        for attempt in (
            outputs.put(path, b""),
            outputs.create(path, b""),
            outputs.put_file(path, source),
            outputs.get(path),
            outputs.get_many(["a", path]),
            outputs.digests([path]),
            outputs.delete(path),
        ):
            with pytest.raises(Invalid):
                await attempt
        with pytest.raises(Invalid):
            await read_whole(outputs, path)

        assert await everything(outputs) == []

    @pytest.mark.parametrize("prefix", ["/a", "a//b", "..", "a/../b", "a\x00", ".holdfast-x"])
    @with_outputs
    async def test_a_prefix_that_leads_elsewhere_is_refused(self, outputs: Outputs, prefix: str) -> None:
        with pytest.raises(Invalid):
            await everything(outputs, prefix)

    @with_outputs
    async def test_what_only_has_objects_below_it_is_none(self, outputs: Outputs) -> None:
        await outputs.put("a/b", b"x")

        await outputs.delete("a")

        assert await outputs.get_many(["a", "a/b/c"]) == [None, None]
        assert await outputs.digests(["a", "a/b/c"]) == [None, None]
        with pytest.raises(NotFound):
            await read_whole(outputs, "a")
        await outputs.delete("a/b/c")
        assert await outputs.get("a/b") == b"x"

    @with_outputs
    async def test_what_is_deleted_is_gone(self, outputs: Outputs) -> None:
        await outputs.put("a/b", b"x")
        await outputs.put("a/c", b"y")

        await outputs.delete("a/b")
        await outputs.delete("a/b")

        assert await everything(outputs) == [("a/c", 1)]
        assert await outputs.get("a/b") is None

    @with_outputs
    async def test_of_many_who_write_at_once_one_is_found_whole(self, outputs: Outputs) -> None:
        bodies = [bytes([n]) * (100_000 + n) for n in range(16)]
        done = asyncio.Event()
        seen: set[bytes | None] = set()

        async def read() -> None:
            while not done.is_set():
                seen.update(await outputs.get_many(["a/b"] * 4))

        reading = asyncio.ensure_future(read())
        await asyncio.gather(*(outputs.put("a/b", one) for one in bodies))
        done.set()
        await reading

        assert await outputs.get("a/b") in bodies
        assert seen <= {None, *bodies}
        assert await everything(outputs) == [("a/b", len(await outputs.get("a/b") or b""))]

    @with_outputs
    async def test_what_is_read_is_of_one_version(self, outputs: Outputs) -> None:
        await outputs.put("a", LARGE)
        reading = outputs.read("a")
        first = await anext(reading)
        await outputs.put("a", bytes(len(LARGE)))

        try:
            rest = [part async for part in reading]
        except Unavailable:
            return  # it may say that it cannot go on; it must not mix them

        assert first + b"".join(rest) == LARGE

    @with_place
    async def test_a_store_keeps_its_name(self, place: Place) -> None:
        first = await place.open()
        await first.put("a", b"x")
        second, third = await place.open(), await place.open(create=False)

        assert first.store_id == second.store_id == third.store_id
        assert first.place == third.place
        assert await third.get("a") == b"x"
        assert (await self.new_place().open()).store_id != first.store_id

    @with_place
    async def test_of_many_who_make_a_store_at_once_all_open_the_same(self, place: Place) -> None:

        opened = await asyncio.gather(*(place.open() for _ in range(16)))

        assert len({outputs.store_id for outputs in opened}) == 1
        await asyncio.gather(*(outputs.check_available() for outputs in opened))
        assert await everything(opened[0]) == []

    @with_place
    async def test_a_place_without_a_store_is_not_taken_for_an_empty_one(self, place: Place) -> None:

        with pytest.raises(Unavailable, match="is not an output store"):
            await place.open(create=False)
        with pytest.raises(Unavailable, match="is not an output store"):
            await place.open(create=False)

    @with_place
    async def test_a_store_that_is_gone_is_not_seen_rather_than_empty(self, place: Place) -> None:
        outputs = await place.open()
        await outputs.put("a", b"x")
        await place.lose()

        await self.check_unseen(outputs, "is not an output store")

    @with_place
    async def test_another_store_in_its_place_is_not_taken_for_it(self, place: Place) -> None:
        outputs = await place.open()
        await outputs.put("a", b"x")
        await place.lose()
        other = await place.open()

        await self.check_unseen(outputs, other.store_id)
        assert other.store_id != outputs.store_id
        await other.check_available()

    async def check_unseen(self, outputs: Outputs, words: str) -> None:
        for attempt in (
            outputs.check_available(),
            outputs.get("a"),
            outputs.get_many(["b", "a"]),
            outputs.digests(["a"]),
            read_whole(outputs, "a"),
            everything(outputs),
            everything(outputs, "b"),
        ):
            with pytest.raises(Unavailable, match=words):
                await attempt
