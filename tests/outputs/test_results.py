"""Results are whole or do not count, whoever writes, dies or lies in between."""

import hashlib
import json
import shutil
from array import array
from pathlib import Path

import msgspec
import pytest

from holdfast import failpoint
from holdfast.core.errors import Invalid, Unavailable
from holdfast.core.limits import MESSAGE_CHARACTERS_MAX
from holdfast.core.manifest import Task
from holdfast.outputs.directory import DirectoryOutputs
from holdfast.outputs.paths import TOKEN_1
from holdfast.outputs.results import Results
from tests.outputs.sample_results import (
    FILES,
    FOLDER,
    ME,
    ONE,
    OTHER_SCENARIO,
    SOMEBODY,
    WHOLE,
    missing,
    path_of,
)


@pytest.mark.parametrize("task", [ONE, WHOLE], ids=["simulation", "aggregation"])
async def test_a_result_is_found_as_it_was_put(task: Task, outputs: DirectoryOutputs) -> None:
    await Results(outputs).put(task, FILES, writer=ME)

    result = await Results(outputs).get(task)

    assert result is not None
    assert result.files == FILES
    assert (result.task, result.writer, result.path) == (task, ME, TOKEN_1.path(task))


async def test_the_evidence_is_the_marker_and_the_size_of_all_files(
    outputs: DirectoryOutputs,
) -> None:
    await Results(outputs).put(ONE, FILES, writer=ME)

    [(output, writer)] = await Results(outputs).validate_many([ONE])

    marker = await outputs.get(f"{FOLDER}result.json")
    assert marker is not None
    assert (output.name, output.path, output.missing) == (ONE.name, FOLDER, None)
    assert (output.size, writer) == (12, ME)
    assert output.sha256 == hashlib.sha256(marker).hexdigest()


async def test_a_file_has_what_is_in_it_in_its_name(outputs: DirectoryOutputs) -> None:
    await Results(outputs).put(ONE, {"trace.csv": b"x"}, writer=ME)

    assert await outputs.get(f"{FOLDER}2d711642b726b044-trace.csv") == b"x"


async def test_where_nothing_is_it_says_so(outputs: DirectoryOutputs) -> None:
    [(output, writer)] = await Results(outputs).validate_many([ONE])

    assert (output.path, output.missing, writer) == (FOLDER, "no result.json", None)
    assert (output.size, output.sha256) == (None, None)
    assert await missing(Results(outputs)) == "no result.json"


async def test_the_marker_is_written_last(outputs: DirectoryOutputs) -> None:
    def die(name: str) -> None:
        if name == "outputs.result_files_written":
            raise KeyboardInterrupt

    failpoint.arm(die)
    try:
        with pytest.raises(KeyboardInterrupt):
            await Results(outputs).put(ONE, FILES, writer=ME)
    finally:
        failpoint.arm(None)

    there = {path async for path, _ in outputs.list(FOLDER)}
    assert there == {path_of(name, one) for name, one in FILES.items()}
    assert await missing(Results(outputs)) == "no result.json"


@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        (b"a,b\n1,3\n", "the checksum of trace.csv differs"),
        (b"a,b\n", "trace.csv has 4 bytes, not 8"),
        (None, "trace.csv is gone"),
    ],
)
async def test_a_damaged_result_does_not_count_and_the_next_one_replaces_it(
    tmp_path: Path, damaged: bytes | None, words: str, outputs: DirectoryOutputs
) -> None:
    results = Results(outputs)
    await results.put(ONE, FILES, writer=ME)
    place = tmp_path / "o" / path_of("trace.csv", FILES["trace.csv"])

    place.unlink()
    if damaged is not None:
        place.write_bytes(damaged)

    assert await missing(results) == words
    await results.put(ONE, FILES, writer=SOMEBODY)
    [(output, writer)] = await results.validate_many([ONE])
    assert (output.missing, writer) == (None, SOMEBODY)


async def test_an_error_result_does_not_count_and_a_good_one_replaces_it(
    outputs: DirectoryOutputs,
) -> None:
    results = Results(outputs)

    await results.put(ONE, {}, writer=ME, error="it did not converge")
    assert await missing(results) == "it is an error result: it did not converge"
    await results.put(ONE, FILES, writer=ME, error="x" * 9999)
    reason = await missing(results)
    assert reason is not None
    assert len(reason) < 400
    await outputs.delete(path_of("loss.csv", FILES["loss.csv"]))
    assert await missing(results) == reason
    assert await outputs.get(f"{FOLDER}result.json") is None
    marked = json.loads(await outputs.get(f"{FOLDER}error.json") or b"")
    assert len(marked["error"]) <= MESSAGE_CHARACTERS_MAX

    await results.put(ONE, FILES, writer=ME)
    assert await missing(results) is None


@pytest.mark.parametrize("error", [None, "it did not converge"])
async def test_a_whole_result_stays_as_it_is(error: str | None, outputs: DirectoryOutputs) -> None:
    results = Results(outputs)
    await results.put(ONE, FILES, writer=ME)

    await results.put(ONE, {"trace.csv": b"other"}, writer=SOMEBODY, error=error)

    result = await results.get(ONE)
    assert result is not None
    assert (result.files, result.writer) == (FILES, ME)


