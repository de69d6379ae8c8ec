"""`holdfast run` with outputs: whether they are there."""

import os
from pathlib import Path

import pytest

from holdfast.core.state import State
from tests.cli.command_line import CommandLine


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine(tmp_path)


def test_a_command_that_leaves_its_outputs_is_done(cli: CommandLine) -> None:
    script = "echo hello; touch model; mkdir run; touch run/1.csv run/2.csv"
    promised = ("--output", "model", "--output", "run/*.csv:2")

    ran = cli.process("run", "--job-id", "j", *promised, "--", "sh", "-c", script)

    assert (ran.returncode, ran.stdout) == (0, b"hello\n")
    assert cli.state("j") is State.SUCCEEDED


def test_one_that_does_not_is_told_what_is_missing(cli: CommandLine, tmp_path: Path) -> None:
    some = cli.process("run", "--job-id", "some", "--output", "a", "--output", "b", "--", "touch", "a")
    none = cli.process("run", "--job-id", "none", "--output", "c", "--", "true")

    assert (some.returncode, none.returncode) == (1, 1)
    assert b"1 of 2 outputs verified, 1 missing: b" in some.stderr
    assert b"0 of 1 output verified, 1 missing: c" in none.stderr
    assert (cli.state("some"), cli.state("none")) == (State.PARTIAL_SUCCESS, State.FAILED)


def test_one_whose_outputs_cannot_be_seen_ends_undecided(cli: CommandLine, tmp_path: Path) -> None:
    """The folder it ran in is gone when its outputs are validated."""
    folder = tmp_path / "gone"
    folder.mkdir()

    ran = cli.process(
        "run", "--job-id", "j", "--cwd", str(folder), "--output", "a", "--",
        "sh", "-c", f"echo hello; touch a; mv {folder} {folder}-away",
    )  # fmt: skip

    assert (ran.returncode, ran.stdout) == (75, b"hello\n")
    assert b"could not be seen" in ran.stderr
    assert cli.state("j") is State.VALIDATING
    assert os.path.exists(f"{folder}-away/a")
