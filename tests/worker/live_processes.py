"""Processes that a test starts, and what `/proc` says of them."""

import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.system import SystemClock
from holdfast.worker.processes import Child, Processes, ProcessExit

PATIENCE_SECONDS = 120.0
"""How long a wait for a condition may take. Long, because the machine may be busy."""

GONE_SECONDS = 30.0
"""How long a process may take to go: less than the 60 seconds that those of the tests sleep."""

ENV = {"PATH": os.environ["PATH"]}


@asynccontextmanager
async def open_processes(inherited: tuple[int, ...] = ()) -> AsyncIterator[Processes]:
    """The processes of a worker, under a supervisor of their own, which inherits these descriptors."""
    processes = Processes(SystemClock(), inherited)
    try:
        yield processes
    finally:
        await processes.close()


async def shell(processes: Processes, script: str, seconds: float = 60, **more: object) -> Child:
    fds = more.pop("fds", {})
    argv = ["sh", "-c", script]
    return await processes.spawn(argv, env=ENV, fds=fds, seconds=seconds, **more)  # type: ignore[arg-type]


async def output_of(processes: Processes, argv: list[str], **more: object) -> bytes:
    """What it writes; it must be short and end well."""
    read_end, write_end = os.pipe()
    fds = {1: write_end, 2: write_end} | more.pop("fds", {})  # type: ignore[operator]
    more = {"env": ENV, "seconds": 60, **more}
    try:
        child = await processes.spawn(argv, fds=fds, **more)  # type: ignore[arg-type]
        assert await child.wait() == ProcessExit(0)
        return os.read(read_end, 60_000)
    finally:
        os.close(read_end)
        os.close(write_end)


def wait_until(true: Callable[[], bool]) -> None:
    """Wait until the condition is true."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


def supervisor_of(processes: Processes) -> int:
    """The supervisor: the only child of the reaper, which the worker has started."""
    assert processes._supervisor is not None
    reaper = processes._supervisor._process.pid
    wait_until(lambda: bool(children_of(reaper)))
    return children_of(reaper)[0]


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="latin-1")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def gone(pid: int, seconds: float = GONE_SECONDS) -> bool:
    """Whether the process is gone, now or soon."""
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not alive(pid)


def number_in(path: Path) -> int:
    """The number that a process writes there, as soon as it has."""
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


def open_in(pid: int) -> set[str]:
    return set(os.listdir(f"/proc/{pid}/fd"))


def children_of(pid: int) -> list[int]:
    """The processes that this one has started, by whichever thread."""
    found: list[int] = []
    for task in os.listdir(f"/proc/{pid}/task"):
        found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


def childless(pid: int) -> bool:
    """Whether the process has no children before long: an end is reported a moment before it is reaped."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while children_of(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not children_of(pid)


def reaped(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def stop(*processes: "subprocess.Popen[bytes]") -> None:
    """Kill those that still run, frozen or not."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait()
