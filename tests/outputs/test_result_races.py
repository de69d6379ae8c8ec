"""Several writers and readers of one result: it is whole in every order."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import permutations
from pathlib import Path

import msgspec
import pytest

from holdfast.core.errors import Unavailable
from holdfast.core.manifest import Task
from holdfast.outputs.directory import DirectoryOutputs
from holdfast.outputs.paths import TOKEN_1
from holdfast.outputs.results import Results
from tests.outputs.directory_store import open_directory
from tests.outputs.sample_results import (
    FILES,
    FOLDER,
    ME,
    NEW,
    OLD,
    ONE,
    OTHER_SCENARIO,
    SOMEBODY,
    ObservedStore,
    marker,
    missing,
)

ASKING = msgspec.structs.replace(ONE, outputs=("a", "b", "c"))


async def test_a_reader_finds_the_whole_old_result_until_it_finds_the_whole_new_one(
    tmp_path: Path,
) -> None:
    seen: list[object] = []

    async with open_directory(tmp_path / "o") as outputs:

        async def look(path: str) -> None:
            result = await Results(outputs).get(ONE)
            seen.append(None if result is None else result.files)

        await Results(outputs).put(ONE, OLD, writer=ME)
        await Results(ObservedStore(outputs, look)).put(ASKING, {**NEW, "c": b""}, writer=SOMEBODY)
        await look("at the end")
    assert seen == [OLD, OLD, OLD, OLD, {**NEW, "c": b""}]


async def test_two_who_write_at_once_leave_one_whole_result_in_every_order(
    outputs: DirectoryOutputs,
) -> None:
    orders = sorted(set(permutations([0, 0, 0, 1, 1, 1])))

    for number, order in enumerate(orders):
        task = msgspec.structs.replace(ONE, seed=number)
        whole = False
        async for files, marked in _interleaved(outputs, task, order):
            whole = whole or marked
            assert files in ((OLD, NEW) if whole else (None,)), order


async def _interleaved(
    outputs: DirectoryOutputs, task: Task, order: Sequence[int]
) -> AsyncIterator[tuple[dict[str, bytes] | None, bool]]:
    """Two write, in this order; after each step, what a reader finds, and whether it was a marker."""
    turns = [asyncio.Queue[None](), asyncio.Queue[None]()]
    about: asyncio.Queue[str] = asyncio.Queue()

    async def write(number: int, files: dict[str, bytes]) -> None:
        async def wait(path: str) -> None:
            await about.put(path)
            await turns[number].get()

        await Results(ObservedStore(outputs, wait)).put(task, files, writer=ME)
        await about.put("done")

    async with asyncio.TaskGroup() as group:
        group.create_task(write(0, OLD))
        group.create_task(write(1, NEW))
        await about.get()
        await about.get()
        for step, number in enumerate(order, 1):
            turns[number].put_nowait(None)
            await about.get()
            result = await Results(outputs).get(task)
            marked = order[:step].count(number) == 3
            yield None if result is None else result.files, marked


@pytest.mark.parametrize("damaged", [True, False])
@pytest.mark.parametrize("files", [{}, {"trace.csv": b"half"}])
async def test_an_error_that_comes_late_leaves_the_whole_result_that_came_before_it(
    files: dict[str, bytes], damaged: bool, outputs: DirectoryOutputs
) -> None:
    if damaged:
        await outputs.put(f"{FOLDER}result.json", marker())

    async def overtaken(path: str) -> None:
        await Results(outputs).put(ONE, FILES, writer=SOMEBODY)

    zombie = Results(ObservedStore(outputs, overtaken))
    await zombie.put(ONE, files, writer=ME, error="I was frozen")

    result = await Results(outputs).get(ONE)
    assert result is not None
    assert (result.files, result.writer) == (FILES, SOMEBODY)
    assert await missing(Results(outputs)) is None


@pytest.mark.parametrize("error", [None, "it did not converge"])
async def test_tasks_that_share_a_folder_and_write_at_once_lose_nothing(
    error: str | None, outputs: DirectoryOutputs
) -> None:
    async def overtaken(path: str) -> None:
        if path.startswith(f"{FOLDER}") and path.endswith(("result.json", "error.json")):
            await Results(outputs).put(OTHER_SCENARIO, NEW, writer=SOMEBODY, error=error)

    await Results(ObservedStore(outputs, overtaken)).put(ONE, OLD, writer=ME, error=error)

    said = error and f"it is an error result: {error}"
    rows = await Results(outputs).validate_many([OTHER_SCENARIO, ONE])
    assert [output.missing for output, _ in rows] == [said, said]
    assert [output.path for output, _ in rows] == [FOLDER, TOKEN_1.path_beside(ONE)]
    assert [writer for _, writer in rows] == ([None, None] if error else [SOMEBODY, ME])


async def test_a_marker_that_comes_and_goes_is_told_rather_than_tried_for_ever(
    tmp_path: Path,
) -> None:
    tried: list[str] = []

    class Fickle(ObservedStore):
        async def create(self, path: str, body: bytes) -> bool:
            tried.append(path)
            return False

    async with open_directory(tmp_path / "o") as outputs:
        with pytest.raises(Unavailable, match="changes while it is written"):
            await Results(Fickle(outputs)).put(ONE, FILES, writer=ME)
    assert tried == [f"{FOLDER}result.json"] * 4
