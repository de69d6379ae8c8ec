"""Manifests are kept whole and once, are read in a stream, and never say what was not kept."""

import asyncio
import hashlib
import resource
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from disk_world import play
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import Corrupt, Invalid, NotFound, Unavailable
from holdfast.core.limits import TASK_BYTES_MAX
from holdfast.core.manifest import Task, encode_task, study
from holdfast.outputs import manifests
from holdfast.outputs.directory import DirectoryOutputs
from holdfast.outputs.manifests import keep, lines_of, manifest_path, tasks

BUNDLE = "sha256:" + "ab" * 32
SEIR = "models.seir/baseline"


def some_tasks(count: int) -> list[Task]:
    sets = ({"x": number} for number in range(count))
    return list(study(bundle=BUNDLE, entrypoint=SEIR, parameter_sets=sets))


async def each(items: Iterable[bytes]) -> AsyncIterator[bytes]:
    for one in items:
        yield one


async def kept(outputs: DirectoryOutputs, given: Iterable[Task]) -> tuple[str, int]:
    return await keep(outputs, each(encode_task(task) for task in given))


async def read(outputs: DirectoryOutputs, sha256: str) -> list[Task]:
    return [task async for task in tasks(outputs, sha256)]


def test_a_manifest_is_read_as_it_was_kept(tmp_path: Path) -> None:
    given = list(
        study(
            bundle=BUNDLE,
            entrypoint=SEIR,
            parameter_sets=[{"x": number} for number in range(600)],
            replicates=3,
            targets=["targets.covid/deaths"],
        )
    )

    async def body(outputs: DirectoryOutputs) -> None:
        sha256, count = await kept(outputs, given)

        stored = await outputs.get(f"manifests/{sha256}.jsonl")
        assert count == len(given) == 2400
        assert stored == b"".join(encode_task(task) for task in given)
        assert hashlib.sha256(stored).hexdigest() == sha256
        assert await read(outputs, sha256) == given

    play(tmp_path / "o", body)


def test_the_same_tasks_are_the_same_manifest_however_they_are_written(tmp_path: Path) -> None:
    [task] = some_tasks(1)
    spaced = msgspec.json.format(encode_task(task), indent=2)
    turned = b'{"seed": %d, "params": {"x": 0}, "kind": "simulation", "entrypoint": "%s", "bundle": "%s"}'
    shuffled = turned % (task.seed, SEIR.encode(), BUNDLE.encode())

    async def body(outputs: DirectoryOutputs) -> None:
        plain = await kept(outputs, [task])

        for line in (spaced, shuffled, shuffled + b"\r\n"):
            assert await keep(outputs, each([line])) == plain

    play(tmp_path / "o", body)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"\n", "Line 1002: it is empty"),
        (b'{"bundle":"x"}', "Line 1002: it is no task"),
        (encode_task(some_tasks(1)[0]) * 2, "Line 1002: it is no task"),
    ],
)
def test_a_line_that_is_wrong_is_named_and_nothing_is_kept(
    tmp_path: Path, line: bytes, words: str
) -> None:
    lines = [encode_task(task) for task in some_tasks(1500)]
    lines[1001] = line

    async def body(outputs: DirectoryOutputs) -> None:
        with pytest.raises(Invalid, match=words):
            await keep(outputs, each(lines))

        assert [path async for path in outputs.list("")] == []

    play(tmp_path / "o", body)


def test_a_task_that_is_there_twice_is_refused_by_its_lines(tmp_path: Path) -> None:
    given = some_tasks(1500)
    given[1300] = msgspec.structs.replace(given[2], outputs=("trace.csv",))

    async def body(outputs: DirectoryOutputs) -> None:
        with pytest.raises(Invalid, match="Lines 3 and 1301 are the same task"):
            await kept(outputs, given)

        assert [path async for path in outputs.list("")] == []

    play(tmp_path / "o", body)


def test_a_manifest_without_a_task_is_refused(tmp_path: Path) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        with pytest.raises(Invalid, match="at least one task"):
            await kept(outputs, [])

    play(tmp_path / "o", body)


def test_a_manifest_has_so_many_tasks_and_not_one_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "ENTRIES_MAX", 5)

    async def body(outputs: DirectoryOutputs) -> None:
        assert (await kept(outputs, some_tasks(5)))[1] == 5
        with pytest.raises(Invalid, match="at most 5 tasks"):
            await kept(outputs, some_tasks(6))

    play(tmp_path / "o", body)


def test_a_manifest_that_is_there_is_not_written_again_unless_it_is_damaged(
    tmp_path: Path,
) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        sha256, _ = await kept(outputs, some_tasks(3))
        place = tmp_path / "o" / manifest_path(sha256)
        first = place.stat().st_ino

        await kept(outputs, some_tasks(3))
        assert place.stat().st_ino == first

        place.write_bytes(b"{}\n")
        await kept(outputs, some_tasks(3))
        assert await read(outputs, sha256) == some_tasks(3)

    play(tmp_path / "o", body)


