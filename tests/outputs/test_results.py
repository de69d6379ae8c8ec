"""Results are whole or do not count, whoever writes, dies or lies in between."""

import asyncio
import hashlib
import json
import shutil
import threading
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import permutations
from pathlib import Path

import msgspec
import pytest
from disk_world import play

from holdfast import failpoint
from holdfast.core.errors import Invalid, Unavailable
from holdfast.core.limits import MESSAGE_CHARACTERS_MAX
from holdfast.core.manifest import Task, param_id
from holdfast.outputs.directory import DirectoryOutputs
from holdfast.outputs.markers import judge
from holdfast.outputs.paths import BUNDLE_1, TOKEN_1
from holdfast.outputs.results import Results, Writer, file_path
from holdfast.ports.outputs import Digest

BUNDLE = "sha256:" + "ab" * 32
ONE = Task(bundle=BUNDLE, entrypoint="models.seir/baseline", params={"beta": 0.3}, seed=7)
OTHER_SCENARIO = msgspec.structs.replace(ONE, entrypoint="models.seir/lockdown")
WHOLE = Task(
    kind="aggregation",
    bundle=BUNDLE,
    entrypoint=ONE.entrypoint,
    params=ONE.params,
    target="targets.covid/deaths",
    seeds=(7, 8),
)
FOLDER = TOKEN_1.path(ONE)
ME = Writer("job-1", 3)
SOMEBODY = Writer("job-2", 9)
FILES = {"trace.csv": b"a,b\n1,2\n", "loss.csv": b"0.5\n"}


class Watched:
    """An output store that counts what it is asked, and tells of every write before it is made."""

    def __init__(
        self, outputs: DirectoryOutputs, told: Callable[[str], Awaitable[None]] | None = None
    ) -> None:
        self._outputs = outputs
        self._told = told
        self.calls: list[tuple[str, int]] = []
        self.store_id, self.place = outputs.store_id, outputs.place

    async def put(self, path: str, body: bytes) -> None:
        if self._told is not None:
            await self._told(path)
        await self._outputs.put(path, body)

    async def create(self, path: str, body: bytes) -> bool:
        if self._told is not None:
            await self._told(path)
        return await self._outputs.create(path, body)

    async def put_file(self, path: str, source: Path) -> None:
        await self._outputs.put_file(path, source)

    async def get(self, path: str) -> bytes | None:
        return await self._outputs.get(path)

    async def get_many(self, paths: Sequence[str]) -> "list[bytes | None]":
        self.calls.append(("get_many", len(paths)))
        return await self._outputs.get_many(paths)

    async def digests(self, paths: Sequence[str]) -> "list[Digest | None]":
        self.calls.append(("digests", len(paths)))
        return await self._outputs.digests(paths)

    def read(self, path: str) -> AsyncIterator[bytes]:
        return self._outputs.read(path)

    def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        return self._outputs.list(prefix)

    async def delete(self, path: str) -> None:
        await self._outputs.delete(path)

    async def verify(self) -> None:
        await self._outputs.verify()

    async def close(self) -> None:
        await self._outputs.close()


def path_of(name: str, body: bytes, folder: str = FOLDER) -> str:
    return file_path(folder, name, hashlib.sha256(body).hexdigest())


async def missing(results: Results, task: Task = ONE) -> str | None:
    """Why there is no result, which `get` must think as well."""
    [(output, writer)] = await results.check_many([task])
    assert (await results.get(task) is None) is (output.missing is not None)
    assert (writer is None) is (output.missing is not None)
    assert output.name == task.name
    return output.missing


@pytest.mark.parametrize("task", [ONE, WHOLE], ids=["simulation", "aggregation"])
def test_a_result_is_found_as_it_was_put(tmp_path: Path, task: Task) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        await Results(outputs).put(task, FILES, writer=ME)

        result = await Results(outputs).get(task)

        assert result is not None
        assert result.files == FILES
        assert (result.task, result.writer, result.path) == (task, ME, TOKEN_1.path(task))

    play(tmp_path / "o", body)


def test_the_evidence_is_the_marker_and_the_size_of_all_files(tmp_path: Path) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        await Results(outputs).put(ONE, FILES, writer=ME)

        [(output, writer)] = await Results(outputs).check_many([ONE])

        marker = await outputs.get(f"{FOLDER}result.json")
        assert marker is not None
        assert (output.name, output.path, output.missing) == (ONE.name, FOLDER, None)
        assert (output.size, writer) == (12, ME)
        assert output.sha256 == hashlib.sha256(marker).hexdigest()

    play(tmp_path / "o", body)


