"""A study that died after some of its results: `outputs`, `validate`, `why` and `resume` know them."""

import json

import pytest

from holdfast.core.catalogue import EventType
from holdfast.core.event import Event
from holdfast.core.manifest import Task
from holdfast.core.state import State
from holdfast.ports import Registry
from tests.cli.outputs_command_line import OutputsCommandLine, epidemic, table


@pytest.fixture
def tasks() -> list[Task]:
    return epidemic(replicates=2)


def died(outputs_cli: OutputsCommandLine, tasks: list[Task]) -> None:
    """A study of six outputs that died when four were there."""
    assert len(tasks) == 6
    outputs_cli.ask_study(tasks)
    outputs_cli.save(tasks[:4])
    outputs_cli.failed()


def test_the_outputs_of_a_study_that_died_are_listed(
    outputs_cli: OutputsCommandLine, tasks: list[Task]
) -> None:
    died(outputs_cli, tasks)

    listed = outputs_cli.run("outputs", "j")

    states = ["there"] * 4 + ["missing"] * 2
    assert [line[1] for line in table(listed.stdout)] == states
    assert listed.stderr == "4 of 6 outputs verified, 2 missing.\n"
    missing = table(outputs_cli.run("outputs", "--missing", "j").stdout)
    assert [line[0] for line in missing] == [task.name for task in tasks[4:]]


def test_validate_looks_at_a_job_that_failed_and_leaves_its_state(
    outputs_cli: OutputsCommandLine, tasks: list[Task]
) -> None:
    died(outputs_cli, tasks)

    said = outputs_cli.run("validate", "--force", "j", code=3)

    lacking = ", ".join(task.name for task in tasks[4:])
    assert said.stdout == f"failed: 4 of 6 outputs verified, 2 missing: {lacking}.\n"
    job = outputs_cli.get("j")
    assert (job.state, job.ended) == (State.FAILED, True)
    assert job.found is not None
    assert (job.found.verified, job.found.missing) == (4, 2)
    version = job.version
    assert outputs_cli.run("validate", "--force", "j", code=3).stdout == said.stdout
    assert outputs_cli.get("j").version == version

    async def history(registry: Registry) -> list[Event]:
        return await registry.history("j")

    last = outputs_cli.registry(history)[-1]
    assert (last.event_type, last.offset) == (EventType.OUTPUTS_VERIFIED, version)


def test_why_status_and_list_say_what_is_there(outputs_cli: OutputsCommandLine, tasks: list[Task]) -> None:
    died(outputs_cli, tasks)
    outputs_cli.run("validate", "--force", "j", code=3)

    assert outputs_cli.run("why", "j").stdout == (
        "It failed on the first attempt: The command exited with 3. 4 of 6 outputs are there; to make"
        " the other 2: holdfast resume j\n"
    )
    status = dict(line.split(maxsplit=1) for line in outputs_cli.run("status", "j").stdout.splitlines())
    assert status["Outputs"] == "4 of 6 outputs verified, 2 missing"
    assert status["Missing"] == ", ".join(task.name for task in tasks[4:])
    told = "The command exited with 3; 4 of 6 outputs verified, 2 missing"
    assert told in outputs_cli.run("list").stdout
    found = json.loads(outputs_cli.run("status", "--json", "j").stdout)["found"]
    assert (found["verified"], found["missing"]) == (4, 2)


def test_resume_looks_first_and_makes_exactly_what_is_missing(
    outputs_cli: OutputsCommandLine, tasks: list[Task]
) -> None:
    died(outputs_cli, tasks)

    planned = outputs_cli.run("resume", "--dry-run", "j").stdout.splitlines()
    new = outputs_cli.run("resume", "j").stdout.strip()

    assert planned == [
        "2 of 6 outputs would be made again:",
        *(f"  {task.name}" for task in tasks[4:]),
    ]
    job = outputs_cli.get(new)
    assert (job.state, job.spec.promised_outputs) == (State.QUEUED, 2)
    outputs_cli.save(tasks[4:], job_id=new)
    outputs_cli.done(new)
    assert outputs_cli.validated(new) == "succeeded: 2 of 2 outputs verified.\n"
    original = outputs_cli.get("j")
    assert (original.state, original.missing_outputs) == (State.FAILED, 0)
    assert "All 6 outputs are there all the same." in outputs_cli.run("why", "j").stdout
    nothing = outputs_cli.run("resume", "j")
    assert (nothing.stdout, nothing.stderr) == (
        "",
        "Nothing is missing: 6 of 6 outputs verified.\n",
    )


