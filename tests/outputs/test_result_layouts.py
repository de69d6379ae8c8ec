"""Results in older layouts are found, and both layouts are written while there are readers of the older."""

from holdfast.outputs.directory import DirectoryOutputs
from holdfast.outputs.paths import BUNDLE_1, TOKEN_1
from holdfast.outputs.results import Results
from tests.outputs.sample_results import (
    FILES,
    FOLDER,
    ME,
    ONE,
    OTHER_SCENARIO,
    SOMEBODY,
    found_at,
    missing,
    path_of,
)


async def test_a_result_in_an_older_layout_is_found(outputs: DirectoryOutputs) -> None:
    results = Results(outputs)
    assert await found_at(results, ONE) is None
    await Results(outputs, BUNDLE_1).put(ONE, FILES, writer=ME)

    assert await found_at(results, ONE) == BUNDLE_1.path(ONE)
    assert await missing(results) is None
    assert await missing(Results(outputs, older=())) == "no result.json"

    await results.put(ONE, {"trace.csv": b"new"}, writer=SOMEBODY)
    assert await found_at(results, ONE) == FOLDER
    result = await results.get(ONE)
    assert result is not None
    assert result.writer == SOMEBODY


async def test_what_lies_in_an_older_layout_is_said_when_there_is_nothing_else(
    outputs: DirectoryOutputs,
) -> None:
    await Results(outputs, BUNDLE_1).put(OTHER_SCENARIO, FILES, writer=ME)

    [(output, _)] = await Results(outputs).validate_many([ONE])

    assert output.path == BUNDLE_1.path(ONE)
    assert output.missing == "it is the result of another entrypoint (models.seir/lockdown)"


async def test_an_older_result_that_had_to_lie_apart_is_found(outputs: DirectoryOutputs) -> None:
    older = Results(outputs, BUNDLE_1)
    await older.put(ONE, FILES, writer=ME)
    await older.put(OTHER_SCENARIO, FILES, writer=ME)

    found = await found_at(Results(outputs), OTHER_SCENARIO)

    assert found == BUNDLE_1.path_beside(OTHER_SCENARIO)
    assert await missing(Results(outputs), OTHER_SCENARIO) is None


async def test_where_one_layout_has_a_damaged_result_the_other_is_taken(
    outputs: DirectoryOutputs,
) -> None:
    results = Results(outputs, also=[BUNDLE_1])
    await results.put(ONE, FILES, writer=ME)
    await outputs.delete(path_of("loss.csv", FILES["loss.csv"]))

    assert await found_at(results, ONE) == BUNDLE_1.path(ONE)
    assert await missing(results) is None

    await outputs.delete(path_of("loss.csv", FILES["loss.csv"], BUNDLE_1.path(ONE)))
    await outputs.delete(f"{FOLDER}result.json")
    assert await missing(results) == "loss.csv is gone"


async def test_a_result_is_written_in_two_layouts_while_there_are_readers_of_the_older(
    outputs: DirectoryOutputs,
) -> None:
    await Results(outputs, also=[BUNDLE_1]).put(ONE, FILES, writer=ME)

    for schema in (TOKEN_1, BUNDLE_1):
        result = await Results(outputs, schema, older=()).get(ONE)
        assert result is not None
        assert (result.files, result.path) == (FILES, schema.path(ONE))
