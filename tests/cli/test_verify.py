"""`holdfast verify`: whether the record and the log of every job agree."""

import json
from pathlib import Path

import apsw
import pytest

from holdfast.cli import verify
from holdfast.ports import Mismatch, Verification
from tests.cli.command_line import CommandLine


def test_verify_says_equal(cli: CommandLine) -> None:
    cli.finish(cli.submit())

    words = cli.run("verify").stdout
    assert words.startswith("1 job, 4 transitions, 4 transition events: equal.")
    assert json.loads(cli.run("verify", "--json").stdout)["equal"] is True


def test_verify_exits_with_1_on_a_difference_and_shows_it(cli: CommandLine) -> None:
    cli.finish(cli.submit("--job-id", "j1"))
    tamper(cli.file)

    result = cli.run("verify", code=1)
    assert "NOT equal" in result.stdout
    assert json.loads(cli.run("verify", "--json", code=1).stdout)["equal"] is False


def test_verify_shows_twenty_jobs_and_counts_the_rest(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Verification(
        jobs=30,
        transitions=9,
        events=8,
        control=0,
        mismatches=tuple(Mismatch(f"j{n}", ("state: stored 1, derived 2",)) for n in range(25)),
    )
    monkeypatch.setattr(verify, "run", lambda work: found)

    words = cli.run("verify", code=1).stdout
    assert "j19  state: stored 1, derived 2\n" in words
    assert "j20" not in words
    assert words.endswith("and 5 more jobs.\n")
    assert "number of their events differ" in words


def tamper(file: Path) -> None:
    """Change one record behind the registry's back, as no program of ours would."""
    connection = apsw.Connection(str(file))
    connection.execute("UPDATE state SET transition_no = transition_no + 1").fetchall()
    connection.close()
