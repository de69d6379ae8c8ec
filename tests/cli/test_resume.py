"""`holdfast resume`: exactly what a partial success lacks is made again; both jobs name each other."""

import subprocess
import sys
import time

import pytest

from holdfast.core.manifest import Task
from holdfast.core.state import State
from holdfast.outputs.manifests import read_tasks as tasks_of
from holdfast.ports import Outputs
from tests.cli.outputs_command_line import OutputsCommandLine, epidemic


def promised(outputs_cli: OutputsCommandLine, job_id: str) -> list[Task]:
    promise = outputs_cli.get(job_id).spec.outputs
    assert promise is not None
    assert promise.manifest is not None
    sha256 = promise.manifest

    async def read(outputs: Outputs) -> list[Task]:
        return [task async for task in tasks_of(outputs, sha256)]

    return outputs_cli.outputs(read)


def test_a_dry_run_says_what_would_be_made_and_makes_nothing(
    outputs_cli: OutputsCommandLine,
) -> None:
    tasks = epidemic()
    outputs_cli.partial(tasks, saved=5)

    said = outputs_cli.run("resume", "--dry-run", "j")

    assert said.stdout.splitlines() == [
        "3 of 8 outputs would be made again:",
        *(f"  {task.name}" for task in tasks[5:]),
    ]
    assert outputs_cli.run("list").stdout.count("\n") == 2


def test_a_dry_run_of_a_large_study_names_the_first_few(outputs_cli: OutputsCommandLine) -> None:
    tasks = epidemic(sets=20)
    outputs_cli.partial(tasks, saved=1)

    said = outputs_cli.run("resume", "--dry-run", "j").stdout.splitlines()

    assert said[0] == "79 of 80 outputs would be made again:"
    assert said[1:-1] == [f"  {task.name}" for task in tasks[1 : len(said) - 1]]
    assert said[-1] == f"  and {79 - (len(said) - 2)} more: holdfast outputs --missing j"


def test_resume_makes_a_job_of_exactly_what_is_missing(outputs_cli: OutputsCommandLine) -> None:
    tasks = epidemic()
    outputs_cli.partial(tasks, saved=5)

    said = outputs_cli.run("resume", "j")

    new = said.stdout.strip()
    assert said.stdout == f"{new}\n"
    assert said.stderr == ""
    assert new.startswith("j-resume-")
    assert promised(outputs_cli, new) == tasks[5:]
    shown = dict(line.split(maxsplit=1) for line in outputs_cli.run("status", new).stdout.splitlines())
    assert shown["Resumes"] == "j"
    assert f"Resumed as  {new}\n" in outputs_cli.run("status", "j").stdout


def test_when_the_missing_ones_are_made_the_original_has_succeeded(
    outputs_cli: OutputsCommandLine,
) -> None:
    tasks = epidemic()
    outputs_cli.partial(tasks, saved=5)
    new = outputs_cli.run("resume", "j").stdout.strip()
    outputs_cli.save(tasks[5:], job_id=new)
    outputs_cli.done(new)

    assert outputs_cli.validated(new) == "succeeded: 3 of 3 outputs verified.\n"

    assert outputs_cli.get("j").state is State.SUCCEEDED
    assert outputs_cli.run("outputs", "j").stderr == "8 of 8 outputs verified.\n"
    assert outputs_cli.run("outputs", "--missing", "j").stdout == ""


def test_a_second_resume_is_for_what_the_first_left(outputs_cli: OutputsCommandLine) -> None:
    tasks = epidemic()
    outputs_cli.partial(tasks, saved=5)
    first = outputs_cli.run("resume", "j").stdout.strip()
    outputs_cli.save(tasks[5:7], job_id=first)
    outputs_cli.done(first)
    outputs_cli.validated(first, code=1)

    second = outputs_cli.run("resume", "j").stdout.strip()

    promise = outputs_cli.get(second).spec.outputs
    assert promise is not None
    assert (promise.resume_attempt, promise.original_total) == (2, 8)
    assert promised(outputs_cli, second) == tasks[7:]


def test_plain_outputs_are_resumed_by_name(outputs_cli: OutputsCommandLine) -> None:
    outputs_cli.promise("a.txt", "b.txt", "*.csv:2")
    outputs_cli.done("j", "b.txt")
    outputs_cli.validated(code=1)

    new = outputs_cli.run("resume", "j").stdout.strip()

    promise = outputs_cli.get(new).spec.outputs
    assert promise is not None
    assert [file.path for file in promise.files] == ["a.txt", "*.csv"]


@pytest.mark.parametrize("state", ["queued", "validating", "succeeded"])
def test_what_is_no_partial_success_cannot_be_resumed(outputs_cli: OutputsCommandLine, state: str) -> None:
    outputs_cli.promise("a.txt")
    if state != "queued":
        outputs_cli.done("j", "a.txt")
    if state == "succeeded":
        outputs_cli.validated()

    refused = outputs_cli.run("resume", "j", code=4)

    assert refused.stdout == ""
    assert f"Error: Job j is {state}: not resumable." in refused.stderr


def test_a_dry_run_has_nothing_to_wait_for(outputs_cli: OutputsCommandLine) -> None:
    outputs_cli.promise("a.txt")

    assert "no job to wait for" in outputs_cli.run("resume", "--dry-run", "--wait", "j", code=2).stderr


@pytest.mark.parametrize(
    ("made", "code", "told"),
    [("b.txt", 0, "made\n"), ("c.txt", 1, "made\nfailed: No promised output was found.\n")],
)
def test_resume_may_be_waited_for(outputs_cli: OutputsCommandLine, made: str, code: int, told: str) -> None:
    script = f"echo made >&2; echo words; touch {made}"
    words = ["--cwd", str(outputs_cli.folder), "--output", "a.txt", "--output", "b.txt"]
    outputs_cli.run("submit", "--job-id", "j", *words, "--", "sh", "-c", script)
    outputs_cli.done("j", "a.txt")
    outputs_cli.validated(code=1)

    waiting = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "resume", "--wait", "j"],
        env=outputs_cli.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not outputs_cli.run("list", "-s", "queued").stdout:
        time.sleep(0.1)
    worker = outputs_cli.process("worker", "--drain")
    out, err = waiting.communicate(timeout=120)

    assert (waiting.returncode, out, err) == (code, "words\n", told), worker.stderr
    assert outputs_cli.get("j").state is (State.PARTIAL_SUCCESS if code else State.SUCCEEDED)
