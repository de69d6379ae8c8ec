"""A shop floor for worker tests: a real SQLite file, real processes, real signals."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from holdfast.core.command import Command, encode_command
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.retry import COMMAND_RETRY, Retry
from holdfast.core.spec import Spec
from holdfast.ports import Grant, Request
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_local
from holdfast.system import SystemClock, SystemIds
from holdfast.worker.claims import Settings
from holdfast.worker.commands import Commands
from holdfast.worker.processes import Processes
from holdfast.worker.spool import MemorySpool
from holdfast.worker.worker import Worker

T = TypeVar("T")
PATIENCE_SECONDS = 30.0


class Silent:
    """A report nobody reads, except for what was lost."""

    def __init__(self) -> None:
        self.losses: list[str] = []
        self.troubles: list[str] = []

    def started(self, grant: Grant) -> None: ...

    def ended(self, job: Job, seconds: float) -> None: ...

    def lost(self, grant: Grant, why: str) -> None:
        self.losses.append(why)

    def trouble(self, why: str) -> None:
        self.troubles.append(why)

    def paused(self, seconds: float, why: str) -> None: ...

    def resumed(self) -> None: ...


class Shop:
    """Submits commands to one file, and runs workers on it inside or outside of this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "jobs.db"
        self.url = f"sqlite:///{self.path}"
        self.report = Silent()

    def use(self, work: Callable[[LocalRegistry], Coroutine[None, None, T]]) -> T:
        async def main() -> T:
            registry = await open_local(self.url)
            try:
                return await work(registry)
            finally:
                await registry.close()

        return asyncio.run(main())

    def submit(self, *argv: str, retry: Retry = COMMAND_RETRY, **more: object) -> str:
        command = {k: more.pop(k) for k in ("env", "cwd", "secrets") if k in more}
        payload = encode_command(Command(argv=argv, **command))  # type: ignore[arg-type]
        spec = Spec(payload=payload, retry=retry, **more)  # type: ignore[arg-type]
        return self.use(lambda r: _enqueue(r, spec))

    def shell(self, script: str, **more: object) -> str:
        return self.submit("sh", "-c", script, **more)  # type: ignore[arg-type]

    def drain(
        self,
        own: Mapping[str, str] = os.environ,
        passed: tuple[str, ...] = (),
        **settings: object,
    ) -> None:
        """Run a worker in this process until nothing is left."""

        async def work(registry: LocalRegistry) -> None:
            chosen = Settings(owner="w-1", drain=True, **settings)  # type: ignore[arg-type]
            clock, ids = SystemClock(), SystemIds()
            processes = Processes(clock)
            worker = Worker(
                registry,
                chosen,
                self.report,
                clock=clock,
                ids=ids,
                executors=[Commands(processes, own=own, passed=passed)],
                spool=MemorySpool(),
            )
            async with asyncio.timeout(PATIENCE_SECONDS):
                await worker.run()
            await processes.close()

        self.use(work)
        assert self.report.troubles == []

    def job(self, job_id: str) -> Job:
        return self.use(lambda r: r.get(job_id))

    def output(self, job_id: str, stream: str, attempt: int | None = None) -> bytes:
        events = self.log(job_id)
        return b"".join(
            event.data or b""
            for event in events
            if event.stream == stream and attempt in (None, event.attempt)
        )

    def log(self, job_id: str) -> list[Event]:
        async def read(registry: LocalRegistry) -> list[Event]:
            return [event async for event in registry.watch(job_id)]

        return self.use(read)

    def until(self, job_id: str, ready: Callable[[Job], bool]) -> Job:
        """The job as soon as it is there and `ready`."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            [job] = self.use(lambda r: r.get_many([job_id]))
            if job is not None and ready(job):
                return job
            time.sleep(0.05)
        raise AssertionError(f"{job_id} is still {job}")

    def worker(self, name: str, *options: str) -> "subprocess.Popen[bytes]":
        """A worker process of its own, with a lease of two seconds."""
        command = [sys.executable, "-m", "holdfast", "worker", "--store", self.url, "--name", name]
        command += ["--spool", str(self.folder / "spool")]
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen([*command, "--lease", "2s", "-c", "1", *options], stderr=log)


async def _enqueue(registry: LocalRegistry, spec: Spec) -> str:
    return (await registry.enqueue(Request(spec=spec), actor="user:ana")).job_id


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid: int, seconds: float = 10.0) -> bool:
    """Whether the process is gone, now or soon."""
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


def stop(*processes: "subprocess.Popen[bytes]") -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait()


SHORT = timedelta(seconds=2)
