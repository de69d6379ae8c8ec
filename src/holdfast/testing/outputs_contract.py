"""The contract of every `Outputs`: whole objects or none, and never "not there" of what was not seen.

Subclass it in a few lines.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import pytest

from holdfast.core.errors import Invalid, NotFound, Unavailable
from holdfast.ports import Digest, Outputs

EVERY_BYTE = bytes(range(256))
LARGE = EVERY_BYTE * 4 * 1024 * 17
"""17 MB: more than anybody sends or reads in one piece."""

NAMES = (
    "sp ace", " lead", "per%20cent", "per cent", "p%", "%2F", "ha#sh", "qu?e=1&b", "pl+us", "~t", "*[x]{}",
    'q"uote', "new'", "<&>", "a:b", "a=b", "a,b;c", "x|y^`", "dot.", ".hidden", "...", "-dash", "日本", "ünï",
    "e\u0301", "\u00e9", "🙂", "UPPER", "upper", "result.json", "x" * 250,
)  # fmt: skip
"""Each is its own: what looks alike, or is so when decoded once too often, is not."""

BAD_PATHS = (
    "", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/..", "a/./b", "a\x00b", "a\nb", "a\x7f",
    "a\\b", "\ud800", "x" * 256, "/".join(["x" * 100] * 10), "holdfast-outputs.json", ".holdfast-1.part",
    "a/.holdfast-1.part",
)  # fmt: skip


class Place(Protocol):
    """Where a test has its store: empty at first."""

    def open(self, *, create: bool = True) -> Awaitable[Outputs]: ...

    def lose(self) -> Awaitable[None]:
        """Take away all that is there, as a disk that is unmounted: the empty place stays."""
        ...


Body = Callable[[Outputs], Coroutine[None, None, None]]


def digest_of(body: bytes) -> Digest:
    return Digest(len(body), sha256(body).hexdigest())


async def everything(outputs: Outputs, prefix: str = "") -> list[tuple[str, int]]:
    return sorted([found async for found in outputs.list(prefix)])


async def read_whole(outputs: Outputs, path: str) -> bytes:
    return b"".join([part async for part in outputs.read(path)])


class OutputsContract:
    """Set `new_place` to a function that returns an empty place, another each time."""

    new_place: Callable[[], Place]

    @pytest.fixture(autouse=True)
    def _folder(self) -> Iterator[None]:
        with TemporaryDirectory(prefix="holdfast-outputs-") as folder:
            self.folder = Path(folder)
            yield

    def play(self, body: Body) -> None:
        async def main() -> None:
            outputs = await self.new_place().open()
            try:
                await body(outputs)
            finally:
                await outputs.close()

        asyncio.run(main())

    def test_what_is_not_there_is_none(self) -> None:
        async def body(outputs: Outputs) -> None:
            assert await outputs.get("a/b") is None
            assert await outputs.get_many(["a", "b"]) == [None, None]
            assert await outputs.digests(["a"]) == [None]
            assert await everything(outputs) == []
            with pytest.raises(NotFound, match="a/b"):
                await read_whole(outputs, "a/b")
            await outputs.delete("a/b")
            await outputs.verify()

        self.play(body)

    @pytest.mark.parametrize("value", [b"", EVERY_BYTE, LARGE], ids=["none", "all", "17 MB"])
    def test_bytes_are_read_back_as_they_were_written(self, value: bytes) -> None:
        async def body(outputs: Outputs) -> None:
            await outputs.put("runs/1/data", value)

            assert await outputs.get("runs/1/data") == value
            assert await outputs.digests(["runs/1/data"]) == [digest_of(value)]
            assert await read_whole(outputs, "runs/1/data") == value
            assert await everything(outputs) == [("runs/1/data", len(value))]

        self.play(body)

    @pytest.mark.parametrize("value", [b"", EVERY_BYTE, LARGE], ids=["none", "all", "17 MB"])
    def test_a_file_is_kept_as_it_is(self, value: bytes) -> None:
        async def body(outputs: Outputs) -> None:
            source = self.folder / "a source"
            source.write_bytes(value)

            await outputs.put_file("runs/1/data", source)

            assert await outputs.digests(["runs/1/data"]) == [digest_of(value)]
            assert source.read_bytes() == value

        self.play(body)

    def test_a_large_file_is_there_as_a_whole_or_not_at_all(self) -> None:
        async def body(outputs: Outputs) -> None:
            source = self.folder / "source"
            source.write_bytes(LARGE)
            writing = asyncio.ensure_future(outputs.put_file("a/b", source))
            seen: list[Digest | None] = []

            while not writing.done():
                seen += await outputs.digests(["a/b"])
                assert await everything(outputs) in ([], [("a/b", len(LARGE))])
            await writing

            assert {one for one in seen if one} <= {digest_of(LARGE)}
            assert await outputs.digests(["a/b"]) == [digest_of(LARGE)]

        self.play(body)

    def test_a_file_that_is_none_is_named_and_writes_nothing(self) -> None:
        async def body(outputs: Outputs) -> None:
            with pytest.raises(NotFound, match="absent"):
                await outputs.put_file("a", self.folder / "absent")
            with pytest.raises(Invalid, match="folder"):
                await outputs.put_file("a", self.folder)

            assert await outputs.get("a") is None

        self.play(body)

    def test_a_large_object_is_read_in_parts(self) -> None:
        async def body(outputs: Outputs) -> None:
            await outputs.put("a", LARGE)

            sizes = [len(part) async for part in outputs.read("a")]

            assert len(sizes) > 1
            assert 0 < min(sizes) <= max(sizes) <= len(LARGE) // 2

        self.play(body)

    def test_writing_again_replaces(self) -> None:
        async def body(outputs: Outputs) -> None:
            await outputs.put("a/b", EVERY_BYTE)
            await outputs.put("a/b", b"short")

            assert await outputs.get("a/b") == b"short"
            assert await everything(outputs) == [("a/b", 5)]

        self.play(body)

    def test_what_is_there_is_not_created_again(self) -> None:
        async def body(outputs: Outputs) -> None:
            assert await outputs.create("a/b", EVERY_BYTE) is True
            assert await outputs.create("a/b", b"other") is False
            assert await outputs.get("a/b") == EVERY_BYTE

            await outputs.put("a/c", b"put")
            assert await outputs.create("a/c", b"other") is False
            assert await everything(outputs) == [("a/b", 256), ("a/c", 3)]

            await outputs.delete("a/b")
            assert await outputs.create("a/b", b"") is True
            assert await outputs.create("a/b", b"x") is False

        self.play(body)

    def test_a_creation_of_which_nobody_heard_is_ours(self) -> None:
        async def body(outputs: Outputs) -> None:
            assert await outputs.create("a", b"x") is True
            assert await outputs.create("a", b"x") is True

        self.play(body)

    def test_of_many_who_create_at_once_one_does(self) -> None:
        async def body(outputs: Outputs) -> None:
            bodies = [bytes([n]) * (1000 + n) for n in range(16)]

            made = await asyncio.gather(*(outputs.create("a/b", one) for one in bodies))

            assert made.count(True) == 1
            assert await outputs.get("a/b") == bodies[made.index(True)]
            assert len(await everything(outputs)) == 1

        self.play(body)

    def test_many_are_answered_in_the_order_in_which_they_were_asked_for(self) -> None:
        async def body(outputs: Outputs) -> None:
            for n in range(0, 200, 2):
                await outputs.put(f"runs/{n}", str(n).encode())
            bodies = [str(n).encode() if n % 2 == 0 else None for n in range(200)]
            paths = [f"runs/{n}" for n in range(200)]

            assert await outputs.get_many(paths) == bodies
            assert await outputs.digests(paths) == [one and digest_of(one) for one in bodies]
            assert await outputs.get_many(["runs/2", "runs/1", "runs/2"]) == [b"2", None, b"2"]
            assert await outputs.get_many([]) == []
            assert await outputs.digests([]) == []

        self.play(body)

    def test_what_is_below_a_prefix_is_listed(self) -> None:
        async def body(outputs: Outputs) -> None:
            for path in ("runs/1/a", "runs/1/b/c", "runs/10/a", "runs/x", "run", "runs2/a"):
                await outputs.put(path, path.encode())

            assert await everything(outputs, "runs/1") == [("runs/1/a", 8), ("runs/1/b/c", 10)]
            assert await everything(outputs, "runs/1/") == await everything(outputs, "runs/1")
            assert len(await everything(outputs, "runs")) == 4
            assert len(await everything(outputs, "")) == 6
            assert await everything(outputs, "runs/1/a") == []
            assert await everything(outputs, "absent") == []

        self.play(body)

    def test_a_listing_of_many_is_whole(self) -> None:
        async def body(outputs: Outputs) -> None:
            paths = [f"runs/{n % 7}/{n:04d}" for n in range(1_100)]
            for start in range(0, len(paths), 50):
                some = paths[start : start + 50]
                await asyncio.gather(*(outputs.put(path, b"x") for path in some))

            assert await everything(outputs) == [(path, 1) for path in sorted(paths)]

        self.play(body)

    def test_every_legal_name_is_its_own(self) -> None:
        async def body(outputs: Outputs) -> None:
            for name in NAMES:
                await outputs.put(f"names/{name}/{name}", name.encode())

            paths = [f"names/{name}/{name}" for name in NAMES]
            assert await outputs.get_many(paths) == [name.encode() for name in NAMES]
            assert [path for path, _ in await everything(outputs, "names")] == sorted(paths)
            for path in paths:
                await outputs.delete(path)
            assert await everything(outputs) == []

        self.play(body)

    @pytest.mark.parametrize("path", BAD_PATHS, ids=ascii)
    def test_a_path_that_leads_elsewhere_is_refused(self, path: str) -> None:
        async def body(outputs: Outputs) -> None:
            source = self.folder / "source"
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

        self.play(body)

    @pytest.mark.parametrize("prefix", ["/a", "a//b", "..", "a/../b", "a\x00", ".holdfast-x"])
    def test_a_prefix_that_leads_elsewhere_is_refused(self, prefix: str) -> None:
        async def body(outputs: Outputs) -> None:
            with pytest.raises(Invalid):
                await everything(outputs, prefix)

        self.play(body)

    def test_what_only_has_objects_below_it_is_none(self) -> None:
        async def body(outputs: Outputs) -> None:
            await outputs.put("a/b", b"x")

            await outputs.delete("a")

            assert await outputs.get_many(["a", "a/b/c"]) == [None, None]
            assert await outputs.digests(["a", "a/b/c"]) == [None, None]
            with pytest.raises(NotFound):
                await read_whole(outputs, "a")
            await outputs.delete("a/b/c")
            assert await outputs.get("a/b") == b"x"

        self.play(body)

    def test_what_is_deleted_is_gone(self) -> None:
        async def body(outputs: Outputs) -> None:
            await outputs.put("a/b", b"x")
            await outputs.put("a/c", b"y")

            await outputs.delete("a/b")
            await outputs.delete("a/b")

            assert await everything(outputs) == [("a/c", 1)]
            assert await outputs.get("a/b") is None

        self.play(body)

    def test_of_many_who_write_at_once_one_is_found_whole(self) -> None:
        async def body(outputs: Outputs) -> None:
            bodies = [bytes([n]) * (100_000 + n) for n in range(16)]
            done = asyncio.Event()
            seen: set[bytes | None] = set()

            async def look() -> None:
                while not done.is_set():
                    seen.update(await outputs.get_many(["a/b"] * 4))

            looking = asyncio.ensure_future(look())
            await asyncio.gather(*(outputs.put("a/b", one) for one in bodies))
            done.set()
            await looking

            assert await outputs.get("a/b") in bodies
            assert seen <= {None, *bodies}
            assert await everything(outputs) == [("a/b", len(await outputs.get("a/b") or b""))]

        self.play(body)

    def test_what_is_read_is_of_one_version(self) -> None:
        async def body(outputs: Outputs) -> None:
            await outputs.put("a", LARGE)
            reading = outputs.read("a")
            first = await anext(reading)
            await outputs.put("a", bytes(len(LARGE)))

            try:
                rest = [part async for part in reading]
            except Unavailable:
                return  # it may say that it cannot go on; it must not mix them

            assert first + b"".join(rest) == LARGE

        self.play(body)

    def test_a_store_keeps_its_name(self) -> None:
        async def main() -> None:
            place = self.new_place()
            first = await place.open()
            await first.put("a", b"x")
            second, third = await place.open(), await place.open(create=False)

            assert first.store_id == second.store_id == third.store_id
            assert first.place == third.place
            assert await third.get("a") == b"x"
            assert (await self.new_place().open()).store_id != first.store_id

        asyncio.run(main())

    def test_of_many_who_make_a_store_at_once_all_open_the_same(self) -> None:
        async def main() -> None:
            place = self.new_place()

            opened = await asyncio.gather(*(place.open() for _ in range(16)))

            assert len({outputs.store_id for outputs in opened}) == 1
            await asyncio.gather(*(outputs.verify() for outputs in opened))
            assert await everything(opened[0]) == []

        asyncio.run(main())

    def test_a_place_without_a_store_is_not_taken_for_an_empty_one(self) -> None:
        async def main() -> None:
            place = self.new_place()

            with pytest.raises(Unavailable, match="is not an output store"):
                await place.open(create=False)
            with pytest.raises(Unavailable, match="is not an output store"):
                await place.open(create=False)

        asyncio.run(main())

    def test_a_store_that_is_gone_is_not_seen_rather_than_empty(self) -> None:
        async def main() -> None:
            place = self.new_place()
            outputs = await place.open()
            await outputs.put("a", b"x")
            await place.lose()

            await self.check_unseen(outputs, "is not an output store")

        asyncio.run(main())

    def test_another_store_in_its_place_is_not_taken_for_it(self) -> None:
        async def main() -> None:
            place = self.new_place()
            outputs = await place.open()
            await outputs.put("a", b"x")
            await place.lose()
            other = await place.open()

            await self.check_unseen(outputs, other.store_id)
            assert other.store_id != outputs.store_id
            await other.verify()

        asyncio.run(main())

    async def check_unseen(self, outputs: Outputs, words: str) -> None:
        for attempt in (
            outputs.verify(),
            outputs.get("a"),
            outputs.get_many(["b", "a"]),
            outputs.digests(["a"]),
            read_whole(outputs, "a"),
            everything(outputs),
            everything(outputs, "b"),
        ):
            with pytest.raises(Unavailable, match=words):
                await attempt
