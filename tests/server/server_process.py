"""Servers in processes of their own: what they use, and how they are stopped and killed."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

PATIENCE_SECONDS = 60.0
LONG = os.environ.get("HOLDFAST_WIRE_LOAD") == "long"
"""Set HOLDFAST_WIRE_LOAD=long for the sizes that the scenarios name."""

_TICKS = os.sysconf("SC_CLK_TCK")
_SERVES = re.compile(r"(https?://\S+) serves ")


class ServerProcess:
    """One `holdfast serve`."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log
        self.url = _address(process, log)

    @property
    def pid(self) -> int:
        return self.process.pid

    def rss(self) -> int:
        """Bytes of memory in use now."""
        return self._memory("VmRSS")

    def rss_peak(self) -> int:
        """Bytes of memory in use at the peak."""
        return self._memory("VmHWM")

    def _memory(self, name: str) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        [kilobytes] = re.findall(rf"{name}:\s+(\d+) kB", status)
        return int(kilobytes) * 1024

    def cpu_seconds(self) -> float:
        """CPU time used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1]
        user, system = fields.split()[11:13]
        return (int(user) + int(system)) / _TICKS

    def stop(self) -> None:
        """Ask the server to stop, without waiting for that."""
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)

    async def exit_code(self) -> int:
        """Wait until the server has ended, and return its exit code."""
        await until(lambda: self.process.poll() is not None)
        return self.process.returncode


@contextmanager
def server_process(store: str, folder: Path, *options: str) -> Iterator[ServerProcess]:
    """A server of the store, on a free port. It is killed at the end."""
    log = folder / f"server-{time.monotonic_ns()}.log"
    with log.open("wb") as stderr:
        process = _started(store, stderr, options)
    try:
        yield ServerProcess(process, log)
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)


def _started(store: str, stderr: IO[bytes], options: tuple[str, ...]) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "holdfast", "serve", "--listen", "127.0.0.1:0", *options]
    return subprocess.Popen(
        command,
        env={**os.environ, "HOLDFAST_STORE": store, "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
    )


def _address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    limit = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < limit and process.poll() is None:
        if found := _SERVES.search(log.read_text(encoding="utf-8")):
            return found[1]
        time.sleep(0.02)
    process.kill()
    process.wait(PATIENCE_SECONDS)
    raise AssertionError(log.read_text(encoding="utf-8"))


async def until(met: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until the condition is met; fail when it takes too long."""
    limit = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < limit, "it did not come to this in time"
        await asyncio.sleep(0.01)


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'jobs.db'}"
