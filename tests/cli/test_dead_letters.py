"""`holdfast dead-letters` and `replay`: what is parked, and how it is run again."""

import json

import pytest

from holdfast.core.state import State
from tests.cli.command_line import CommandLine, failure


def test_retry_prints_the_id_of_a_new_job(cli: CommandLine) -> None:
    job_id = cli.submit()
    cli.finish(job_id, failure())

    new = cli.run("replay", job_id).stdout.strip()
    assert new != job_id
    assert cli.state(new) is State.QUEUED
    assert cli.state(job_id) is State.FAILED


def test_dead_letters_are_listed_and_shown_with_all_that_is_needed(cli: CommandLine) -> None:
    job_id = cli.dead_letter("disk \x1b[2Jon fire")
    cli.submit()

    lines = cli.run("dead-letters", "list").stdout.splitlines()
    assert len(lines) == 2
    assert lines[1].split()[:4] == [job_id, "exhausted_retries", "exec", "1"]
    assert lines[1].endswith("disk on fire")
    shown = cli.run("dead-letters", "show", job_id).stdout
    for name in ("Reason code", "Last error", "Attempts", "Last owner", "Last lease until"):
        assert f"\n{name} " in shown
    for name in ("Correlation", "Stage"):
        assert f"\n{name} " in shown
    assert json.loads(cli.run("dead-letters", "show", "--json", job_id).stdout)["dead_letter"]


def test_dead_letters_filter_and_say_when_there_are_none(cli: CommandLine) -> None:
    cli.submit()

    assert "no dead letters" in cli.run("dead-letters", "list").stderr
    cli.dead_letter()
    assert cli.run("dead-letters", "list", "--reason", "timeout").stdout == ""
    assert cli.run("dead-letters", "list", "-q", "other").stdout == ""


def test_replay_of_all_passes_over_what_was_replayed(cli: CommandLine) -> None:
    one, two = cli.dead_letter(), cli.dead_letter()

    dry = cli.run("dead-letters", "replay", "--all", "--dry-run")
    assert dry.stdout.split() == [one, two]
    assert "nothing was changed" in dry.stderr
    old, new = cli.run("dead-letters", "replay", one).stdout.split()
    assert (old, cli.state(new)) == (one, State.QUEUED)
    assert cli.run("dead-letters", "replay", "--all").stdout.split()[0] == two
    assert cli.run("dead-letters", "replay", "--all").stdout == ""


def test_replay_by_reason_and_queue(cli: CommandLine) -> None:
    cli.dead_letter()

    for options in (["--reason", "timeout"], ["--queue", "other"]):
        assert cli.run("dead-letters", "replay", "--all", *options).stdout == ""
    assert cli.run("dead-letters", "replay", "--all", "--reason", "exhausted_retries").stdout


def test_one_wrong_id_and_nothing_is_replayed(cli: CommandLine) -> None:
    letter, other = cli.dead_letter(), cli.submit()

    assert "nothing was replayed" in cli.run("dead-letters", "replay", letter, other, code=4).stderr
    assert cli.run("dead-letters", "replay", "--all", "--dry-run").stdout.split() == [letter]


@pytest.mark.parametrize("words", [[], ["x", "--all"], ["x", "--queue", "q"]])
def test_replay_needs_to_know_which(cli: CommandLine, words: list[str]) -> None:
    cli.run("dead-letters", "replay", *words, code=2)
