"""What a newcomer types when a function fails: its traceback and its arguments are wherever they look."""

import json
from pathlib import Path

import pytest

from holdfast import Client, Retry
from holdfast.core.job import Failure
from tests.cli.command_line import CommandLine, on_a_terminal, output

APP = """\
import holdfast

app = holdfast.App()

@app.job(max_failures=1)
def fit(alpha: float, seed: int) -> float:
    print("fitting", end="")
    return price({"a": alpha})

def price(row):
    return row["b"]
"""
LAST = "KeyError: 'b'"
CALL = "fit(alpha=0.3, seed=7)"


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> tuple[CommandLine, str, str]:
    """A store in which `fit` has failed, its job, and what the worker wrote."""
    folder: Path = tmp_path_factory.mktemp("walk")
    (folder / "study.py").write_text(APP, encoding="utf-8")
    cli = CommandLine(folder)
    cli.environment["PYTHONPATH"] += f":{folder}"
    with Client(cli.url) as client:
        for seed in (6, 7):
            job_id = client.enqueue("fit", {"alpha": 0.3, "seed": seed}, retry=Retry(max_failures=1)).job_id
    done = cli.process("worker", "study:app", "--drain", "--spool", str(folder / "spool"))
    return cli, job_id, done.stderr.decode()


def check_traceback(text: str) -> None:
    assert text.rstrip().endswith(LAST)
    lines = text[text.index("Traceback (most recent call last):") :].splitlines()
    assert lines[1].endswith('study.py", line 8, in fit')
    assert '    return row["b"]' in lines
    assert not any("holdfast/" in line for line in lines)


def test_the_workers_line_has_the_call_and_the_type(walk: tuple[CommandLine, str, str]) -> None:
    _, job_id, told = walk

    [line] = [line for line in told.splitlines() if job_id in line]
    assert f"{job_id} {CALL} dead_lettered" in line
    assert line.endswith(f": exhausted_retries: {LAST}")


def test_why_has_the_call_and_the_type(walk: tuple[CommandLine, str, str]) -> None:
    cli, job_id, _ = walk

    first, rest = cli.run("why", job_id).stdout.split("\n", 1)
    assert first == CALL
    assert f": exhausted_retries: {LAST}." in " ".join(rest.split())


def test_status_shows_the_call_and_the_traceback(walk: tuple[CommandLine, str, str]) -> None:
    cli, job_id, _ = walk

    shown = cli.run("status", job_id).stdout
    assert CALL in shown
    check_traceback(shown)
    error = json.loads(cli.run("status", "--json", job_id).stdout)["error"]
    assert (error["code"], error["message"]) == ("KeyError", "'b'")
    check_traceback(error["traceback"])
    check_traceback(cli.run("status", "--watch", job_id, code=1).stdout)


def test_a_dead_letter_shows_the_call_and_the_traceback(walk: tuple[CommandLine, str, str]) -> None:
    cli, job_id, _ = walk

    [line] = [line for line in cli.run("dead-letters", "list").stdout.splitlines() if job_id in line]
    assert CALL in line
    assert LAST in line
    shown = cli.run("dead-letters", "show", job_id).stdout
    assert CALL in shown
    check_traceback(shown)


def test_logs_show_the_traceback_behind_the_output(walk: tuple[CommandLine, str, str]) -> None:
    cli, job_id, _ = walk

    shown = cli.run("logs", job_id)
    assert shown.stdout == "fitting"
    check_traceback(shown.stderr)
    assert shown.stderr.count("Traceback") == 1
    check_traceback(cli.run("logs", "--follow", job_id, code=1).stderr)
    check_traceback(cli.run("logs", "--attempt", "1", job_id).stderr)
    assert cli.run("logs", "--attempt", "2", job_id).stderr == ""
    assert cli.run("logs", "--stream", "stdout", job_id).stderr == ""
    stamped = cli.run("logs", "-t", job_id).stderr.splitlines()
    assert all(line[10] == "T" and "Z " in line for line in stamped)


def test_jobs_are_listed_with_their_arguments_and_found_by_them(walk: tuple[CommandLine, str, str]) -> None:
    cli, job_id, _ = walk

    assert CALL in cli.run("list").stdout
    assert "fit(alpha=0.3, seed=6)" in cli.run("list").stdout
    found = cli.run("list", "--arg", "seed=7", "--arg", "alpha=0.3", "--json").stdout
    assert [job["job_id"] for job in json.loads(found)["jobs"]] == [job_id]
    assert cli.run("list", "--arg", "seed=8").stderr == "No job matches; see them all: holdfast list\n"
    with Client(cli.url) as client:
        assert [job.job_id for job in client.list(arguments={"seed": 7})] == [job_id]
        assert [job.job_id for job in client.list(arguments={"seed": "7", "alpha": 0.3})] == [job_id]


@pytest.mark.parametrize("words", [["list"], ["dead-letters", "list"]])
def test_on_80_columns_jobs_of_one_function_still_differ(
    walk: tuple[CommandLine, str, str], words: list[str]
) -> None:
    cli, _, _ = walk

    code, shown = on_a_terminal(cli, *words, COLUMNS="80")

    assert code == 0
    assert CALL in shown
    assert "fit(alpha=0.3, seed=6)" in shown


def test_a_traceback_that_no_worker_published_is_in_the_logs_of_its_attempt(cli: CommandLine) -> None:
    """Workers in other languages need not publish one: it is in the failure that they report."""
    job_id = cli.submit("--max-failures", "2")
    failed = Failure(
        message="x is undefined", code="TypeError", traceback="TypeError: x is undefined\n  at a.js"
    )
    cli.finish(job_id, failed, output(1, b"no line end", "stderr"))

    lines = "no line end\nTypeError: x is undefined\n  at a.js\n"
    assert cli.run("logs", job_id).stderr == lines
    assert cli.run("logs", "--attempt", "2", job_id).stderr == ""
    ended = cli.submit()
    cli.finish(ended, failed, output(1, b"no line end", "stderr"))
    assert cli.run("logs", "--attempt", "1", ended).stderr == lines


def test_a_traceback_cannot_control_a_terminal(cli: CommandLine) -> None:
    job_id = cli.submit()
    cli.finish(job_id, Failure(message="x", code="E", traceback="Trace\x1b]0;t\x07\n  \u202eline\x1b[2J"))

    assert cli.run("status", job_id).stdout.endswith("\nTrace\n  line\n")