async def test_a_result_without_a_file_that_is_asked_for_does_not_count(
    outputs: DirectoryOutputs,
) -> None:
    results = Results(outputs)
    asking = msgspec.structs.replace(ONE, outputs=("b.csv", "loss.csv", "a.csv", "c.csv"))
    await results.put(ONE, FILES, writer=ME)

    assert await missing(results, asking) == "it lacks a.csv, b.csv, c.csv"
    more = {"a.csv": b"", "b.csv": b"", "c.csv": b""}
    await results.put(asking, {**FILES, **more}, writer=SOMEBODY)
    assert await missing(results, asking) is None
    assert await missing(results, ONE) is None


@pytest.mark.parametrize(
    ("task", "files", "words"),
    [
        (ONE, {}, "at least one file, unless it is an error"),
        (ONE, {"../x": b""}, "cannot be called '../x'"),
        (ONE, {"result.json": b"{}"}, "cannot be called result.json"),
        (msgspec.structs.replace(ONE, outputs=("d", "a", "b")), {"b": b""}, "lacks a, d,"),
        (msgspec.structs.replace(ONE, seed=None), FILES, "A simulation needs a seed"),
    ],
)
async def test_what_is_no_result_is_not_put(
    task: Task, files: dict[str, bytes], words: str, outputs: DirectoryOutputs
) -> None:
    with pytest.raises(Invalid, match=words):
        await Results(outputs).put(task, files, writer=ME)

    assert [path async for path in outputs.list("")] == []


@pytest.mark.parametrize("body", [array("d", [1.0, 2.0]), "text", [1, 2], 7])
async def test_what_is_not_bytes_is_refused(body: object, outputs: DirectoryOutputs) -> None:
    with pytest.raises(Invalid, match=r"trace.csv is a \w+, not bytes"):
        await Results(outputs).put(ONE, {"trace.csv": body}, writer=ME)  # type: ignore[dict-item]

    assert [path async for path in outputs.list("")] == []


async def test_the_bytes_of_a_view_are_counted_not_its_items(outputs: DirectoryOutputs) -> None:
    numbers = array("d", [1.0, 2.0])
    files = {"a": memoryview(numbers), "b": bytearray(b"xy"), "c": memoryview(b"abcd")[::2]}
    await Results(outputs).put(ONE, files, writer=ME)  # type: ignore[arg-type]

    result = await Results(outputs).get(ONE)

    assert result is not None
    assert result.files == {"a": numbers.tobytes(), "b": b"xy", "c": b"ac"}


async def test_tasks_that_share_a_path_both_have_their_results(
    tmp_path: Path, outputs: DirectoryOutputs
) -> None:
    results = Results(outputs)
    await results.put(ONE, FILES, writer=ME)
    of_another = "it is the result of another entrypoint (models.seir/baseline)"
    assert await missing(results, OTHER_SCENARIO) == of_another

    await results.put(OTHER_SCENARIO, {"trace.csv": b"locked"}, writer=ME)
    await results.put(OTHER_SCENARIO, {"trace.csv": b"again"}, writer=SOMEBODY)

    one, other = await results.get(ONE), await results.get(OTHER_SCENARIO)
    assert one is not None
    assert other is not None
    assert (one.files, other.files) == (FILES, {"trace.csv": b"locked"})
    rows = await results.validate_many([ONE, OTHER_SCENARIO])
    assert [output.path for output, _ in rows] == [
        FOLDER,
        TOKEN_1.path_beside(OTHER_SCENARIO),
    ]

    shutil.rmtree(tmp_path / "o" / FOLDER)
    assert await missing(results, OTHER_SCENARIO) is None
    assert await missing(results, ONE) == "no result.json"


async def test_what_is_wrong_with_its_own_result_is_said_before_whose_the_other_is(
    outputs: DirectoryOutputs,
) -> None:
    results = Results(outputs)
    await results.put(ONE, FILES, writer=ME)
    await results.put(OTHER_SCENARIO, {}, writer=ME, error="no")

    [(output, _)] = await results.validate_many([OTHER_SCENARIO])

    assert output.missing == "it is an error result: no"
    assert output.path == TOKEN_1.path_beside(OTHER_SCENARIO)


async def test_the_result_of_other_parameters_under_the_same_short_id_does_not_count(
    tmp_path: Path, outputs: DirectoryOutputs
) -> None:
    results = Results(outputs)
    other = msgspec.structs.replace(ONE, params={"beta": 0.4})
    await results.put(other, FILES, writer=ME)
    shutil.copytree(tmp_path / "o" / TOKEN_1.path(other), tmp_path / "o" / FOLDER)

    assert await missing(results) == "it is the result of other parameters"


async def test_a_store_that_cannot_be_seen_has_no_missing_results(
    tmp_path: Path, outputs: DirectoryOutputs
) -> None:
    await Results(outputs).put(ONE, FILES, writer=ME)
    (tmp_path / "o").rename(tmp_path / "elsewhere")

    for call in (Results(outputs).validate_many([ONE]), Results(outputs).get(ONE)):
        with pytest.raises(Unavailable):
            await call
