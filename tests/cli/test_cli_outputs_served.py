"""The same commands with a server in place of a store: the server sees its output store, and no files."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from outputs_world import OutputsWorld, epidemic

import holdfast
from holdfast.core.state import State


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OutputsWorld]:
    world = OutputsWorld(tmp_path_factory.mktemp("served"))
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", "serve", "--listen", "127.0.0.1:0"],
        env=world.environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            said = next((line for line in process.stderr if " serves " in line), "")
            found = re.match(r"(http://127.0.0.1:\d+) ", said)
            assert found is not None, said
            world.url = world.environment["HOLDFAST_STORE"] = found[1]
            yield world
        finally:
            process.terminate()
            process.communicate(timeout=60)


def names(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines()[1:]]


def test_a_study_is_kept_judged_and_resumed_by_the_server(world: OutputsWorld) -> None:
    tasks = epidemic()

    job = world.partial(tasks, saved=5, job_id="study")

    assert job.state is State.PARTIAL_SUCCESS
    assert job.spec.outputs is not None
    assert job.spec.outputs.store is not None
    listed = world.run("outputs", "study")
    assert names(listed.stdout) == [task.name for task in tasks]
    assert listed.stderr == "5 of 8 outputs verified, 3 missing.\n"
    assert world.run("resume", "--dry-run", "study").stdout.startswith("3 of 8 outputs would")
    new = world.run("resume", "study").stdout.strip()
    world.save(tasks[5:], job_id=new)
    world.done(new)
    assert world.validated(new) == "succeeded: 3 of 3 outputs verified.\n"
    assert world.get("study").state is State.SUCCEEDED
    assert f"Resumed as  {new}" in world.run("status", "study").stdout


def test_a_study_that_is_there_runs_nothing_at_a_server_either(world: OutputsWorld) -> None:
    tasks = epidemic(sets=1)
    world.save(tasks, job_id="earlier")
    file = str(world.manifest(tasks))

    made = world.run("submit", "--manifest", file, "--", "x")
    own = world.run("submit", "--outputs", str(world.beside), "--manifest", file, "--", "x")

    for said in (made, own):
        job = world.get(said.stdout.strip())
        assert job.job_id.startswith("cached-")
        assert job.state is State.SUCCEEDED
        assert said.stderr == "All 4 outputs are there already: nothing was run.\n"


def test_an_app_with_an_output_store_of_its_own_asks_the_server_what_is_there(
    world: OutputsWorld,
) -> None:
    tasks = epidemic(sets=1, replicates=2)
    world.save(tasks, job_id="earlier")
    app = holdfast.App(world.url, outputs=str(world.beside))

    @app.job
    def sweep() -> None: ...

    made = sweep.configure(tasks=tasks).enqueue()
    lacking = sweep.configure(tasks=epidemic(sets=1, replicates=5)).enqueue()

    assert made.job_id.startswith("cached-")
    assert made.job.state is State.SUCCEEDED
    assert lacking.job.state is State.QUEUED
    app.reach.close()


def test_whoever_sees_the_output_store_may_look_into_it_itself(world: OutputsWorld) -> None:
    tasks = epidemic(sets=3)
    world.partial(tasks, saved=10, job_id="own-eyes")
    world.save(tasks[10:], job_id="own-eyes")

    own = ("--outputs", str(world.beside))
    said = world.run("validate", "--force", *own, "own-eyes")

    assert said.stdout.startswith("succeeded: 12 of 12 outputs verified")
    assert len(names(world.run("outputs", *own, "own-eyes").stdout)) == 12


def test_plain_outputs_are_looked_for_by_whoever_ran_the_command(world: OutputsWorld) -> None:
    words = ["--cwd", str(world.folder), "--output", "plain-a", "--output", "plain-b"]
    world.run("submit", "--job-id", "plain", *words, "--", "touch", "plain-a")

    worker = world.process("worker", "--drain")

    assert world.get("plain").state is State.PARTIAL_SUCCESS, worker.stderr
    missing = world.run("outputs", "--missing", "--json", "plain").stdout
    assert json.loads(missing)["missing"] == "not there"
    world.leave("plain-b")
    assert world.validated("plain").startswith("succeeded: 2 of 2 outputs verified")


def test_a_server_takes_nobodys_word_for_files(world: OutputsWorld) -> None:
    world.leave("word")
    words = ["--cwd", str(world.folder), "--output", "word", "--reuse", "--", "x"]

    refused = world.run("submit", *words, code=2)

    assert "A server sees no files of this machine" in refused.stderr


def test_an_operator_overrides_at_a_server(world: OutputsWorld) -> None:
    world.promise("never", job_id="stuck")
    world.done("stuck")

    world.run("validate", "stuck", "--override", "succeeded", "--reason", "seen by hand")

    assert world.get("stuck").state is State.SUCCEEDED
    assert "somebody said so: seen by hand" in world.run("why", "stuck").stdout
