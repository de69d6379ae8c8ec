"""Programs that run without what only Linux has: see `hidden/sitecustomize.py`."""

import os
import subprocess
import sys
from pathlib import Path

from tests import ROOT

HIDDEN = Path(__file__).with_name("hidden")


class HiddenSystem:
    """An environment in which every Python is as poor as one on macOS."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tried = folder / "tried"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")},
            "PYTHONPATH": os.pathsep.join(map(str, (HIDDEN, ROOT / "src", ROOT))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HIDDEN_TRIED": str(self._tried),
            "HOLDFAST_CONFIG": os.devnull,
            "HOLDFAST_STORE": f"sqlite:///{folder / 'jobs.db'}",
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run Python with these arguments; return what it printed. Its exit code must be `code`."""
        ended = subprocess.run(
            [sys.executable, *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == code, f"{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def holdfast(self, *arguments: str, code: int = 0) -> str:
        return self.run("-m", "holdfast", *arguments, code=code)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def tried(self) -> set[str]:
        """Return what was asked for and was not there, with the process ids left out."""
        lines = self._tried.read_text().split("\n") if self._tried.exists() else []
        return {
            "/".join("N" if part.isdigit() else part for part in line.split("/")) for line in lines if line
        }
