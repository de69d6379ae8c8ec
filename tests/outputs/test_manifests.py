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
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import Corrupt, Invalid, NotFound, Unavailable
from holdfast.core.limits import TASK_BYTES_MAX
from holdfast.core.manifest import Task, encode_task, study
from holdfast.outputs import manifests
from holdfast.outputs.directory import DirectoryOutputs
from holdfast.outputs.manifests import manifest_path, read_tasks, split_lines, store_manifest
from tests.outputs.directory_store import open_directory

BUNDLE = "sha256:" + "ab" * 32
SEIR = "models.seir/baseline"


def some_tasks(count: int) -> list[Task]:
    sets = ({"x": number} for number in range(count))
    return list(study(bundle=BUNDLE, entrypoint=SEIR, parameter_sets=sets))


async def each(items: Iterable[bytes]) -> AsyncIterator[bytes]:
    for one in items:
        yield one


async def kept(outputs: DirectoryOutputs, given: Iterable[Task]) -> tuple[str, int]:
    return await store_manifest(outputs, each(encode_task(task) for task in given))


async def read(outputs: DirectoryOutputs, sha256: str) -> list[Task]:
    return [task async for task in read_tasks(outputs, sha256)]


async def test_a_manifest_is_read_as_it_was_kept(outputs: DirectoryOutputs) -> None:
    given = list(
        study(
            bundle=BUNDLE,
            entrypoint=SEIR,
            parameter_sets=[{"x": number} for number in range(600)],
            replicates=3,
            targets=["targets.covid/deaths"],
        )
    )

    sha256, count = await kept(outputs, given)

    stored = await outputs.get(f"manifests/{sha256}.jsonl")
    assert count == len(given) == 2400
    assert stored == b"".join(encode_task(task) for task in given)
    assert hashlib.sha256(stored).hexdigest() == sha256
    assert await read(outputs, sha256) == given


async def test_the_same_tasks_are_the_same_manifest_however_they_are_written(
    outputs: DirectoryOutputs,
) -> None:
    [task] = some_tasks(1)
    spaced = msgspec.json.format(encode_task(task), indent=2)
    turned = b'{"seed": %d, "params": {"x": 0}, "kind": "simulation", "entrypoint": "%s", "bundle": "%s"}'
    shuffled = turned % (task.seed, SEIR.encode(), BUNDLE.encode())

    plain = await kept(outputs, [task])

    for line in (spaced, shuffled, shuffled + b"\r\n"):
        assert await store_manifest(outputs, each([line])) == plain


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"\n", "Line 1002: it is empty"),
        (b'{"bundle":"x"}', "Line 1002: it is not a task"),
        (encode_task(some_tasks(1)[0]) * 2, "Line 1002: it is not a task"),
    ],
)
async def test_a_line_that_is_wrong_is_named_and_nothing_is_kept(
    line: bytes, words: str, outputs: DirectoryOutputs
) -> None:
    lines = [encode_task(task) for task in some_tasks(1500)]
    lines[1001] = line

    with pytest.raises(Invalid, match=words):
        await store_manifest(outputs, each(lines))

    assert [path async for path in outputs.list("")] == []


async def test_a_task_that_is_there_twice_is_refused_by_its_lines(
    outputs: DirectoryOutputs,
) -> None:
    given = some_tasks(1500)
    given[1300] = msgspec.structs.replace(given[2], outputs=("trace.csv",))

    with pytest.raises(Invalid, match="Lines 3 and 1301 are the same task"):
        await kept(outputs, given)

    assert [path async for path in outputs.list("")] == []


async def test_a_manifest_without_a_task_is_refused(outputs: DirectoryOutputs) -> None:
    with pytest.raises(Invalid, match="at least one task"):
        await kept(outputs, [])


async def test_a_manifest_has_so_many_tasks_and_not_one_more(
    monkeypatch: pytest.MonkeyPatch, outputs: DirectoryOutputs
) -> None:
    monkeypatch.setattr(manifests, "ENTRIES_MAX", 5)

    assert (await kept(outputs, some_tasks(5)))[1] == 5
    with pytest.raises(Invalid, match="at most 5 tasks"):
        await kept(outputs, some_tasks(6))