def test_a_manifest_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        with pytest.raises(NotFound):
            await read(outputs, "ab" * 32)

    play(tmp_path / "o", body)


def test_a_damaged_manifest_is_noticed_at_its_end_at_the_latest(tmp_path: Path) -> None:
    given = some_tasks(40)
    lines = [encode_task(task) for task in given]
    damages = [
        b"".join(lines[:-1]),
        b"".join(lines[:-1]) + lines[-1][:-5],
        b"".join(lines)[:-1],
        b"".join(lines) + b"\n",
        b"".join(lines).replace(b'{"x":7}', b'{"x":8}'),
        b"".join(lines).replace(b"models.seir", b"models seir"),
        b"".join(lines).replace(b"\n", b"\r", 1),
        b"",
        b"x" * (TASK_BYTES_MAX + 1),
    ]

    async def body(outputs: DirectoryOutputs) -> None:
        sha256, _ = await kept(outputs, given)
        for damaged in damages:
            await outputs.put(manifest_path(sha256), damaged)
            with pytest.raises(Corrupt, match="is damaged"):
                await read(outputs, sha256)

    play(tmp_path / "o", body)


def test_the_line_that_is_damaged_is_named(tmp_path: Path) -> None:
    lines = [encode_task(task) for task in some_tasks(9)]
    lines[7] = lines[7].replace(b"models.seir", b"models seir")

    async def body(outputs: DirectoryOutputs) -> None:
        await outputs.put(manifest_path("ab" * 32), b"".join(lines))

        with pytest.raises(Corrupt, match="Line 8: The entrypoint 'models seir/baseline'"):
            await read(outputs, "ab" * 32)

    play(tmp_path / "o", body)


def test_a_task_is_read_before_all_of_them_are(tmp_path: Path) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        sha256, _ = await kept(outputs, some_tasks(3))
        stream = tasks(outputs, sha256)

        assert await anext(stream) == some_tasks(1)[0]
        await outputs.put(manifest_path(sha256), b"")
        assert [task async for task in stream] == some_tasks(3)[1:]

    play(tmp_path / "o", body)


# Lines


@given(st.lists(st.binary(max_size=6).map(lambda one: one.replace(b"a", b"\n")), max_size=12))
def test_lines_are_the_same_wherever_their_bytes_are_cut(parts: list[bytes]) -> None:
    async def cut() -> list[bytes]:
        return [line async for line in lines_of(each(parts))]

    whole = b"".join(parts).split(b"\n")
    assert asyncio.run(cut()) == (whole if whole[-1] else whole[:-1])


def test_a_line_that_does_not_end_is_given_up_in_time() -> None:
    asked = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal asked
        yield b"a\n"
        while True:
            asked += 1
            yield b"x" * 65536

    async def cut() -> None:
        lines = lines_of(endless())
        assert await anext(lines) == b"a"
        with pytest.raises(Invalid, match="A line has more than 1,048,576 bytes"):
            await anext(lines)

    asyncio.run(cut())
    assert asked == TASK_BYTES_MAX // 65536 + 1


# What does not work


@contextmanager
def no_file_larger_than(limit: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_takes_no_more_is_said_to_be_unavailable(tmp_path: Path) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        lines = [encode_task(task) for task in some_tasks(3000)]

        with (
            no_file_larger_than(256 * 1024),
            pytest.raises(Unavailable, match="cannot be written down here"),
        ):
            await keep(outputs, each(lines))

    play(tmp_path / "o", body)


def test_a_machine_without_a_place_for_drafts_is_said_to_be_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))

    async def body(outputs: DirectoryOutputs) -> None:
        with pytest.raises(Unavailable, match="cannot be written down here"):
            await kept(outputs, some_tasks(1))

    play(tmp_path / "o", body)


def test_where_the_lines_come_from_has_its_own_errors(tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield encode_task(some_tasks(1)[0])
        raise ConnectionResetError

    async def body(outputs: DirectoryOutputs) -> None:
        with pytest.raises(ConnectionResetError):
            await keep(outputs, broken())

        assert [path async for path in outputs.list("")] == []

    play(tmp_path / "o", body)


def test_no_draft_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drafts = tmp_path / "drafts"
    drafts.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(drafts))

    async def body(outputs: DirectoryOutputs) -> None:
        await kept(outputs, some_tasks(3))
        with pytest.raises(Invalid):
            await keep(outputs, each([b"no"]))

    play(tmp_path / "o", body)
    assert list(drafts.iterdir()) == []