def test_the_marker_says_whose_result_it_is_and_what_is_in_it(tmp_path: Path) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
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
                name: {"size": len(one), "sha256": hashlib.sha256(one).hexdigest()}
                for name, one in FILES.items()
            },
            "writer": {"job_id": "job-1", "token": 3},
        }

    play(tmp_path / "o", body)


def test_a_file_has_what_is_in_it_in_its_name(tmp_path: Path) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        await Results(outputs).put(ONE, {"trace.csv": b"x"}, writer=ME)

        assert await outputs.get(f"{FOLDER}2d711642b726b044-trace.csv") == b"x"

    play(tmp_path / "o", body)


def test_where_nothing_is_it_says_so(tmp_path: Path) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        [(output, writer)] = await Results(outputs).check_many([ONE])

        assert (output.path, output.missing, writer) == (FOLDER, "no result.json", None)
        assert (output.size, output.sha256) == (None, None)
        assert await missing(Results(outputs)) == "no result.json"

    play(tmp_path / "o", body)


def test_the_marker_is_written_last(tmp_path: Path) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
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

    play(tmp_path / "o", body)


@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        (b"a,b\n1,3\n", "the checksum of trace.csv differs"),
        (b"a,b\n", "trace.csv has 4 bytes, not 8"),
        (None, "trace.csv is gone"),
    ],
)
def test_a_damaged_result_does_not_count_and_the_next_one_replaces_it(
    tmp_path: Path, damaged: bytes | None, words: str
) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        results = Results(outputs)
        await results.put(ONE, FILES, writer=ME)
        place = tmp_path / "o" / path_of("trace.csv", FILES["trace.csv"])

        place.unlink()
        if damaged is not None:
            place.write_bytes(damaged)

        assert await missing(results) == words
        await results.put(ONE, FILES, writer=SOMEBODY)
        [(output, writer)] = await results.check_many([ONE])
        assert (output.missing, writer) == (None, SOMEBODY)

    play(tmp_path / "o", body)


def test_an_error_result_does_not_count_and_a_good_one_replaces_it(tmp_path: Path) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
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

    play(tmp_path / "o", body)


@pytest.mark.parametrize("error", [None, "it did not converge"])
def test_a_whole_result_stays_as_it_is(tmp_path: Path, error: str | None) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        results = Results(outputs)
        await results.put(ONE, FILES, writer=ME)

        await results.put(ONE, {"trace.csv": b"other"}, writer=SOMEBODY, error=error)

        result = await results.get(ONE)
        assert result is not None
        assert (result.files, result.writer) == (FILES, ME)

    play(tmp_path / "o", body)


def test_a_result_without_a_file_that_is_asked_for_does_not_count(tmp_path: Path) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        results = Results(outputs)
        asking = msgspec.structs.replace(ONE, outputs=("b.csv", "loss.csv", "a.csv", "c.csv"))
        await results.put(ONE, FILES, writer=ME)

        assert await missing(results, asking) == "it lacks a.csv, b.csv, c.csv"
        more = {"a.csv": b"", "b.csv": b"", "c.csv": b""}
        await results.put(asking, {**FILES, **more}, writer=SOMEBODY)
        assert await missing(results, asking) is None
        assert await missing(results, ONE) is None

    play(tmp_path / "o", body)


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
def test_what_is_no_result_is_not_put(
    tmp_path: Path, task: Task, files: dict[str, bytes], words: str
) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        with pytest.raises(Invalid, match=words):
            await Results(outputs).put(task, files, writer=ME)

        assert [path async for path in outputs.list("")] == []

    play(tmp_path / "o", body)


@pytest.mark.parametrize("body", [array("d", [1.0, 2.0]), "text", [1, 2], 7])
def test_what_is_not_bytes_is_refused(tmp_path: Path, body: object) -> None:
    async def main(outputs: DirectoryOutputs) -> None:
        with pytest.raises(Invalid, match=r"trace.csv is a \w+, not bytes"):
            await Results(outputs).put(ONE, {"trace.csv": body}, writer=ME)  # type: ignore[dict-item]

        assert [path async for path in outputs.list("")] == []

    play(tmp_path / "o", main)


def test_the_bytes_of_a_view_are_counted_not_its_items(tmp_path: Path) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        numbers = array("d", [1.0, 2.0])
        files = {"a": memoryview(numbers), "b": bytearray(b"xy"), "c": memoryview(b"abcd")[::2]}
        await Results(outputs).put(ONE, files, writer=ME)  # type: ignore[arg-type]

        result = await Results(outputs).get(ONE)

        assert result is not None
        assert result.files == {"a": numbers.tobytes(), "b": b"xy", "c": b"ac"}

    play(tmp_path / "o", body)


