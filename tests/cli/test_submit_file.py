"""`holdfast submit --from`: a job for each line of a file."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.main import cli as program
from holdfast.core.job import Job
from holdfast.core.process_spec import process_spec_of
from holdfast.ports import Registry
from tests.cli.command_line import CommandLine


def jobs_of(cli: CommandLine, ids: list[str]) -> list[Job]:
    async def read(registry: Registry) -> list[Job]:
        return [await registry.status(job_id) for job_id in ids]

    return cli.registry(read)


def argv_of(job: Job) -> tuple[str, ...]:
    command = process_spec_of(job.spec)
    assert command is not None
    return command.argv


def test_a_line_is_a_command_or_an_object(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "jobs.txt"
    lines = [
        "# a sweep",
        "train 'a b' --seed 1",
        "",
        json.dumps({"argv": ["fit", "2"], "queue": "bulk", "env": {"X": "2"}, "labels": {"n": "2"}}),
    ]
    file.write_text("\n".join(lines) + "\n")

    told = cli.run("submit", "--from", str(file), "--label", "run=7", "--env", "Y=1", "--timeout", "5m")

    first, second = jobs_of(cli, told.stdout.split())
    assert "Submitted 2 jobs." in told.stderr
    assert argv_of(first) == ("train", "a b", "--seed", "1")
    assert argv_of(second) == ("fit", "2")
    assert (first.spec.queue, second.spec.queue) == ("default", "bulk")
    assert second.spec.labels == {"run": "7", "n": "2"}
    command = process_spec_of(second.spec)
    assert command is not None
    assert command.env == {"X": "2", "Y": "1"}
    assert first.spec.timeout == second.spec.timeout is not None


def test_the_same_file_again_makes_no_other_jobs(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "jobs.txt"
    file.write_text("".join(f"echo {n}\n" for n in range(5)))

    first, again = (cli.run("submit", "--from", str(file), "--request-id", "sweep") for _ in range(2))

    assert first.stdout == again.stdout
    assert len(set(first.stdout.split())) == 5
    assert first.stderr == "Submitted 5 jobs.\n"
    assert again.stderr == (
        "Submitted 0 jobs.\nPassed over 5 jobs: they exist already, under this --request-id.\n"
    )


def test_the_lines_come_from_stdin(cli: CommandLine) -> None:
    runner = CliRunner(env={"HOLDFAST_STORE": cli.url})

    result = runner.invoke(program, ["submit", "--from", "-"], input="echo one\necho two\n")

    assert result.exit_code == 0
    assert [argv_of(job) for job in jobs_of(cli, result.stdout.split())] == [("echo", "one"), ("echo", "two")]


@pytest.mark.parametrize(
    "wrong", ["echo 'open", '{"argv": []}', '{"argv": ["a"], "what": 1}', '{"argv": ["a"], "priority": 77}']
)
def test_a_wrong_line_is_named_and_nothing_is_submitted(cli: CommandLine, tmp_path: Path, wrong: str) -> None:
    cli.submit()
    file = tmp_path / "jobs.txt"
    file.write_text(f"echo one\n{wrong}\n")

    told = cli.run("submit", "--from", str(file), code=2).stderr

    assert "Line 2: " in told
    assert "Nothing was submitted." in told
    assert len(json.loads(cli.run("list", "--json").stdout)["jobs"]) == 1


def test_what_a_file_cannot_have_is_refused(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "jobs.txt"
    file.write_text("echo one\n")

    for more in (["--wait"], ["--job-id", "j"], ["--", "echo"]):
        assert "--from takes" in cli.run("submit", "--from", str(file), *more, code=2).stderr
