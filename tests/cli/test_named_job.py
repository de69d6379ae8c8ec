"""A job is named as in git and docker: by its id, a part of it that is unique, its name, or @last."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.short_ids import short_id
from holdfast.core.state import State
from tests.cli.command_line import PROGRAM, CommandLine, on_a_terminal
from tests.cli.outputs_command_line import OutputsCommandLine

_AGE = re.compile(r"[0-9.]+ s")
NAMES = ["status", "why", "logs", "events", "outputs"]


def looked_up(cli: CommandLine, text: str, *options: str) -> str:
    """The id of the job that is meant."""
    found = json.loads(cli.run("status", "--json", text, *options).stdout)["job_id"]
    assert isinstance(found, str)
    return found


def test_a_job_is_named_by_its_short_id_a_beginning_its_name_or_as_the_last(cli: CommandLine) -> None:
    cli.submit("--job-id", "other")
    job_id = cli.submit("--name", "the nightly run")

    for text in (job_id, short_id(job_id), job_id[-12:], job_id[:34], "the nightly run", "@last"):
        assert looked_up(cli, text) == job_id
    assert looked_up(cli, "othe") == "other"


@pytest.mark.parametrize("command", NAMES)
def test_every_command_that_shows_a_job_takes_such_names(cli: CommandLine, command: str) -> None:
    job_id = cli.submit("--name", "nightly")

    shown = cli.run(command, job_id)

    for text in (short_id(job_id), "nightly", "@last"):
        told = cli.run(command, text)
        assert _AGE.sub("", told.stdout) == _AGE.sub("", shown.stdout)
        assert told.stderr == shown.stderr


def test_commands_that_step_in_take_such_names(cli: CommandLine) -> None:
    one, two, three = (cli.submit("--name", name) for name in ("one", "two", "three"))
    letter = cli.dead_letter()

    assert "is cancelled" in cli.run("cancel", "one").stdout
    assert "Cancelled, or asked to stop, 2 jobs" in cli.run("cancel", "two", short_id(three)).stderr
    assert [cli.state(job) for job in (one, two, three)] == [State.CANCELLED] * 3
    assert cli.run("replay", "one").stdout.strip() not in ("", one)
    assert "Last error" in cli.run("dead-letters", "show", short_id(letter)).stdout
    assert cli.run("dead-letters", "replay", short_id(letter)).stdout.startswith(letter)


def test_validate_and_resume_take_such_names(outputs_cli: OutputsCommandLine) -> None:
    outputs_cli.promise("a.txt", job_id="maker")
    outputs_cli.done("maker")

    assert "No promised output" in outputs_cli.run("validate", "--force", "@last", code=1).stdout
    assert "1 of 1 outputs would" in outputs_cli.run("resume", "--dry-run", "make").stdout


def test_an_exact_id_wins(cli: CommandLine) -> None:
    cli.submit("--job-id", "nightly")
    cli.submit("--job-id", "nightly-2", "--name", "nightly")

    assert looked_up(cli, "nightly") == "nightly"


def test_what_fits_several_jobs_lists_them(cli: CommandLine) -> None:
    old, new = cli.submit("--name", "nightly"), cli.submit("--name", "nightly")
    cli.finish(old)
    cli.submit("--job-id", "nightly-9", command=["echo", "nine"])

    told = cli.run("status", "nightly", code=2).stderr.splitlines()

    assert told[0] == "Error: 3 jobs fit nightly. Name one by its id, or take the newest: --newest"
    assert [line.split() for line in told[1:]] == [
        ["nightly-9", "queued", "0s", "echo", "nine"],
        [short_id(new), "queued", "0s", "nightly"],
        [short_id(old), "succeeded", "0s", "nightly"],
    ]
    assert looked_up(cli, "nightly", "--newest") == "nightly-9"


def test_nothing_is_done_when_one_of_many_names_fits_several_jobs(cli: CommandLine) -> None:
    one = cli.submit("--name", "one")
    for _ in range(12):
        cli.submit("--name", "twelve")

    told = cli.run("cancel", "one", "twelve", code=2).stderr

    assert told.startswith("Error: More than 10 jobs fit twelve.")
    assert len(told.splitlines()) == 11
    assert cli.state(one) is State.QUEUED
    assert "Cancelled, or asked to stop, 2 jobs" in cli.run("cancel", "one", "twelve", "--newest").stderr


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("nobody", 3, "There is no job nobody.\nCheck the id: holdfast list"),
        ("ab", 3, "There is no job ab."),
        ("no such name", 3, "There is no job no such name."),
        ("@first", 2, "There is no @first.\n@last is the newest job"),
        ("019a9c3e-1f2b-7a3c-9b01-c0ffee12ab34", 3, "There is no job 019a9c3e-1f2b-7a3c-9b01-c0ffee12ab34."),
    ],
)
def test_what_fits_no_job_is_told(cli: CommandLine, text: str, code: int, words: str) -> None:
    cli.submit("--job-id", "somebody")

    assert f"Error: {words}" in cli.run("status", text, code=code).stderr
    assert words.splitlines()[0] in cli.run("cancel", text, code=code).stderr


def test_there_is_no_last_job_in_an_empty_store(cli: CommandLine) -> None:
    cli.submit("--job-id", "old")
    cli.finish("old")
    cli.run("prune", "--older-than", "0s", "--yes")

    assert "There are no jobs yet.\nSubmit one" in cli.run("why", "@last", code=3).stderr


def test_a_terminal_shows_short_ids_that_can_be_typed_back(cli: CommandLine) -> None:
    job_id = cli.submit()

    _, seen = on_a_terminal(cli, "list")
    found = re.search(r"[0-9a-f]{8}(?= )", seen)

    assert found is not None
    assert job_id not in seen
    assert looked_up(cli, found[0]) == job_id
    assert job_id in cli.run("list").stdout
    assert json.loads(cli.run("list", "--json").stdout)["jobs"][0]["job_id"] == job_id


def test_jobs_are_listed_by_name(cli: CommandLine) -> None:
    cli.submit("--job-id", "other", "--name", "nightly 2")
    cli.submit("--job-id", "mine", "--name", "nightly")

    found = json.loads(cli.run("list", "--name", "nightly", "--json").stdout)["jobs"]

    assert [job["job_id"] for job in found] == ["mine"]


def test_the_shell_completes_short_ids_names_and_the_last(cli: CommandLine) -> None:
    job_id = cli.submit("--name", "nightly")
    cli.submit("--name", "two words")

    def complete(begun: str) -> str:
        environment = {
            **cli.environment,
            "_HOLDFAST_COMPLETE": "bash_complete",
            "COMP_WORDS": f"holdfast status {begun}",
            "COMP_CWORD": "2",
        }
        done = subprocess.run(PROGRAM, env=environment, capture_output=True, check=False)
        return done.stdout.decode()

    assert complete(job_id[-8:-2]) == f"plain,{short_id(job_id)}\n"
    assert complete("night") == "plain,nightly\n"
    assert complete("@") == "plain,@last\n"
    assert f"plain,{job_id}\n" in complete(job_id[:12])
    assert "two" not in complete("tw")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CommandLine, Path]]:
    """A server with a job in each of two queues, and the file with a key for one of them."""
    folder = tmp_path_factory.mktemp("named")
    cli = CommandLine(folder)
    cli.submit("--job-id", "job-of-ana", "-q", "a", "--name", "same")
    cli.submit("--job-id", "job-of-ben", "-q", "b", "--name", "same")
    key = folder / "key"
    key.touch(0o600)
    key.write_text(cli.run("keys", "create", "ana", "--may", "observe", "-q", "a").stdout)
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", "serve", "--listen", "127.0.0.1:0", "--keys"],
        env=cli.environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            said = next((line for line in process.stderr if " serves " in line), "")
            found = re.match(r"(http://127.0.0.1:\d+) ", said)
            assert found is not None, said
            cli.url = cli.environment["HOLDFAST_STORE"] = found[1]
            yield cli, key
        finally:
            process.terminate()
            process.communicate(timeout=120)


@pytest.mark.parametrize("text", ["same", "job-of", "@last", "job-of-ana"])
def test_at_a_server_a_key_finds_only_the_jobs_in_its_reach(
    served: tuple[CommandLine, Path], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli, key = served
    monkeypatch.setenv("HOLDFAST_KEY_FILE", str(key))

    assert looked_up(cli, text) == "job-of-ana"
    assert "There is no job job-of-ben." in cli.run("status", "job-of-ben", code=3).stderr
