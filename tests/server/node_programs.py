"""Clients in Node for tests: copies of examples/wire, or of another source, that find their packages."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.server.programs import ROOT, environment
from verify.node_packages import INSTALL_SECONDS_MAX, NODE, packages

__all__ = ["EXAMPLES", "NODE", "node", "node_folder"]

EXAMPLES = ROOT / "examples" / "wire"


def node_folder(folder: Path, *programs: Path, source: Path = EXAMPLES) -> Path:
    """A copy of the examples, or of another source, that finds its packages, with these programs."""
    copy = folder / source.name
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("node_modules", "__pycache__"))
    for one in programs:
        shutil.copy(one, copy)
    (copy / "node_modules").symlink_to(packages(source))
    return copy


def node(folder: Path, *words: str | Path, **more: str) -> "subprocess.CompletedProcess[str]":
    """Run a program for Node to its end."""
    paths = (NODE.parent, folder / "node_modules" / ".bin", os.environ["PATH"])
    return subprocess.run(
        [NODE, *words],
        cwd=folder,
        env=environment(PATH=os.pathsep.join(map(str, paths)), **more),
        capture_output=True,
        text=True,
        check=False,
        timeout=INSTALL_SECONDS_MAX,
    )
