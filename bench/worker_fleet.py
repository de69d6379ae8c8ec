"""Real worker processes: started as people start them, watched through /proc, stopped by their ids."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TypeVar

import worker_app
from holdfast import AsyncClient, Handle

T = TypeVar("T")

HERE = Path(__file__).parent
SOURCES = HERE.parent / "src"
PATIENCE_SECONDS = 60.0
LEAVE_SECONDS = 20.0
WORKER, SUPERVISOR, RUNNERS = "worker", "process supervisor", "runners"
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SET_DEATH_SIGNAL = 1
_kernel = ctypes.CDLL(None)
_numbers = count(1)


class NotMeasured(Exception):
    """A figure that could not be had; the message says why."""


@dataclass(frozen=True)
class Memory:
    """Bytes of one process: all it has mapped, and its share of them."""

    role: str
    rss: int
    pss: int


class Worker:
    """One `holdfast worker`, and the processes that belong to it."""

    def __init__(
        self,
        url: str,
        folder: Path,
        *options: str,
        spool: Path | None = None,
        queues: tuple[str, ...] = ("default",),
    ) -> None:
        self.name = f"bench-{next(_numbers)}"
        self.log = folder / f"{self.name}.log"
        command = [sys.executable, "-m", "holdfast", "worker", worker_app.NAME, "--store", url]
        command += ["--name", self.name, "--spool", str(spool or folder / f"{self.name}.spool")]
        command += [*(f"-q{queue}" for queue in queues), *options]
        path = os.pathsep.join([str(SOURCES), str(HERE)])
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": path},
                preexec_fn=_leave_with_us,  # noqa: PLW1509 - one system call, no lock
            )
        self._queue = queues[-1]
        self._seen: dict[int, str] = {}

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def check(self) -> None:
        if not self.alive:
            raise NotMeasured(f"a worker ended early:\n{self.log.read_text()[-2000:]}")

    async def ready(self, client: AsyncClient) -> None:
        """Return when it has run a job of its last queue."""
        await self.result(await client.enqueue(worker_app.moment.call(), queue=self._queue))

    async def result(self, handle: Handle[T]) -> T:
        """What a job returns that only this worker can run."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            self.check()
            with suppress(TimeoutError):
                return await handle.result_async(timeout=1.0)
        raise NotMeasured(f"a worker has run nothing:\n{self.log.read_text()[-2000:]}")

    def pids(self) -> dict[int, str]:
        """Its processes, each with its role."""
        found = {self._process.pid: WORKER} if self.alive else {}
        for reaper in found and _children(self._process.pid):
            found[reaper] = SUPERVISOR
            for pid in _children(reaper):
                found[pid] = SUPERVISOR
                found |= dict.fromkeys(_children(pid), RUNNERS)
        self._seen |= {pid: _born(pid) for pid in found}
        return found

    def cpu_seconds(self) -> dict[str, float]:
        """What its processes have used, by role; runners that have ended are counted in."""
        used = dict.fromkeys((WORKER, SUPERVISOR, RUNNERS), 0.0)
        for pid, role in self.pids().items():
            own, ended = _cpu(pid)
            used[role] += own
            if role == SUPERVISOR:
                used[RUNNERS] += ended
        return used

    def memory(self) -> list[Memory]:
        return [_memory(pid, role) for pid, role in self.pids().items()]

    def kill(self, *roles: str) -> float:
        """Kill -9 all its processes, or those of some roles; answers the moment before."""
        pids = self.pids()
        now = time.monotonic()
        for pid, role in pids.items():
            if not roles or role in roles:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return now

    def stop(self) -> None:
        """Let it leave; whatever is left of it then is killed."""
        self.pids()
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LEAVE_SECONDS)
        self._process.kill()
        self._process.wait()
        for pid, born in self._seen.items():
            if _born(pid) == born:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


class Fleet:
    """The workers of one store. None of them outlives it."""

    def __init__(self, url: str, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.url = url
        self.folder = folder
        self.workers: list[Worker] = []

    def start(
        self,
        *options: str,
        spool: Path | None = None,
        queues: tuple[str, ...] = ("default",),
    ) -> Worker:
        worker = Worker(self.url, self.folder, *options, spool=spool, queues=queues)
        self.workers.append(worker)
        return worker

    def cpu_seconds(self) -> dict[str, float]:
        each = [worker.cpu_seconds() for worker in self.workers]
        return {role: sum(used[role] for used in each) for role in (WORKER, SUPERVISOR, RUNNERS)}

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop()


@asynccontextmanager
async def fleet(url: str, folder: Path) -> AsyncGenerator[tuple[Fleet, AsyncClient], None]:
    """Workers to be started, and a client of the same store."""
    workers = Fleet(url, folder)
    try:
        async with AsyncClient(url) as client:
            yield workers, client
    finally:
        await asyncio.to_thread(workers.stop)


def _leave_with_us() -> None:
    """In the new process: leave when the benchmark is gone, however it went."""
    _kernel.prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)


def _children(pid: int) -> list[int]:
    """Of all its threads: a child belongs to the thread that started it."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def _stat(pid: int) -> list[str]:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="latin-1").rpartition(")")[2].split()
    return []


def _born(pid: int) -> str:
    stat = _stat(pid)
    return stat[19] if stat else ""


def _cpu(pid: int) -> tuple[float, float]:
    """Seconds of the process, and of those it has waited for."""
    fields = [int(word) / _TICKS for word in _stat(pid)[11:15]] or [0.0] * 4
    return sum(fields[:2]), sum(fields[2:])


def _memory(pid: int, role: str) -> Memory:
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    [share] = [int(row.split()[1]) * 1024 for row in rollup if row.startswith("Pss:")]
    return Memory(role, resident, share)
