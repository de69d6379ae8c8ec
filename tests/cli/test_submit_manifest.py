"""`submit --manifest`: a study, whose results are found again by what they are made from."""

import json
import shutil

import pytest
from click.testing import CliRunner

from holdfast.cli.main import cli
from holdfast.core.manifest import encode_task
from holdfast.core.state import State
from holdfast.ports import Outputs
from tests.cli.outputs_command_line import OutputsCommandLine, epidemic, table


def test_a_study_is_kept_and_promised_as_a_manifest(outputs_cli: OutputsCommandLine) -> None:
    tasks = epidemic()
    outputs_cli.ask_study(tasks)

    promise = outputs_cli.get("j").spec.outputs
    assert promise is not None
    assert promise.entries == 8
    assert outputs_cli.outputs(_store) == promise.store
    assert (outputs_cli.beside / "manifests" / f"{promise.manifest}.jsonl").exists()


async def _store(outputs: Outputs) -> str:
    return outputs.store_id


def test_a_manifest_comes_from_stdin_as_well(outputs_cli: OutputsCommandLine) -> None:
    lines = b"".join(map(encode_task, epidemic()))
    words = ["submit", "--job-id", "j", "--manifest", "-", "--", "x"]

    result = CliRunner(env={"HOLDFAST_STORE": outputs_cli.url}).invoke(cli, words, input=lines)

    assert result.exit_code == 0
    assert outputs_cli.get("j").spec.promised_outputs == 8


def test_the_line_of_a_manifest_that_is_wrong_is_named(outputs_cli: OutputsCommandLine) -> None:
    file = outputs_cli.manifest(epidemic())
    file.write_bytes(file.read_bytes() + b'{"bundle": 7}\n')

    refused = outputs_cli.run("submit", "--manifest", str(file), "--", "x", code=2)

    assert "Line 9: " in refused.stderr
    assert outputs_cli.run("list").stdout == ""


def test_the_outputs_of_a_study_are_listed_with_what_is_wrong(
    outputs_cli: OutputsCommandLine,
) -> None:
    tasks = epidemic()
    outputs_cli.partial(tasks, saved=5)

    listed = table(outputs_cli.run("outputs", "j").stdout)
    lacking = table(outputs_cli.run("outputs", "--missing", "j").stdout)

    assert [line[:2] for line in listed] == [
        [task.name, "there" if n < 5 else "missing"] for n, task in enumerate(tasks)
    ]
    assert [line[0] for line in lacking] == [task.name for task in tasks[5:]]
    assert lacking[0][4] == "no result.json"
    assert "5 of 8 outputs verified, 3 missing" in outputs_cli.run("status", "j").stdout


def test_a_long_list_comes_page_by_page(
    outputs_cli: OutputsCommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.cli.outputs._PAGE", 3)
    tasks = epidemic()
    outputs_cli.partial(tasks, saved=5)

    shown = outputs_cli.run("outputs", "j").stdout
    lines = outputs_cli.run("outputs", "--json", "j").stdout.splitlines()

    assert [line[0] for line in table(shown)] == [task.name for task in tasks]
    assert [json.loads(line)["name"] for line in lines] == [task.name for task in tasks]


def test_a_study_whose_results_are_all_there_runs_nothing(outputs_cli: OutputsCommandLine) -> None:
    tasks = epidemic()
    outputs_cli.save(tasks, job_id="earlier")
    file = str(outputs_cli.manifest(tasks))

    made = outputs_cli.run("submit", "--manifest", file, "--", "x")
    waited = outputs_cli.run("submit", "--manifest", file, "--wait", "--", "x")

    job = outputs_cli.get(made.stdout.strip())
    assert job.job_id.startswith("cached-")
    assert (job.state, job.result) == (State.SUCCEEDED, {"cached": True})
    told = "All 8 outputs are there already: nothing was run.\n"
    assert made.stderr == waited.stderr == told
    assert waited.stdout == ""
    status = outputs_cli.run("status", job.job_id).stdout
    assert "8 of 8 outputs verified (8 reused)" in status
    assert "Cached " in status
    assert "Result" not in status
    assert "Nothing was run for it" in outputs_cli.run("why", job.job_id).stdout
    assert {line[1] for line in table(outputs_cli.run("outputs", job.job_id).stdout)} == {"reused"}


def test_the_same_study_under_the_same_id_is_the_same_job(outputs_cli: OutputsCommandLine) -> None:
    tasks = epidemic()
    first = outputs_cli.ask_study(tasks)

    assert outputs_cli.ask_study(tasks) == first


def test_an_output_store_that_is_not_there_is_named(outputs_cli: OutputsCommandLine) -> None:
    outputs_cli.partial(epidemic(), saved=5)
    shutil.rmtree(outputs_cli.beside)

    told = outputs_cli.run("validate", "--force", "j", code=75)

    assert str(outputs_cli.beside) in told.stderr
    assert outputs_cli.get("j").state is State.PARTIAL_SUCCESS
