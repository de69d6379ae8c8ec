"""A machine where nothing is set, files of settings, and the command line on them."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.main import cli


@pytest.fixture(name="folder", autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, and nothing set anywhere else."""
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines), encoding="utf-8")
    path.chmod(0o600)
    return path


def invoke(*arguments: str, code: int = 0, environment: dict[str, str] | None = None) -> Result:
    result = CliRunner(env=environment).invoke(cli, arguments)
    assert result.exit_code == code, (result.output, result.exception)
    return result


def shown(*arguments: str, **environment: str) -> dict[str, tuple[object, str]]:
    """What `holdfast config` says, by name."""
    result = invoke(*arguments, "config", "--json", environment=environment)
    found = json.loads(result.stdout)["settings"]
    return {name: (one["value"], one["origin"]) for name, one in found.items()}
