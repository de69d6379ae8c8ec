"""submit --manifest: a study, whose results are found again by what they are made from."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from outputs_world import OutputsWorld, epidemic, table

from holdfast.cli.main import cli
from holdfast.core.manifest import encode_task
from holdfast.core.state import State
from holdfast.ports import Outputs


@pytest.fixture
def world(tmp_path: Path) -> OutputsWorld:
    return OutputsWorld(tmp_path)


def test_a_study_is_kept_and_promised_as_a_manifest(world: OutputsWorld) -> None:
    tasks = epidemic()
    world.ask_study(tasks)

    promise = world.get("j").spec.outputs
    assert promise is not None
    assert promise.entries == 8
    assert world.outputs(_store) == promise.store
    assert (world.beside / "manifests" / f"{promise.manifest}.jsonl").exists()


async def _store(outputs: Outputs) -> str:
    return outputs.store_id


def test_a_manifest_comes_from_stdin_as_well(world: OutputsWorld) -> None:
    lines = b"".join(map(encode_task, epidemic()))
    words = ["submit", "--job-id", "j", "--manifest", "-", "--", "x"]

    result = CliRunner(env={"HOLDFAST_STORE": world.url}).invoke(cli, words, input=lines)

    assert result.exit_code == 0
    assert world.get("j").spec.promised_outputs == 8


def test_the_line_of_a_manifest_that_is_wrong_is_named(world: OutputsWorld) -> None:
    file = world.manifest(epidemic())
    file.write_bytes(file.read_bytes() + b'{"bundle": 7}\n')

    refused = world.run("submit", "--manifest", str(file), "--", "x", code=2)

    assert "Line 9: " in refused.stderr
    assert world.run("list").stdout == ""


def test_the_outputs_of_a_study_are_listed_with_what_is_wrong(world: OutputsWorld) -> None:
    tasks = epidemic()
    world.partial(tasks, saved=5)

    listed = table(world.run("outputs", "j").stdout)
    lacking = table(world.run("outputs", "--missing", "j").stdout)

    assert [line[:2] for line in listed] == [
        [task.name, "there" if n < 5 else "missing"] for n, task in enumerate(tasks)
    ]
    assert [line[0] for line in lacking] == [task.name for task in tasks[5:]]
    assert lacking[0][4] == "no result.json"
    assert "5 of 8 outputs verified, 3 missing" in world.run("status", "j").stdout


def test_a_long_list_comes_page_by_page(
    world: OutputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.cli.outputs._PAGE", 3)
    tasks = epidemic()
    world.partial(tasks, saved=5)

    shown = world.run("outputs", "j").stdout
    lines = world.run("outputs", "--json", "j").stdout.splitlines()

    assert [line[0] for line in table(shown)] == [task.name for task in tasks]
    assert [json.loads(line)["name"] for line in lines] == [task.name for task in tasks]


def test_a_study_whose_results_are_all_there_runs_nothing(world: OutputsWorld) -> None:
    tasks = epidemic()
    world.save(tasks, job_id="earlier")
    file = str(world.manifest(tasks))

    made = world.run("submit", "--manifest", file, "--", "x")
    waited = world.run("submit", "--manifest", file, "--wait", "--", "x")

    job = world.get(made.stdout.strip())
    assert job.job_id.startswith("cached-")
    assert (job.state, job.result) == (State.SUCCEEDED, {"cached": True})
    told = "All 8 outputs are there already: nothing was run.\n"
    assert made.stderr == waited.stderr == told
    assert waited.stdout == ""
    status = world.run("status", job.job_id).stdout
    assert "8 of 8 outputs verified (8 reused)" in status
    assert "Cached " in status
    assert "Result" not in status
    assert "Nothing was run for it" in world.run("why", job.job_id).stdout
    assert {line[1] for line in table(world.run("outputs", job.job_id).stdout)} == {"reused"}


def test_the_same_study_under_the_same_id_is_the_same_job(world: OutputsWorld) -> None:
    tasks = epidemic()
    first = world.ask_study(tasks)

    assert world.ask_study(tasks) == first


def test_an_output_store_that_is_not_there_is_named(world: OutputsWorld) -> None:
    world.partial(epidemic(), saved=5)
    shutil.rmtree(world.beside)

    told = world.run("validate", "--force", "j", code=75)

    assert str(world.beside) in told.stderr
    assert world.get("j").state is State.PARTIAL_SUCCESS
