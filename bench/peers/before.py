"""An earlier holdfast beside this one: its checkout and its environment, which are removed again."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from environments import Environment, NotInstalled
from peers.systems import OURS, PROGRAMS, SYSTEMS, System

ROOT = Path(__file__).parents[2]
REVISION = "078ed64"
BEFORE = f"{OURS} before"


def systems_before(revision: str) -> list[System]:
    """The rows of the earlier one, on the stores that ours has."""
    return [replace(system, name=BEFORE, revision=revision) for system in SYSTEMS if system.ours]


@contextmanager
def earlier(revision: str) -> Iterator[Environment]:
    """How to run the program for holdfast with the package of that revision; raises NotInstalled.

    The program itself is this checkout's, so that both are asked the same."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-before-"))
    tree, python = folder / "tree", folder / "venv" / "bin" / "python"
    try:
        _run("git", "worktree", "add", "--quiet", "--detach", str(tree), revision)
        uv = (sys.executable, "-m", "uv")
        _run(*uv, "venv", "--quiet", "--python", sys.executable, str(folder / "venv"))
        install = (*uv, "pip", "install", "--quiet", "--python", str(python))
        _run(*install, "--require-hashes", "-r", str(tree / "requirements.lock"))
        _run(*install, "--no-deps", str(tree))
        plain = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/root"), "LANG": "C.UTF-8"}
        program = PROGRAMS / "run_holdfast.py"
        yield Environment([str(python), str(program)], {**plain, "PYTHONPATH": str(PROGRAMS)})
    finally:
        command = ["git", "worktree", "remove", "--force", str(tree)]
        subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = " ".join(str(error.stderr or error).split())
        raise NotInstalled(f"`{command[0]} … {command[-1]}`: {said[-300:]}") from error