def test_tasks_that_share_a_path_both_have_their_results(tmp_path: Path) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
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
        rows = await results.check_many([ONE, OTHER_SCENARIO])
        assert [output.path for output, _ in rows] == [
            FOLDER,
            TOKEN_1.path_apart(OTHER_SCENARIO),
        ]

        shutil.rmtree(tmp_path / "o" / FOLDER)
        assert await missing(results, OTHER_SCENARIO) is None
        assert await missing(results, ONE) == "no result.json"

    play(tmp_path / "o", body)


def test_what_is_wrong_with_its_own_result_is_said_before_whose_the_other_is(
    tmp_path: Path,
) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        results = Results(outputs)
        await results.put(ONE, FILES, writer=ME)
        await results.put(OTHER_SCENARIO, {}, writer=ME, error="no")

        [(output, _)] = await results.check_many([OTHER_SCENARIO])

        assert output.missing == "it is an error result: no"
        assert output.path == TOKEN_1.path_apart(OTHER_SCENARIO)

    play(tmp_path / "o", body)


def test_the_result_of_other_parameters_under_the_same_short_id_does_not_count(
    tmp_path: Path,
) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        results = Results(outputs)
        other = msgspec.structs.replace(ONE, params={"beta": 0.4})
        await results.put(other, FILES, writer=ME)
        shutil.copytree(tmp_path / "o" / TOKEN_1.path(other), tmp_path / "o" / FOLDER)

        assert await missing(results) == "it is the result of other parameters"

    play(tmp_path / "o", body)


def marker(*, seed: int = 7, **changes: object) -> bytes:
    task = {"bundle": BUNDLE, "entrypoint": ONE.entrypoint, "params": {"beta": 0.3}, "seed": seed}
    return json.dumps(
        {
            "format": 1,
            "task": task,
            "files": {name: {"size": 1, "sha256": "ab" * 32} for name in FILES},
            "writer": {"job_id": "job-1", "token": 3},
            **changes,
        }
    ).encode()


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
def test_a_marker_that_cannot_be_read_does_not_count(tmp_path: Path, said: bytes) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        await outputs.put(f"{FOLDER}result.json", said)

        assert await missing(Results(outputs)) == "its result.json cannot be read"
        await Results(outputs).put(ONE, FILES, writer=ME)
        assert await missing(Results(outputs)) is None

    play(tmp_path / "o", body)


def test_a_marker_may_say_more_than_we_know(tmp_path: Path) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        await outputs.put(f"{FOLDER}result.json", marker(written_at="2031-01-01"))

        assert await missing(Results(outputs)) == "trace.csv is gone"

    play(tmp_path / "o", body)


@pytest.mark.parametrize("said", [marker(format=2), b'{"format":2,"what":[]}'])
def test_what_a_newer_holdfast_wrote_is_neither_missing_nor_written_over(
    tmp_path: Path, said: bytes
) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        results = Results(outputs)
        await outputs.put(f"{FOLDER}result.json", said)

        for call in (
            results.check_many([ONE]),
            results.get(ONE),
            results.put(ONE, FILES, writer=ME),
        ):
            with pytest.raises(Unavailable, match="of a newer holdfast"):
                await call
        assert await outputs.get(f"{FOLDER}result.json") == said

    play(tmp_path / "o", body)


def test_a_store_that_cannot_be_seen_has_no_missing_results(tmp_path: Path) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        await Results(outputs).put(ONE, FILES, writer=ME)
        (tmp_path / "o").rename(tmp_path / "elsewhere")

        for call in (Results(outputs).check_many([ONE]), Results(outputs).get(ONE)):
            with pytest.raises(Unavailable):
                await call

    play(tmp_path / "o", body)


# Layouts


def test_a_result_in_an_older_layout_is_found(tmp_path: Path) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        results = Results(outputs)
        assert await results.find_output_any_version(ONE) is None
        await Results(outputs, BUNDLE_1).put(ONE, FILES, writer=ME)

        assert await results.find_output_any_version(ONE) == BUNDLE_1.path(ONE)
        assert await missing(results) is None
        assert await missing(Results(outputs, older=())) == "no result.json"

        await results.put(ONE, {"trace.csv": b"new"}, writer=SOMEBODY)
        assert await results.find_output_any_version(ONE) == FOLDER
        result = await results.get(ONE)
        assert result is not None
        assert result.writer == SOMEBODY

    play(tmp_path / "o", body)


