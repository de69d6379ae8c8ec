"""Commands on many jobs: named, or by filters, with a count and a question."""

import json

import pytest

from holdfast.core.state import State
from tests.cli.command_line import CommandLine, failure, on_a_terminal
from tests.cli.outputs_command_line import OutputsCommandLine


def failed(cli: CommandLine, *options: str) -> str:
    job_id = cli.submit(*options)
    cli.finish(job_id, failure())
    return job_id


def test_many_named_jobs_are_cancelled(cli: CommandLine) -> None:
    one, two, three = (cli.submit() for _ in range(3))
    cli.run("cancel", two)

    told = cli.run("cancel", one, two, one, "--reason", "wrong seed").stderr

    assert told.splitlines() == [
        "Cancelled, or asked to stop, 1 job.",
        "Passed over 1 job: cancelled already, or asked to stop.",
    ]
    assert [cli.state(job) for job in (one, two, three)] == ["cancelled", "cancelled", "queued"]
    assert "wrong seed" in cli.run("status", one).stdout


def test_filters_choose_and_the_rest_stays(cli: CommandLine) -> None:
    mine = cli.submit("-q", "bulk", "--label", "run=1")
    others = [cli.submit("-q", "bulk"), cli.submit("--label", "run=1")]

    cli.run("cancel", "-q", "bulk", "--label", "run=1", "--state", "queued", "--since", "1h")

    assert cli.state(mine) is State.CANCELLED
    assert [cli.state(job) for job in others] == [State.QUEUED] * 2
    assert "no job to cancel" in cli.run("cancel", "--kind", "nothing").stderr
    assert "no job to cancel" in cli.run("cancel", "--all", "--since", "2099-01-01T00:00Z").stderr
    assert "Cancelled, or asked to stop, 2 jobs" in cli.run("cancel", "--all", "--hard").stderr


@pytest.mark.parametrize(
    "words", [["cancel"], ["replay"], ["validate"], ["resume"], ["cancel", "j", "--all"]]
)
def test_it_must_be_said_which_jobs(cli: CommandLine, words: list[str]) -> None:
    assert "--state" in cli.run(*words, code=2).stderr or "not both" in cli.run(*words, code=2).stderr


def test_what_is_refused_is_told_with_its_reason_and_the_others_are_done(cli: CommandLine) -> None:
    waits, done = cli.submit(), cli.submit()
    cli.finish(done)

    told = cli.run("cancel", waits, done, "nobody", code=4).stderr

    assert "Cancelled, or asked to stop, 1 job.\nRefused 2 jobs:" in told
    assert "1 x There is no job JOB." in told
    assert cli.state(waits) is State.CANCELLED


def test_failed_jobs_are_replayed_once(cli: CommandLine) -> None:
    one, two = failed(cli), failed(cli)

    dry = cli.run("replay", "--state", "failed", "--dry-run")
    first = cli.run("replay", "--state", "failed")
    second = cli.run("replay", "--state", "failed")
    again = cli.run("replay", "--state", "failed", "--again")

    assert dry.stdout.split() == [one, two]
    assert "Would replay 2 jobs; nothing was changed." in dry.stderr
    assert [line.split()[0] for line in first.stdout.splitlines()] == [one, two]
    assert second.stdout == ""
    assert "no job to replay" in second.stderr
    assert len(again.stdout.splitlines()) == 2
    assert len(json.loads(cli.run("list", "--all", "--json").stdout)["jobs"]) == 6


def test_of_named_jobs_those_that_were_replayed_are_passed_over(cli: CommandLine) -> None:
    one, two = failed(cli), failed(cli)
    cli.run("replay", one)

    told = cli.run("replay", one, two)

    assert told.stdout.split()[0] == two
    assert "Passed over 1 job: replayed before: --again replays them too." in told.stderr


def test_a_job_that_was_replayed_says_by_which_and_is_not_replayed_without_a_word(cli: CommandLine) -> None:
    job_id = failed(cli)
    new = cli.run("replay", job_id).stdout.strip()

    told = cli.run("replay", job_id, code=4).stderr

    assert f"was replayed as {new}, which is queued" in told
    assert f"holdfast replay --again {job_id}" in told
    assert cli.run("replay", "--again", job_id).stdout.strip() not in ("", new)


def test_on_a_terminal_a_filter_asks_with_the_count(cli: CommandLine) -> None:
    cli.submit()
    job_id = cli.submit()

    code, told = on_a_terminal(cli, "cancel", "--all", typed=b"n\n")
    assert code == 1
    assert f"Cancel 2 jobs in {cli.url}?" in told
    assert cli.state(job_id) is State.QUEUED

    code, told = on_a_terminal(cli, "cancel", "--all", "--yes")
    assert code == 0
    assert "Cancel 2 jobs in" not in told
    assert cli.state(job_id) is State.CANCELLED


@pytest.mark.parametrize(("typed", "jobs"), [(b"n\n", 2), (b"y\n", 3)])
def test_on_a_terminal_replaying_again_asks(cli: CommandLine, typed: bytes, jobs: int) -> None:
    job_id = failed(cli)
    new = cli.run("replay", job_id).stdout.strip()

    code, told = on_a_terminal(cli, "replay", job_id, typed=typed)

    assert f"was replayed as {new}, which is queued. Replay it again?" in told
    assert code == (4 if jobs == 2 else 0)
    assert len(json.loads(cli.run("list", "--json").stdout)["jobs"]) == jobs


def test_many_jobs_are_validated_and_resumed(outputs_cli: OutputsCommandLine) -> None:
    for name in ("a", "b"):
        outputs_cli.promise(f"{name}1", f"{name}2", job_id=name)
        outputs_cli.done(name, f"{name}1")

    validated = outputs_cli.run("validate", "--all", "--force")
    resumed = outputs_cli.run("resume", "--state", "partial_success")
    again = outputs_cli.run("resume", "a", "b")

    assert validated.stdout.splitlines() == ["a  partial_success", "b  partial_success"]
    assert [line.split()[0] for line in resumed.stdout.splitlines()] == ["a", "b"]
    assert again.stdout == ""
    assert "Passed over 2 jobs: resumed already" in again.stderr
    outputs_cli.run("validate", "a", "b", "--override", "failed", "--reason", "x", code=2)
    outputs_cli.run("resume", "a", "b", "--wait", code=2)
