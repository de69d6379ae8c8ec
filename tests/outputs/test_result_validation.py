"""Validation of many results at once: few calls, off the event loop, and nothing computed twice."""

import threading
from pathlib import Path

import msgspec
import pytest

from holdfast.core.manifest import param_id
from holdfast.outputs.directory import DirectoryOutputs
from holdfast.outputs.markers import read_marker
from holdfast.outputs.results import Results
from tests.outputs.directory_store import open_directory
from tests.outputs.sample_results import FILES, ME, ONE, ObservedStore, missing


async def test_many_are_checked_in_few_calls_and_answered_in_order(
    outputs: DirectoryOutputs,
) -> None:
    tasks = [msgspec.structs.replace(ONE, seed=seed) for seed in range(1201)]
    there = {0, 499, 500, 777, 1200}

    for seed in there:
        await Results(outputs).put(tasks[seed], {"trace.csv": b"%d" % seed}, writer=ME)
    store = ObservedStore(outputs)

    rows = await Results(store).validate_many(tasks)

    assert [output.name for output, _ in rows] == [task.name for task in tasks]
    found = {at for at, (output, _) in enumerate(rows) if output.missing is None}
    assert found == there
    assert [rows[seed][0].size for seed in sorted(there)] == [1, 3, 3, 3, 4]
    assert len(store.calls) <= 3 * (2 + 2 + 1)
    markers = sum(count for call, count in store.calls if call == "get_many")
    lacking = 1201 - len(there)  # three more places, and two of errors
    assert markers == 1201 + (3 + 2) * lacking


async def test_nothing_is_asked_for_no_task(outputs: DirectoryOutputs) -> None:
    store = ObservedStore(outputs)

    assert await Results(store).validate_many([]) == []
    assert store.calls == []


async def test_markers_are_read_off_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()

    def watched(*arguments: object) -> object:
        threads.add(threading.get_ident())
        return read_marker(*arguments)  # type: ignore[arg-type]

    async with open_directory(tmp_path / "o") as outputs:
        await Results(outputs).put(ONE, FILES, writer=ME)
        monkeypatch.setattr("holdfast.outputs.results.read_marker", watched)
        assert await missing(Results(outputs)) is None
    assert threads
    assert threading.get_ident() not in threads


async def test_the_parameters_of_a_task_are_hashed_once_and_those_of_its_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[object] = []

    def counting(params: dict[str, object]) -> str:
        counted.append(params)
        return param_id(params)  # type: ignore[arg-type]

    async with open_directory(tmp_path / "o") as outputs:
        await Results(outputs).put(ONE, FILES, writer=ME)
        monkeypatch.setattr("holdfast.core.manifest.param_id", counting)
        await Results(outputs).validate_many([msgspec.structs.replace(ONE)])
    assert len(counted) == 2
