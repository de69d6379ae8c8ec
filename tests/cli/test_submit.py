"""`holdfast submit`: options, repeated requests, and wrong uses."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.core.process_spec import decode_process_spec
from holdfast.core.retry import COMMAND_RETRY
from holdfast.core.state import State
from tests.cli.command_line import CommandLine, output
from tests.cli.outputs_command_line import OutputsCommandLine

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def test_submit_prints_the_id_alone_and_queues_the_command(cli: CommandLine) -> None:
    result = cli.run("submit", "--", "echo", "-n", "a b")

    job = cli.registry(lambda registry: registry.status(result.stdout.strip()))
    command = decode_process_spec(job.spec.payload)
    assert result.stdout == f"{job.job_id}\n"
    assert result.stderr == ""
    assert (job.state, job.spec.kind, job.spec.queue) == (State.QUEUED, "command", "default")
    assert (command.argv, command.cwd) == (("echo", "-n", "a b"), str(Path.cwd()))
    assert job.spec.retry == COMMAND_RETRY


def test_submit_takes_every_option(cli: CommandLine, tmp_path: Path) -> None:
    options = "-q gpu --name n --max-failures 3 --max-crashes 2 --timeout 5m --lock l --region eu"
    more = "--job-id j1 --delay 1h --priority 2 --ttl 2d --lease 30s --env A=1 --secret KEY"
    rest = f"--cwd {tmp_path} --label k=v --on-exhausted dead_letter --correlation-id c1"
    cli.run("submit", *options.split(), *more.split(), *rest.split(), "--", "x")

    job = cli.registry(lambda registry: registry.status("j1"))
    spec, command = job.spec, decode_process_spec(job.spec.payload)
    assert (spec.queue, spec.name, spec.lock, spec.region, spec.priority) == (
        "gpu",
        "n",
        "l",
        "eu",
        2,
    )
    assert (spec.timeout, spec.lease) == (timedelta(minutes=5), timedelta(seconds=30))
    assert (spec.delay, spec.ttl) == (timedelta(hours=1), timedelta(days=2))
    assert (spec.retry.max_failures, spec.retry.max_crashes) == (3, 2)
    assert (spec.retry.on_exhausted, spec.labels) == ("dead_letter", {"k": "v"})
    assert (command.env, command.secrets, command.cwd) == ({"A": "1"}, ("KEY",), str(tmp_path))
    assert job.correlation_id == "c1"


def test_the_same_request_gives_the_same_job(cli: CommandLine) -> None:
    first = cli.submit("--request-id", "r1")

    assert cli.submit("--request-id", "r1") == first


def test_the_same_request_id_for_another_command_is_refused(cli: CommandLine) -> None:
    cli.submit("--request-id", "r1")

    assert "different request" in cli.run("submit", "--request-id", "r1", "--", "other", code=4).stderr


def test_submit_with_a_time_waits_for_it(cli: CommandLine) -> None:
    job_id = cli.submit("--at", "2999-01-01T00:00Z")

    assert "waits until 2999-01-01" in cli.run("why", job_id).stdout


@pytest.mark.parametrize(
    "wrong",
    [
        ["submit"],
        ["submit", "--timeout", "soon", "--", "x"],
        ["submit", "--env", "A", "--", "x"],
        ["submit", "--priority", "10", "--", "x"],
        ["submit", "--queue", "a b", "--", "x"],
        ["submit", "--env", "A=1", "--secret", "A", "--", "x"],
        ["submit", "--store", "memory://", "--", "x"],
        ["submit", "--store", "nothing", "--", "x"],
        ["list", "--state", "unknown"],
        ["list", "--limit", "0"],
        ["nothing"],
    ],
)
def test_wrong_usage_exits_with_2_and_one_clear_message(cli: CommandLine, wrong: list[str]) -> None:
    result = cli.run(*wrong, code=2)

    assert result.stdout == ""
    assert result.stderr.count("Error: ") == 1
    assert "Traceback" not in result.stderr


def test_a_wrong_word_gets_a_suggestion(cli: CommandLine) -> None:
    assert "'status'" in cli.run("statsu", code=2).stderr
    assert "--queue" in cli.run("submit", "--quue", "x", code=2).stderr


@pytest.mark.parametrize("option", ["--job-id", "--request-id"])
def test_a_request_that_was_made_before_is_told_as_such(cli: CommandLine, option: str) -> None:
    first = cli.run("submit", option, "nightly", "--", "echo", "hello")
    waiting = cli.run("submit", option, "nightly", "--", "echo", "hello")
    job_id = first.stdout.strip()
    cli.finish(job_id, None, output(1, b"of yesterday\n"))
    ended = cli.run("submit", option, "nightly", "--", "echo", "hello")
    followed = cli.run("submit", "--wait", option, "nightly", "--", "echo", "hello")

    assert first.stderr == ""
    assert [told.stdout for told in (waiting, ended)] == [first.stdout] * 2
    assert _TIME.sub("T", waiting.stderr) == (
        f"Job {job_id} exists since T; it is queued. Nothing was submitted.\n"
    )
    has_ended = f"Job {job_id} exists since T; it has ended (succeeded). Nothing was submitted.\n"
    assert _TIME.sub("T", ended.stderr) == _TIME.sub("T", followed.stderr) == has_ended
    assert followed.stdout == "of yesterday\n"


def test_a_request_with_outputs_that_was_made_before_is_told_as_such(outputs_cli: OutputsCommandLine) -> None:
    outputs_cli.promise("a.txt")
    outputs_cli.leave("a.txt")
    outputs_cli.done("j")
    outputs_cli.run("validate", "--force", "j")

    told = outputs_cli.run(
        *(
            "submit",
            "--job-id",
            "j",
            "--cwd",
            str(outputs_cli.folder),
            "--output",
            "a.txt",
            "--",
            "echo",
            "hello",
        )
    ).stderr

    assert "it has ended (succeeded). Nothing was submitted." in told