def test_what_lies_in_an_older_layout_is_said_when_there_is_nothing_else(tmp_path: Path) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        await Results(outputs, BUNDLE_1).put(OTHER_SCENARIO, FILES, writer=ME)

        [(output, _)] = await Results(outputs).check_many([ONE])

        assert output.path == BUNDLE_1.path(ONE)
        assert output.missing == "it is the result of another entrypoint (models.seir/lockdown)"

    play(tmp_path / "o", body)


def test_an_older_result_that_had_to_lie_apart_is_found(tmp_path: Path) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        older = Results(outputs, BUNDLE_1)
        await older.put(ONE, FILES, writer=ME)
        await older.put(OTHER_SCENARIO, FILES, writer=ME)

        found = await Results(outputs).find_output_any_version(OTHER_SCENARIO)

        assert found == BUNDLE_1.path_apart(OTHER_SCENARIO)
        assert await missing(Results(outputs), OTHER_SCENARIO) is None

    play(tmp_path / "o", body)


def test_where_one_layout_has_a_damaged_result_the_other_is_taken(tmp_path: Path) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        results = Results(outputs, also=[BUNDLE_1])
        await results.put(ONE, FILES, writer=ME)
        await outputs.delete(path_of("loss.csv", FILES["loss.csv"]))

        assert await results.find_output_any_version(ONE) == BUNDLE_1.path(ONE)
        assert await missing(results) is None

        await outputs.delete(path_of("loss.csv", FILES["loss.csv"], BUNDLE_1.path(ONE)))
        await outputs.delete(f"{FOLDER}result.json")
        assert await missing(results) == "loss.csv is gone"

    play(tmp_path / "o", body)


def test_a_result_is_written_in_two_layouts_while_there_are_readers_of_the_older(
    tmp_path: Path,
) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        await Results(outputs, also=[BUNDLE_1]).put(ONE, FILES, writer=ME)

        for schema in (TOKEN_1, BUNDLE_1):
            result = await Results(outputs, schema, older=()).get(ONE)
            assert result is not None
            assert (result.files, result.path) == (FILES, schema.path(ONE))

    play(tmp_path / "o", body)


# In bulk


def test_many_are_checked_in_few_calls_and_answered_in_order(tmp_path: Path) -> None:
    tasks = [msgspec.structs.replace(ONE, seed=seed) for seed in range(1201)]
    there = {0, 499, 500, 777, 1200}

    async def body(outputs: DirectoryOutputs) -> None:
        for seed in there:
            await Results(outputs).put(tasks[seed], {"trace.csv": b"%d" % seed}, writer=ME)
        store = Watched(outputs)

        rows = await Results(store).check_many(tasks)

        assert [output.name for output, _ in rows] == [task.name for task in tasks]
        found = {at for at, (output, _) in enumerate(rows) if output.missing is None}
        assert found == there
        assert [rows[seed][0].size for seed in sorted(there)] == [1, 3, 3, 3, 4]
        assert len(store.calls) <= 3 * (2 + 2 + 1)
        markers = sum(count for call, count in store.calls if call == "get_many")
        lacking = 1201 - len(there)  # three more places, and two of errors
        assert markers == 1201 + (3 + 2) * lacking

    play(tmp_path / "o", body)


def test_nothing_is_asked_for_no_task(tmp_path: Path) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        store = Watched(outputs)

        assert await Results(store).check_many([]) == []
        assert store.calls == []

    play(tmp_path / "o", body)


def test_markers_are_read_off_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[int] = set()

    def watched(*arguments: object) -> object:
        threads.add(threading.get_ident())
        return judge(*arguments)  # type: ignore[arg-type]

    async def body(outputs: DirectoryOutputs) -> None:
        await Results(outputs).put(ONE, FILES, writer=ME)
        monkeypatch.setattr("holdfast.outputs.results.judge", watched)
        assert await missing(Results(outputs)) is None

    play(tmp_path / "o", body)
    assert threads
    assert threading.get_ident() not in threads


def test_the_parameters_of_a_task_are_hashed_once_and_those_of_its_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[object] = []

    def counting(params: dict[str, object]) -> str:
        counted.append(params)
        return param_id(params)  # type: ignore[arg-type]

    async def body(outputs: DirectoryOutputs) -> None:
        await Results(outputs).put(ONE, FILES, writer=ME)
        monkeypatch.setattr("holdfast.core.manifest.param_id", counting)
        await Results(outputs).check_many([msgspec.structs.replace(ONE)])

    play(tmp_path / "o", body)
    assert len(counted) == 2


# Races

OLD = {"a": b"old a", "b": b"old b"}
NEW = {"a": b"new a", "b": b"new b"}
ASKING = msgspec.structs.replace(ONE, outputs=("a", "b", "c"))