async def test_a_manifest_that_is_there_is_not_written_again_unless_it_is_damaged(
    tmp_path: Path, outputs: DirectoryOutputs
) -> None:
    sha256, _ = await kept(outputs, some_tasks(3))
    place = tmp_path / "o" / manifest_path(sha256)
    first = place.stat().st_ino

    await kept(outputs, some_tasks(3))
    assert place.stat().st_ino == first

    place.write_bytes(b"{}\n")
    await kept(outputs, some_tasks(3))
    assert await read(outputs, sha256) == some_tasks(3)


async def test_a_manifest_that_is_not_there_is_not_found(outputs: DirectoryOutputs) -> None:
    with pytest.raises(NotFound):
        await read(outputs, "ab" * 32)


async def test_a_damaged_manifest_is_noticed_at_its_end_at_the_latest(
    outputs: DirectoryOutputs,
) -> None:
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

    sha256, _ = await kept(outputs, given)
    for damaged in damages:
        await outputs.put(manifest_path(sha256), damaged)
        with pytest.raises(Corrupt, match="is damaged"):
            await read(outputs, sha256)


async def test_the_line_that_is_damaged_is_named(outputs: DirectoryOutputs) -> None:
    lines = [encode_task(task) for task in some_tasks(9)]
    lines[7] = lines[7].replace(b"models.seir", b"models seir")

    await outputs.put(manifest_path("ab" * 32), b"".join(lines))

    with pytest.raises(Corrupt, match="Line 8: The entrypoint 'models seir/baseline'"):
        await read(outputs, "ab" * 32)


async def test_a_task_is_read_before_all_of_them_are(outputs: DirectoryOutputs) -> None:
    sha256, _ = await kept(outputs, some_tasks(3))
    stream = read_tasks(outputs, sha256)

    assert await anext(stream) == some_tasks(1)[0]
    await outputs.put(manifest_path(sha256), b"")
    assert [task async for task in stream] == some_tasks(3)[1:]


# Lines


@given(st.lists(st.binary(max_size=6).map(lambda one: one.replace(b"a", b"\n")), max_size=12))
def test_lines_are_the_same_wherever_their_bytes_are_cut(parts: list[bytes]) -> None:
    async def cut() -> list[bytes]:
        return [line async for line in split_lines(each(parts))]

    whole = b"".join(parts).split(b"\n")
    assert asyncio.run(cut()) == (whole if whole[-1] else whole[:-1])


async def test_a_line_that_does_not_end_is_given_up_in_time() -> None:
    asked = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal asked
        yield b"a\n"
        while True:
            asked += 1
            yield b"x" * 65536

    lines = split_lines(endless())
    assert await anext(lines) == b"a"
    with pytest.raises(Invalid, match="A line has more than 1,048,576 bytes"):
        await anext(lines)
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


async def test_a_disk_that_takes_no_more_is_said_to_be_unavailable(
    outputs: DirectoryOutputs,
) -> None:
    lines = [encode_task(task) for task in some_tasks(3000)]

    with (
        no_file_larger_than(256 * 1024),
        pytest.raises(Unavailable, match="cannot be written to a temporary file"),
    ):
        await store_manifest(outputs, each(lines))


async def test_a_machine_without_a_place_for_drafts_is_said_to_be_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outputs: DirectoryOutputs
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))

    with pytest.raises(Unavailable, match="cannot be written to a temporary file"):
        await kept(outputs, some_tasks(1))


async def test_where_the_lines_come_from_has_its_own_errors(outputs: DirectoryOutputs) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield encode_task(some_tasks(1)[0])
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await store_manifest(outputs, broken())

    assert [path async for path in outputs.list("")] == []


async def test_no_draft_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drafts = tmp_path / "drafts"
    drafts.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(drafts))

    async with open_directory(tmp_path / "o") as outputs:
        await kept(outputs, some_tasks(3))
        with pytest.raises(Invalid):
            await store_manifest(outputs, each([b"no"]))
    assert list(drafts.iterdir()) == []
