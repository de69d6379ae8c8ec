"""`holdfast prune`: what it removes, and that it asks first."""

import json
import os
import pty
import subprocess

from holdfast.core.state import State
from tests.cli.command_line import PROGRAM, CommandLine, on_a_terminal, output


def test_prune_says_what_it_removed(cli: CommandLine) -> None:
    cli.finish(cli.submit(), None, output(1, b"x"))
    kept = cli.submit()

    assert cli.run("prune", "--older-than", "30d").stdout == "Removed 0 jobs and 0 events.\n"
    assert cli.run("prune", "--older-than", "0s").stdout == "Removed 1 job and 5 events.\n"
    assert cli.state(kept) is State.QUEUED
    cli.run("prune", code=2)


def test_prune_tells_how_much_before_it_asks_or_without_doing_it(cli: CommandLine) -> None:
    cli.finish(cli.submit(), None, output(1, b"x"))
    cli.finish(cli.submit())
    running = cli.submit()
    cli.claim(running)

    told = cli.run("prune", "--older-than", "0s", "--dry-run").stdout
    _, asked = on_a_terminal(cli, "prune", "--older-than", "0s", typed=b"n\n")
    _, nothing = on_a_terminal(cli, "prune", "--older-than", "30d")

    assert told.startswith("Would remove 2 jobs that ended more than")
    assert told.endswith("; nothing was changed.\n")
    assert "Remove from" in asked
    assert "2 jobs that ended" in asked
    assert "There is nothing as old as that" in nothing
    assert len(json.loads(cli.run("list", "--json").stdout)["jobs"]) == 3


def test_prune_asks_on_a_terminal(cli: CommandLine) -> None:
    cli.finish(cli.submit())
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, "prune", "--older-than", "0s"],
        env=cli.environment,
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )

    os.write(master, b"n\n")
    assert process.wait(timeout=120) == 1
    assert b"[y/N]" in os.read(master, 65_536)
    assert len(json.loads(cli.run("list", "--json").stdout)["jobs"]) == 1
