"""Markers of results: what they record, and what is refused or kept when they cannot be read."""

import hashlib
import json

import msgspec
import pytest

from holdfast.core.errors import Unavailable
from holdfast.outputs.directory import DirectoryOutputs
from holdfast.outputs.results import Results
from tests.outputs.sample_results import (
    BUNDLE,
    FILES,
    FOLDER,
    ME,
    NEW,
    OLD,
    ONE,
    OTHER_SCENARIO,
    found_at,
    marker,
    missing,
)


async def test_the_marker_says_whose_result_it_is_and_what_is_in_it(
    outputs: DirectoryOutputs,
) -> None:
    task = msgspec.structs.replace(ONE, outputs=("loss.csv",))
    await Results(outputs).put(task, FILES, writer=ME)

    marker = json.loads(await outputs.get(f"{FOLDER}result.json") or b"")

    assert marker == {
        "format": 1,
        "task": {
            "bundle": BUNDLE,
            "entrypoint": "models.seir/baseline",
            "params": {"beta": 0.3},
            "seed": 7,
        },
        "files": {
            name: {"size": len(one), "sha256": hashlib.sha256(one).hexdigest()} for name, one in FILES.items()
        },
        "writer": {"job_id": "job-1", "token": 3},
    }


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"{",
        b"\xff",
        b'{"format":1,"task":"\xff"}',
        b'{"task_id":"a","outputs":{}}',
        marker().replace(b"models.seir", b"models\xffseir"),
        marker(format="1"),
        b'{"format":' + b"[" * 100_000,
        b'{"format":1,"task":' + b"[" * 100_000,
        marker(more=None).replace(b"null", b"[" * 100_000 + b"]" * 100_000),
        marker(seed=-1),
        marker(writer=None),
        marker(files={}),
        marker(files={"../x": {"size": 1, "sha256": "ab" * 32}}),
        marker(files={"a": {"size": 1, "sha256": "../../../../../etc"}}),
        marker(files={"a": {"size": 1, "sha256": "ab" * 32 + "\n"}}),
    ],
)
async def test_a_marker_that_cannot_be_read_does_not_count(said: bytes, outputs: DirectoryOutputs) -> None:
    await outputs.put(f"{FOLDER}result.json", said)

    assert await missing(Results(outputs)) == "its result.json cannot be read"
    await Results(outputs).put(ONE, FILES, writer=ME)
    assert await missing(Results(outputs)) is None


async def test_a_marker_may_say_more_than_we_know(outputs: DirectoryOutputs) -> None:
    await outputs.put(f"{FOLDER}result.json", marker(written_at="2031-01-01"))

    assert await missing(Results(outputs)) == "trace.csv is gone"


@pytest.mark.parametrize("said", [marker(format=2), b'{"format":2,"what":[]}'])
async def test_what_a_newer_holdfast_wrote_is_neither_missing_nor_written_over(
    said: bytes, outputs: DirectoryOutputs
) -> None:
    results = Results(outputs)
    await outputs.put(f"{FOLDER}result.json", said)

    for call in (
        results.validate_many([ONE]),
        results.get(ONE),
        results.put(ONE, FILES, writer=ME),
    ):
        with pytest.raises(Unavailable, match="of a newer holdfast"):
            await call
    assert await outputs.get(f"{FOLDER}result.json") == said


async def test_a_marker_of_which_nobody_knows_whose_it_is_is_not_written_over(
    outputs: DirectoryOutputs,
) -> None:
    await outputs.put(f"{FOLDER}result.json", b"{")

    await Results(outputs).put(ONE, OLD, writer=ME)
    await Results(outputs).put(OTHER_SCENARIO, NEW, writer=ME)

    assert await missing(Results(outputs), ONE) is None
    assert await missing(Results(outputs), OTHER_SCENARIO) is None
    assert await outputs.get(f"{FOLDER}result.json") == b"{"


async def test_an_error_in_the_marker_itself_is_read_and_replaced(
    outputs: DirectoryOutputs,
) -> None:
    await outputs.put(f"{FOLDER}result.json", marker(error="by hand", files={}))
    assert await missing(Results(outputs)) == "it is an error result: by hand"

    await Results(outputs).put(ONE, FILES, writer=ME)

    assert await found_at(Results(outputs), ONE) == FOLDER
