"""A yard for process tests: a warden of its own, and a look at what it has started."""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeVar

from holdfast.system import SystemClock
from holdfast.worker.processes import Child, Exit, Processes

T = TypeVar("T")
PATIENCE_SECONDS = 60.0
ENV = {"PATH": os.environ["PATH"]}


def use(
    work: Callable[[Processes], Coroutine[None, None, T]], inherited: tuple[int, ...] = ()
) -> T:
    async def main() -> T:
        processes = Processes(SystemClock(), inherited)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await work(processes)
        finally:
            await processes.close()

    return asyncio.run(main())


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
        assert await child.wait() == Exit(0)
        return os.read(read_end, 60_000)
    finally:
        os.close(read_end)
        os.close(write_end)


def warden_of(processes: Processes) -> int:
    """The warden: the only child of the reaper, which the worker has started."""
    assert processes._warden is not None
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := children_of(processes._warden._process.pid)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found[0]


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="latin-1")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def gone(pid: int, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not alive(pid)


def number_in(path: Path) -> int:
    """The number that a process writes there, as soon as it has."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return int(path.read_text())


def open_in(pid: int) -> set[str]:
    return set(os.listdir(f"/proc/{pid}/fd"))


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def childless(pid: int) -> bool:
    """Whether the process has no children before long: an end is told a moment before it is reaped."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while children_of(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not children_of(pid)


def reaped(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()
