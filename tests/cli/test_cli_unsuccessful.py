"""A study that died after some of its results: outputs, validate, why and resume know what is there."""

import json
from pathlib import Path

import pytest
from outputs_world import OutputsWorld, epidemic, table

from holdfast.core.catalogue import EventType
from holdfast.core.event import Event
from holdfast.core.manifest import Task
from holdfast.core.state import State
from holdfast.ports import Registry


@pytest.fixture
def world(tmp_path: Path) -> OutputsWorld:
    return OutputsWorld(tmp_path)


@pytest.fixture
def tasks() -> list[Task]:
    return epidemic(replicates=2)


def died(world: OutputsWorld, tasks: list[Task]) -> None:
    """A study of six outputs that died when four were there."""
    assert len(tasks) == 6
    world.ask_study(tasks)
    world.save(tasks[:4])
    world.failed()


def test_the_outputs_of_a_study_that_died_are_listed(
    world: OutputsWorld, tasks: list[Task]
) -> None:
    died(world, tasks)

    listed = world.run("outputs", "j")

    states = ["there"] * 4 + ["missing"] * 2
    assert [line[1] for line in table(listed.stdout)] == states
    assert listed.stderr == "4 of 6 outputs verified, 2 missing.\n"
    missing = table(world.run("outputs", "--missing", "j").stdout)
    assert [line[0] for line in missing] == [task.name for task in tasks[4:]]


def test_validate_looks_at_a_job_that_failed_and_leaves_its_state(
    world: OutputsWorld, tasks: list[Task]
) -> None:
    died(world, tasks)

    said = world.run("validate", "--force", "j", code=3)

    lacking = ", ".join(task.name for task in tasks[4:])
    assert said.stdout == f"failed: 4 of 6 outputs verified, 2 missing: {lacking}.\n"
    job = world.get("j")
    assert (job.state, job.ended) == (State.FAILED, True)
    assert job.found is not None
    assert (job.found.verified, job.found.missing) == (4, 2)
    version = job.version
    assert world.run("validate", "--force", "j", code=3).stdout == said.stdout
    assert world.get("j").version == version

    async def history(registry: Registry) -> list[Event]:
        return await registry.history("j")

    last = world.registry(history)[-1]
    assert (last.event_type, last.offset) == (EventType.OUTPUTS_VERIFIED, version)


def test_why_status_and_list_say_what_is_there(world: OutputsWorld, tasks: list[Task]) -> None:
    died(world, tasks)
    world.run("validate", "--force", "j", code=3)

    assert world.run("why", "j").stdout == (
        "It failed on the first attempt: The command exited with 3. 4 of 6 outputs are there; to make"
        " the other 2: holdfast resume j\n"
    )
    status = dict(line.split(maxsplit=1) for line in world.run("status", "j").stdout.splitlines())
    assert status["Outputs"] == "4 of 6 outputs verified, 2 missing"
    assert status["Missing"] == ", ".join(task.name for task in tasks[4:])
    told = "The command exited with 3; 4 of 6 outputs verified, 2 missing"
    assert told in world.run("list").stdout
    found = json.loads(world.run("status", "--json", "j").stdout)["found"]
    assert (found["verified"], found["missing"]) == (4, 2)


def test_resume_looks_first_and_makes_exactly_what_is_missing(
    world: OutputsWorld, tasks: list[Task]
) -> None:
    died(world, tasks)

    planned = world.run("resume", "--dry-run", "j").stdout.splitlines()
    new = world.run("resume", "j").stdout.strip()

    assert planned == [
        "2 of 6 outputs would be made again:",
        *(f"  {task.name}" for task in tasks[4:]),
    ]
    job = world.get(new)
    assert (job.state, job.spec.promised_outputs) == (State.QUEUED, 2)
    world.save(tasks[4:], job_id=new)
    world.done(new)
    assert world.validated(new) == "succeeded: 2 of 2 outputs verified.\n"
    original = world.get("j")
    assert (original.state, original.missing_outputs) == (State.FAILED, 0)
    assert "All 6 outputs are there all the same." in world.run("why", "j").stdout
    nothing = world.run("resume", "j")
    assert (nothing.stdout, nothing.stderr) == (
        "",
        "Nothing is missing: 6 of 6 outputs verified.\n",
    )


def test_what_came_late_is_not_made_again(world: OutputsWorld, tasks: list[Task]) -> None:
    died(world, tasks)
    world.run("validate", "--force", "j", code=3)
    world.save(tasks[4:5])

    assert world.run("resume", "--dry-run", "j").stdout.splitlines()[1:] == [f"  {tasks[5].name}"]


def test_resume_typed_twice_makes_one_job(world: OutputsWorld, tasks: list[Task]) -> None:
    died(world, tasks)
    first = world.run("resume", "j")

    second = world.run("resume", "j")

    new = first.stdout.strip()
    assert first.stderr == ""
    assert second.stdout == first.stdout
    assert second.stderr == f"j is resumed by {new} already (queued).\n"
    assert world.run("list", "-s", "queued").stdout.count("\n") == 2
    beside = world.run("resume", "--again", "j")
    assert beside.stdout != first.stdout
    assert beside.stderr == ""


def test_a_cancelled_job_and_a_dead_letter_tell_of_their_outputs(
    world: OutputsWorld, tasks: list[Task]
) -> None:
    world.ask_study(tasks)
    world.save(tasks[:4])
    world.run("cancel", "j")

    assert world.run("outputs", "j").stderr.startswith("4 of 6 outputs verified")
    assert "It was cancelled" in world.run("why", "j").stdout
    assert world.run("resume", "--dry-run", "j").stdout.startswith("2 of 6 outputs")


def test_the_worker_looks_when_the_command_has_failed_and_says_what_is_there(
    world: OutputsWorld,
) -> None:
    words = ["--output", "a.txt", "--output", "b.txt", "--cwd", str(world.folder)]
    world.run("submit", "--job-id", "j", *words, "--", "sh", "-c", "touch a.txt; exit 3")

    worker = world.process("worker", "--drain")

    job = world.get("j")
    assert (job.state, job.missing_outputs) == (State.FAILED, 1)
    told = "The command exited with 3; 1 of 2 outputs verified, 1 missing"
    assert told in worker.stderr.decode()


def test_a_command_that_is_run_again_knows_what_is_missing(world: OutputsWorld) -> None:
    script = 'echo "$HOLDFAST_MISSING" >> said; touch b.txt "c d.txt"'
    words = [w for name in ("a.txt", "b.txt", "c d.txt") for w in ("--output", name)]
    where = ["--job-id", "j", "--cwd", str(world.folder)]
    world.run("submit", *where, *words, "--", "sh", "-c", script)
    world.leave("a.txt")
    world.failed()
    assert "to run it again for the other 2" in _why(world)

    new = world.run("resume", "j").stdout.strip()
    world.process("worker", "--drain")

    assert (world.folder / "said").read_text() == "b.txt\nc d.txt\n"
    assert world.get(new).state is State.SUCCEEDED


def _why(world: OutputsWorld) -> str:
    world.run("validate", "--force", "j", code=3)
    return world.run("why", "j").stdout
