"""What tests of the command line may ask for."""

import os
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.cli.outputs_command_line import OutputsCommandLine


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """The command line on a SQLite file of its own."""
    return CommandLine(tmp_path)


@pytest.fixture
def outputs_cli(tmp_path: Path) -> OutputsCommandLine:
    """The same, with an output store, a folder for files, and jobs that promise outputs."""
    return OutputsCommandLine(tmp_path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, and nothing set anywhere else."""
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here