def test_a_reader_finds_the_whole_old_result_until_it_finds_the_whole_new_one(
    tmp_path: Path,
) -> None:
    seen: list[object] = []

    async def body(outputs: DirectoryOutputs) -> None:
        async def look(path: str) -> None:
            result = await Results(outputs).get(ONE)
            seen.append(None if result is None else result.files)

        await Results(outputs).put(ONE, OLD, writer=ME)
        await Results(Watched(outputs, look)).put(ASKING, {**NEW, "c": b""}, writer=SOMEBODY)
        await look("at the end")

    play(tmp_path / "o", body)
    assert seen == [OLD, OLD, OLD, OLD, {**NEW, "c": b""}]


def test_two_who_write_at_once_leave_one_whole_result_in_every_order(tmp_path: Path) -> None:
    orders = sorted(set(permutations([0, 0, 0, 1, 1, 1])))

    async def body(outputs: DirectoryOutputs) -> None:
        for number, order in enumerate(orders):
            task = msgspec.structs.replace(ONE, seed=number)
            whole = False
            async for files, marked in _interleaved(outputs, task, order):
                whole = whole or marked
                assert files in ((OLD, NEW) if whole else (None,)), order

    play(tmp_path / "o", body)


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

        await Results(Watched(outputs, wait)).put(task, files, writer=ME)
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
def test_an_error_that_comes_late_leaves_the_whole_result_that_came_before_it(
    tmp_path: Path, files: dict[str, bytes], damaged: bool
) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        if damaged:
            await outputs.put(f"{FOLDER}result.json", marker())

        async def overtaken(path: str) -> None:
            await Results(outputs).put(ONE, FILES, writer=SOMEBODY)

        zombie = Results(Watched(outputs, overtaken))
        await zombie.put(ONE, files, writer=ME, error="I was frozen")

        result = await Results(outputs).get(ONE)
        assert result is not None
        assert (result.files, result.writer) == (FILES, SOMEBODY)
        assert await missing(Results(outputs)) is None

    play(tmp_path / "o", body)


@pytest.mark.parametrize("error", [None, "it did not converge"])
def test_tasks_that_share_a_folder_and_write_at_once_lose_nothing(
    tmp_path: Path, error: str | None
) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        async def overtaken(path: str) -> None:
            if path.startswith(f"{FOLDER}") and path.endswith(("result.json", "error.json")):
                await Results(outputs).put(OTHER_SCENARIO, NEW, writer=SOMEBODY, error=error)

        await Results(Watched(outputs, overtaken)).put(ONE, OLD, writer=ME, error=error)

        said = error and f"it is an error result: {error}"
        rows = await Results(outputs).check_many([OTHER_SCENARIO, ONE])
        assert [output.missing for output, _ in rows] == [said, said]
        assert [output.path for output, _ in rows] == [FOLDER, TOKEN_1.path_apart(ONE)]
        assert [writer for _, writer in rows] == ([None, None] if error else [SOMEBODY, ME])

    play(tmp_path / "o", body)


def test_a_marker_of_which_nobody_knows_whose_it_is_is_not_written_over(tmp_path: Path) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        await outputs.put(f"{FOLDER}result.json", b"{")

        await Results(outputs).put(ONE, OLD, writer=ME)
        await Results(outputs).put(OTHER_SCENARIO, NEW, writer=ME)

        assert await missing(Results(outputs), ONE) is None
        assert await missing(Results(outputs), OTHER_SCENARIO) is None
        assert await outputs.get(f"{FOLDER}result.json") == b"{"

    play(tmp_path / "o", body)


def test_a_marker_that_comes_and_goes_is_told_rather_than_tried_for_ever(tmp_path: Path) -> None:
    tried: list[str] = []

    class Fickle(Watched):
        async def create(self, path: str, body: bytes) -> bool:
            tried.append(path)
            return False

    async def body(outputs: DirectoryOutputs) -> None:
        with pytest.raises(Unavailable, match="changes while it is written"):
            await Results(Fickle(outputs)).put(ONE, FILES, writer=ME)

    play(tmp_path / "o", body)
    assert tried == [f"{FOLDER}result.json"] * 4


def test_an_error_in_the_marker_itself_is_read_and_replaced(tmp_path: Path) -> None:
    async def body(outputs: DirectoryOutputs) -> None:
        await outputs.put(f"{FOLDER}result.json", marker(error="by hand", files={}))
        assert await missing(Results(outputs)) == "it is an error result: by hand"

        await Results(outputs).put(ONE, FILES, writer=ME)

        assert await Results(outputs).find_output_any_version(ONE) == FOLDER

    play(tmp_path / "o", body)
