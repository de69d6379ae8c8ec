"""The commands about outputs at a server, which sees its output store and no files."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

import holdfast
from holdfast.core.state import State
from tests.cli.outputs_command_line import OutputsCommandLine, epidemic


@pytest.fixture(scope="module")
def outputs_cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OutputsCommandLine]:
    outputs_cli = OutputsCommandLine(tmp_path_factory.mktemp("served"))
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", "serve", "--listen", "127.0.0.1:0"],
        env=outputs_cli.environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            said = next((line for line in process.stderr if " serves " in line), "")
            found = re.match(r"(http://127.0.0.1:\d+) ", said)
            assert found is not None, said
            outputs_cli.url = outputs_cli.environment["HOLDFAST_STORE"] = found[1]
            yield outputs_cli
        finally:
            process.terminate()
            process.communicate(timeout=120)


def names(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines()[1:]]


def test_a_study_is_kept_judged_and_resumed_by_the_server(outputs_cli: OutputsCommandLine) -> None:
    tasks = epidemic()

    job = outputs_cli.partial(tasks, saved=5, job_id="study")

    assert job.state is State.PARTIAL_SUCCESS
    assert job.spec.outputs is not None
    assert job.spec.outputs.store is not None
    listed = outputs_cli.run("outputs", "study")
    assert names(listed.stdout) == [task.name for task in tasks]
    assert listed.stderr == "5 of 8 outputs verified, 3 missing.\n"
    assert outputs_cli.run("resume", "--dry-run", "study").stdout.startswith("3 of 8 outputs would")
    new = outputs_cli.run("resume", "study").stdout.strip()
    outputs_cli.save(tasks[5:], job_id=new)
    outputs_cli.done(new)
    assert outputs_cli.validated(new) == "succeeded: 3 of 3 outputs verified.\n"
    assert outputs_cli.get("study").state is State.SUCCEEDED
    assert f"Resumed as  {new}" in outputs_cli.run("status", "study").stdout


def test_a_study_that_is_there_runs_nothing_at_a_server_either(
    outputs_cli: OutputsCommandLine,
) -> None:
    tasks = epidemic(sets=1)
    outputs_cli.save(tasks, job_id="earlier")
    file = str(outputs_cli.manifest(tasks))

    made = outputs_cli.run("submit", "--manifest", file, "--", "x")
    own = outputs_cli.run("submit", "--outputs", str(outputs_cli.beside), "--manifest", file, "--", "x")

    for said in (made, own):
        job = outputs_cli.get(said.stdout.strip())
        assert job.job_id.startswith("cached-")
        assert job.state is State.SUCCEEDED
        assert said.stderr == "All 4 outputs are there already: nothing was run.\n"


def test_an_app_with_an_output_store_of_its_own_asks_the_server_what_is_there(
    outputs_cli: OutputsCommandLine,
) -> None:
    tasks = epidemic(sets=1, replicates=2)
    outputs_cli.save(tasks, job_id="earlier")
    app = holdfast.App(outputs_cli.url, outputs=str(outputs_cli.beside))

    @app.job
    def sweep() -> None: ...

    made = sweep.configure(tasks=tasks).enqueue()
    lacking = sweep.configure(tasks=epidemic(sets=1, replicates=5)).enqueue()

    assert made.job_id.startswith("cached-")
    assert made.job.state is State.SUCCEEDED
    assert lacking.job.state is State.QUEUED
    app.background.close()


def test_whoever_sees_the_output_store_may_look_into_it_itself(
    outputs_cli: OutputsCommandLine,
) -> None:
    tasks = epidemic(sets=3)
    outputs_cli.partial(tasks, saved=10, job_id="own-eyes")
    outputs_cli.save(tasks[10:], job_id="own-eyes")

    own = ("--outputs", str(outputs_cli.beside))
    said = outputs_cli.run("validate", "--force", *own, "own-eyes")

    assert said.stdout.startswith("succeeded: 12 of 12 outputs verified")
    assert len(names(outputs_cli.run("outputs", *own, "own-eyes").stdout)) == 12


def test_plain_outputs_are_looked_for_by_whoever_ran_the_command(
    outputs_cli: OutputsCommandLine,
) -> None:
    words = ["--cwd", str(outputs_cli.folder), "--output", "plain-a", "--output", "plain-b"]
    outputs_cli.run("submit", "--job-id", "plain", *words, "--", "touch", "plain-a")

    worker = outputs_cli.process("worker", "--drain")

    assert outputs_cli.get("plain").state is State.PARTIAL_SUCCESS, worker.stderr
    missing = outputs_cli.run("outputs", "--missing", "--json", "plain").stdout
    assert json.loads(missing)["missing"] == "not there"
    outputs_cli.leave("plain-b")
    assert outputs_cli.validated("plain").startswith("succeeded: 2 of 2 outputs verified")


def test_a_server_takes_nobodys_word_for_files(outputs_cli: OutputsCommandLine) -> None:
    outputs_cli.leave("word")
    words = ["--cwd", str(outputs_cli.folder), "--output", "word", "--reuse", "--", "x"]

    refused = outputs_cli.run("submit", *words, code=2)

    assert "A server sees no files of this machine" in refused.stderr


def test_an_operator_overrides_at_a_server(outputs_cli: OutputsCommandLine) -> None:
    outputs_cli.promise("never", job_id="stuck")
    outputs_cli.done("stuck")

    outputs_cli.run("validate", "stuck", "--override", "succeeded", "--reason", "seen by hand")

    assert outputs_cli.get("stuck").state is State.SUCCEEDED
    assert "by an override: seen by hand" in outputs_cli.run("why", "stuck").stdout
