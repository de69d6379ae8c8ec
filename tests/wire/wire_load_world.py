"""Servers as processes of their own: what they cost, how they are stopped and killed."""

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
_SERVES = re.compile(r"(http://\S+) serves ")


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
        """Bytes of memory it holds now."""
        return self._memory("VmRSS")

    def rss_peak(self) -> int:
        """Bytes of memory it held when it held the most."""
        return self._memory("VmHWM")

    def _memory(self, name: str) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        [kilobytes] = re.findall(rf"{name}:\s+(\d+) kB", status)
        return int(kilobytes) * 1024

    def cpu_seconds(self) -> float:
        """What it has used of the processor so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1]
        user, system = fields.split()[11:13]
        return (int(user) + int(system)) / _TICKS

    def stop(self) -> None:
        """Ask it to stop; it need not have."""
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)

    async def exit_code(self) -> int:
        """How it ended, once it has."""
        await until(lambda: self.process.poll() is not None)
        return self.process.returncode


@contextmanager
def server_process(store: str, folder: Path, *options: str) -> Iterator[ServerProcess]:
    """A server of the store, on a free port. It is gone at the end, however it went."""
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
    """Wait until it is so; it must be so in time."""
    limit = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < limit, "it did not come to this in time"
        await asyncio.sleep(0.01)


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'jobs.db'}"
