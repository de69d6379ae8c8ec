"""resume: exactly what a partial success lacks is made again, and both jobs name each other."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from outputs_world import OutputsWorld, epidemic

from holdfast.core.manifest import Task
from holdfast.core.state import State
from holdfast.outputs.manifests import tasks as tasks_of
from holdfast.ports import Outputs


@pytest.fixture
def world(tmp_path: Path) -> OutputsWorld:
    return OutputsWorld(tmp_path)


def promised(world: OutputsWorld, job_id: str) -> list[Task]:
    promise = world.get(job_id).spec.outputs
    assert promise is not None
    assert promise.manifest is not None
    sha256 = promise.manifest

    async def read(outputs: Outputs) -> list[Task]:
        return [task async for task in tasks_of(outputs, sha256)]

    return world.outputs(read)


def test_a_dry_run_says_what_would_be_made_and_makes_nothing(world: OutputsWorld) -> None:
    tasks = epidemic()
    world.partial(tasks, saved=5)

    said = world.run("resume", "--dry-run", "j")

    assert said.stdout.splitlines() == [
        "3 of 8 outputs would be made again:",
        *(f"  {task.name}" for task in tasks[5:]),
    ]
    assert world.run("list").stdout.count("\n") == 2


def test_a_dry_run_of_a_large_study_names_the_first_few(world: OutputsWorld) -> None:
    tasks = epidemic(sets=20)
    world.partial(tasks, saved=1)

    said = world.run("resume", "--dry-run", "j").stdout.splitlines()

    assert said[0] == "79 of 80 outputs would be made again:"
    assert said[1:-1] == [f"  {task.name}" for task in tasks[1 : len(said) - 1]]
    assert said[-1] == f"  and {79 - (len(said) - 2)} more: holdfast outputs --missing j"


def test_resume_makes_a_job_of_exactly_what_is_missing(world: OutputsWorld) -> None:
    tasks = epidemic()
    world.partial(tasks, saved=5)

    said = world.run("resume", "j")

    new = said.stdout.strip()
    assert said.stdout == f"{new}\n"
    assert said.stderr == ""
    assert new.startswith("j-resume-")
    assert promised(world, new) == tasks[5:]
    shown = dict(line.split(maxsplit=1) for line in world.run("status", new).stdout.splitlines())
    assert shown["Resumes"] == "j"
    assert f"Resumed as  {new}\n" in world.run("status", "j").stdout


def test_when_the_missing_ones_are_made_the_original_has_succeeded(world: OutputsWorld) -> None:
    tasks = epidemic()
    world.partial(tasks, saved=5)
    new = world.run("resume", "j").stdout.strip()
    world.save(tasks[5:], job_id=new)
    world.done(new)

    assert world.validated(new) == "succeeded: 3 of 3 outputs verified.\n"

    assert world.get("j").state is State.SUCCEEDED
    assert world.run("outputs", "j").stderr == "8 of 8 outputs verified.\n"
    assert world.run("outputs", "--missing", "j").stdout == ""


def test_a_second_resume_is_for_what_the_first_left(world: OutputsWorld) -> None:
    tasks = epidemic()
    world.partial(tasks, saved=5)
    first = world.run("resume", "j").stdout.strip()
    world.save(tasks[5:7], job_id=first)
    world.done(first)
    world.validated(first, code=1)

    second = world.run("resume", "j").stdout.strip()

    promise = world.get(second).spec.outputs
    assert promise is not None
    assert (promise.resume_attempt, promise.original_total) == (2, 8)
    assert promised(world, second) == tasks[7:]


def test_plain_outputs_are_resumed_by_name(world: OutputsWorld) -> None:
    world.promise("a.txt", "b.txt", "*.csv:2")
    world.done("j", "b.txt")
    world.validated(code=1)

    new = world.run("resume", "j").stdout.strip()

    promise = world.get(new).spec.outputs
    assert promise is not None
    assert [file.path for file in promise.files] == ["a.txt", "*.csv"]


@pytest.mark.parametrize("state", ["queued", "validating", "succeeded"])
def test_what_is_no_partial_success_cannot_be_resumed(world: OutputsWorld, state: str) -> None:
    world.promise("a.txt")
    if state != "queued":
        world.done("j", "a.txt")
    if state == "succeeded":
        world.validated()

    refused = world.run("resume", "j", code=4)

    assert refused.stdout == ""
    assert f"Error: Job j is {state}: not resumable." in refused.stderr


def test_a_dry_run_has_nothing_to_wait_for(world: OutputsWorld) -> None:
    world.promise("a.txt")

    assert "no job to wait for" in world.run("resume", "--dry-run", "--wait", "j", code=2).stderr


@pytest.mark.parametrize(
    ("made", "code", "told"),
    [("b.txt", 0, "made\n"), ("c.txt", 1, "made\nfailed: No promised output was found.\n")],
)
def test_resume_may_be_waited_for(world: OutputsWorld, made: str, code: int, told: str) -> None:
    script = f"echo made >&2; echo words; touch {made}"
    words = ["--cwd", str(world.folder), "--output", "a.txt", "--output", "b.txt"]
    world.run("submit", "--job-id", "j", *words, "--", "sh", "-c", script)
    world.done("j", "a.txt")
    world.validated(code=1)

    waiting = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "resume", "--wait", "j"],
        env=world.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not world.run("list", "-s", "queued").stdout:
        time.sleep(0.1)
    worker = world.process("worker", "--drain")
    out, err = waiting.communicate(timeout=60)

    assert (waiting.returncode, out, err) == (code, "words\n", told), worker.stderr
    assert world.get("j").state is (State.PARTIAL_SUCCESS if code else State.SUCCEEDED)
