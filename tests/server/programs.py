"""Programs in processes of their own: `holdfast serve` as its users start it, and clients of it."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from click.testing import CliRunner, Result

from holdfast.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60.0
_OPENED = re.compile(rb"^(http://\S+) serves ", re.MULTILINE)

T = TypeVar("T")


def environment(**more: str) -> dict[str, str]:
    """Return our environment without the variables of holdfast: no other store, and no key, by accident."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return {**known, "PYTHONPATH": str(ROOT / "src"), **more}


def until(found: Callable[[], T | None], what: str) -> T:
    """Return what is found, as soon as it is; fail after a while."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        if (one := found()) is not None:
            return one
        time.sleep(0.05)
    raise AssertionError(f"waited {PATIENCE_SECONDS:g} s for {what}")


@contextmanager
def program(
    log: Path, *command: str | Path, cwd: Path | None = None, **more: str
) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a program that writes to a log; kill it at the end."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, cwd=cwd, env=environment(**more), stdout=file, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def service(
    folder: Path, *options: str, address: tuple[str, ...] = ("--listen", "127.0.0.1:0")
) -> Iterator[str]:
    """Run a server over a store in the folder, and yield its URL."""
    log = folder / "serve.log"
    holdfast = (sys.executable, "-m", "holdfast", "serve", *address)
    with program(log, *holdfast, *options, "--store", store(folder)) as process:

        def opened() -> str | None:
            assert process.poll() is None, log.read_text()
            found = _OPENED.search(log.read_bytes())
            return found[1].decode() if found else None

        yield until(opened, "a server")
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0, log.read_text()


def store(folder: Path) -> str:
    return f"sqlite:///{folder / 'jobs.db'}"


def key(folder: Path, scopes: str) -> str:
    """Return a new key of the store in the folder."""
    create = (sys.executable, "-m", "holdfast", "keys", "create", "ana")
    made = subprocess.run(
        [*create, "--may", scopes, "--store", store(folder)],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return made.stdout.strip()


def invoke(folder: Path, *arguments: str, **more: str) -> Result:
    """Run a command in this process, with the store in the folder."""
    return CliRunner(env={"HOLDFAST_STORE": store(folder), **more}).invoke(cli, arguments)