def test_what_came_late_is_not_made_again(outputs_cli: OutputsCommandLine, tasks: list[Task]) -> None:
    died(outputs_cli, tasks)
    outputs_cli.run("validate", "--force", "j", code=3)
    outputs_cli.save(tasks[4:5])

    assert outputs_cli.run("resume", "--dry-run", "j").stdout.splitlines()[1:] == [f"  {tasks[5].name}"]


def test_resume_typed_twice_makes_one_job(outputs_cli: OutputsCommandLine, tasks: list[Task]) -> None:
    died(outputs_cli, tasks)
    first = outputs_cli.run("resume", "j")

    second = outputs_cli.run("resume", "j")

    new = first.stdout.strip()
    assert first.stderr == ""
    assert second.stdout == first.stdout
    assert second.stderr == f"j is resumed by {new} already (queued).\n"
    assert outputs_cli.run("list", "-s", "queued").stdout.count("\n") == 2
    beside = outputs_cli.run("resume", "--again", "j")
    assert beside.stdout != first.stdout
    assert beside.stderr == ""


def test_a_cancelled_job_and_a_dead_letter_tell_of_their_outputs(
    outputs_cli: OutputsCommandLine, tasks: list[Task]
) -> None:
    outputs_cli.ask_study(tasks)
    outputs_cli.save(tasks[:4])
    outputs_cli.run("cancel", "j")

    assert outputs_cli.run("outputs", "j").stderr.startswith("4 of 6 outputs verified")
    assert "It was cancelled" in outputs_cli.run("why", "j").stdout
    assert outputs_cli.run("resume", "--dry-run", "j").stdout.startswith("2 of 6 outputs")


def test_the_worker_looks_when_the_command_has_failed_and_says_what_is_there(
    outputs_cli: OutputsCommandLine,
) -> None:
    words = ["--output", "a.txt", "--output", "b.txt", "--cwd", str(outputs_cli.folder)]
    outputs_cli.run("submit", "--job-id", "j", *words, "--", "sh", "-c", "touch a.txt; exit 3")

    worker = outputs_cli.process("worker", "--drain")

    job = outputs_cli.get("j")
    assert (job.state, job.missing_outputs) == (State.FAILED, 1)
    told = "The command exited with 3; 1 of 2 outputs verified, 1 missing"
    assert told in worker.stderr.decode()


def test_a_command_that_is_run_again_knows_what_is_missing(outputs_cli: OutputsCommandLine) -> None:
    script = 'echo "$HOLDFAST_MISSING" >> said; touch b.txt "c d.txt"'
    words = [w for name in ("a.txt", "b.txt", "c d.txt") for w in ("--output", name)]
    where = ["--job-id", "j", "--cwd", str(outputs_cli.folder)]
    outputs_cli.run("submit", *where, *words, "--", "sh", "-c", script)
    outputs_cli.leave("a.txt")
    outputs_cli.failed()
    assert "to run it again for the other 2" in _why(outputs_cli)

    new = outputs_cli.run("resume", "j").stdout.strip()
    outputs_cli.process("worker", "--drain")

    assert (outputs_cli.folder / "said").read_text() == "b.txt\nc d.txt\n"
    assert outputs_cli.get(new).state is State.SUCCEEDED


def _why(outputs_cli: OutputsCommandLine) -> str:
    outputs_cli.run("validate", "--force", "j", code=3)
    return outputs_cli.run("why", "j").stdout
