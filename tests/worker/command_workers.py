"""Real workers of commands on a SQLite file, in this process and in others."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.process_spec import ProcessSpec, encode_process_spec
from holdfast.core.retry import COMMAND_RETRY, Retry
from holdfast.core.spec import Spec
from holdfast.ports import Grant, JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_local
from holdfast.system import SystemClock, SystemIds
from holdfast.worker.claims import WorkerSettings
from holdfast.worker.command_executor import CommandExecutor
from holdfast.worker.processes import Processes
from holdfast.worker.spool import MemorySpool
from holdfast.worker.worker import Worker
from tests.worker.live_processes import PATIENCE_SECONDS

T = TypeVar("T")
SHORT = timedelta(seconds=2)


class SilentObserver:
    """An observer that keeps only what was lost and what went wrong."""

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


class CommandWorkers:
    """Submits commands to one file, and runs workers on it inside or outside of this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "jobs.db"
        self.url = f"sqlite:///{self.path}"
        self.observer = SilentObserver()

    def use(self, work: Callable[[LocalRegistry], Coroutine[None, None, T]]) -> T:
        async def main() -> T:
            async with self.open() as registry:
                return await work(registry)

        return asyncio.run(main())

    @asynccontextmanager
    async def open(self) -> AsyncIterator[LocalRegistry]:
        """The registry, for a test that is a coroutine."""
        registry = await open_local(self.url)
        try:
            yield registry
        finally:
            await registry.close()

    def submit(self, *argv: str, retry: Retry = COMMAND_RETRY, **more: object) -> str:
        return self.use(lambda registry: enqueue_command(registry, *argv, retry=retry, **more))

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
            opened = open_worker(registry, self.observer, own, passed, drain=True, **settings)
            async with asyncio.timeout(PATIENCE_SECONDS), opened as worker:
                await worker.run()

        self.use(work)
        assert self.observer.troubles == []

    def job(self, job_id: str) -> Job:
        return self.use(lambda r: r.status(job_id))

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
            [job] = self.use(lambda r: r.status_many([job_id]))
            if job is not None and ready(job):
                return job
            time.sleep(0.05)
        raise AssertionError(f"{job_id} is still {job}")

    def start(self, name: str, *options: str) -> "subprocess.Popen[bytes]":
        """A worker process of its own, with a lease of two seconds."""
        command = [sys.executable, "-m", "holdfast", "worker", "--store", self.url, "--name", name]
        command += ["--spool", str(self.folder / "spool")]
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen([*command, "--lease", "2s", "-c", "1", *options], stderr=log)


async def enqueue_command(
    registry: LocalRegistry, *argv: str, retry: Retry = COMMAND_RETRY, **more: object
) -> str:
    """A job for this command; returns its id."""
    command = {k: more.pop(k) for k in ("env", "cwd", "secrets") if k in more}
    payload = encode_process_spec(ProcessSpec(argv=argv, **command))  # type: ignore[arg-type]
    spec = Spec(payload=payload, retry=retry, **more)  # type: ignore[arg-type]
    return (await registry.enqueue(JobRequest(spec=spec), actor="user:ana")).job_id


@asynccontextmanager
async def open_worker(
    registry: LocalRegistry,
    observer: SilentObserver,
    own: Mapping[str, str] = os.environ,
    passed: tuple[str, ...] = (),
    **settings: object,
) -> AsyncIterator[Worker]:
    """A worker of commands in this process."""
    processes = Processes(SystemClock())
    yield Worker(
        registry,
        WorkerSettings(owner="w-1", **settings),  # type: ignore[arg-type]
        observer,
        clock=SystemClock(),
        ids=SystemIds(),
        executors=[CommandExecutor(processes, own=own, passed=passed)],
        spool=MemorySpool(),
    )
    await processes.close()
