"""Files of settings, and the command line on them."""

import json
from pathlib import Path

from click.testing import CliRunner, Result

from holdfast.cli.main import cli


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
