"""Real workers of an app in a folder, on a store that the test can read."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any, TypeVar

import msgspec

from holdfast.core.catalogue import ReasonCode
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import JobRequest, Registry
from holdfast.sdk.open import open_registry
from tests.stores.postgres.running_server import fresh_url
from tests.worker.live_processes import PATIENCE_SECONDS, stop, wait_until

T = TypeVar("T")
STORES = ("sqlite", "postgres")
LEASE = timedelta(seconds=2)
QUICK = Retry(backoff=timedelta(milliseconds=20), backoff_max=timedelta(milliseconds=20))
HEAD = """
import asyncio, ctypes, os, signal, sys, threading, time
from pathlib import Path
import holdfast
app = holdfast.App()
"""
ARMED = """
import os, signal, sys
from holdfast.failpoint import arm
point, passing = sys.argv[1], int(sys.argv[2])
del sys.argv[1:3]
passed = 0
def hook(name):
    global passed
    passed += name == point
    if passed == passing:
        os.kill(os.getpid(), signal.SIGKILL)
arm(hook)
from holdfast.cli.main import main
main()
"""


class FunctionWorkers:
    """One store, one folder with the app in it, and the workers that were started there."""

    def __init__(self, folder: Path, url: str, source: str) -> None:
        self.folder = folder
        self.url = url
        self.spool = folder / "spool"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.write(source)
        self._loop = asyncio.Runner()
        self._registry = self._loop.run(open_registry(url))

    def close(self) -> None:
        stop(*self.processes.values())
        self._loop.run(self._registry.close())
        self._loop.close()

    def write(self, source: str, module: str = "plant") -> None:
        """Make this the app."""
        draft = self.folder / f"{module}.draft"
        draft.write_text(HEAD + dedent(source))
        draft.replace(self.folder / f"{module}.py")

    def use(self, work: Callable[[Registry], Coroutine[Any, Any, T]]) -> T:
        return self._loop.run(work(self._registry))

    def enqueue(self, kind: str, payload: dict[str, object] | None = None, **spec: object) -> str:
        """A job, with a short lease and quick retries unless given others."""
        job_id = spec.pop("job_id", None)
        document = msgspec.Raw(msgspec.json.encode(payload or {}))
        options: dict[str, Any] = {"lease": LEASE, "retry": QUICK} | spec
        request = JobRequest(
            spec=Spec(kind=kind, payload=document, **options),
            job_id=job_id,  # type: ignore[arg-type]
        )
        return self.use(lambda r: r.enqueue(request, actor="user:ana")).job_id

    def start(
        self,
        name: str,
        *options: str,
        url: str | None = None,
        module: str = "plant",
        app: str | None = None,
        dies_at: str | None = None,
        passing: int = 1,
        slots: int | None = 32,
    ) -> "subprocess.Popen[bytes]":
        """A worker of the app; with `dies_at` it is killed when it passes that failpoint."""
        armed = ["-c", ARMED, dies_at, str(passing)] if dies_at else ["-m", "holdfast"]
        command = [sys.executable, *armed, "worker", app or f"{module}:app"]
        command += [
            "--store",
            url or self.url,
            "--name",
            name,
            "--spool",
            str(self.spool),
            "--lease",
            "2s",
            *(["-c", str(slots)] if slots else []),
            *options,
        ]
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder, start_new_session=True
            )
        self.processes[name] = process
        return process

    def worker_log(self, name: str) -> str:
        """What that worker has logged."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def job(self, job_id: str) -> Job:
        return self.use(lambda r: r.status(job_id))

    def log(self, job_id: str) -> list[Event]:
        async def read(registry: Registry) -> list[Event]:
            found: list[Event] = []
            cursor: str | None = None
            while True:
                page = await registry.logs(job_id, after=cursor)
                found += page.events
                if not page.events:
                    return found
                cursor = page.cursor

        return self.use(read)

    def history(self, job_id: str) -> list[Event]:
        """The registry's own events, in order."""
        return self.use(lambda r: r.history(job_id))

    def types(self, job_id: str) -> list[str]:
        return [str(event.event_type) for event in self.history(job_id)]

    def output(self, job_id: str, stream: str = "stdout", attempt: int | None = None) -> bytes:
        return b"".join(
            event.data or b""
            for event in self.log(job_id)
            if event.stream == stream and attempt in (None, event.attempt)
        )

    def until(self, job_id: str, ready: Callable[[Job], bool]) -> Job:
        """The job as soon as it is `ready`."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            job = self.job(job_id)
            if ready(job):
                return job
            assert time.monotonic() < deadline, f"{job_id} is still {job}\n{self.all_logs()}"
            assert self.alive(), f"no worker is left for {job_id}\n{self.all_logs()}"
            time.sleep(0.03)

    def alive(self) -> bool:
        """Whether any worker is left, or none was started."""
        workers = self.processes.values()
        return not workers or any(worker.poll() is None for worker in workers)

    def all_logs(self) -> str:
        return "\n".join(f"-- {name}\n{self.worker_log(name)}" for name in self.processes)

    def ended(self, job_id: str) -> Job:
        return self.until(job_id, lambda job: job.ended)

    def succeeded(self, job_id: str) -> Job:
        job = self.ended(job_id)
        assert job.state is State.SUCCEEDED, f"{job}\n{self.all_logs()}"
        return job

    def running(self, job_id: str) -> Job:
        return self.until(job_id, lambda job: job.state is State.RUNNING)

    def cancel(self, job_id: str, *, hard: bool) -> Job:
        return self.use(lambda r: r.cancel(job_id, actor="user:ana", hard=hard))

    def file(self, name: str) -> str:
        """The text of a file in the folder, once it is there and not empty."""
        path = self.folder / name
        wait_until(lambda: path.exists() and bool(path.read_text()))
        return path.read_text()

    def leave(self, name: str) -> int:
        """Tell a worker to leave; returns its exit code."""
        self.processes[name].send_signal(signal.SIGTERM)
        return self.processes[name].wait(PATIENCE_SECONDS)

    def assert_consistent(self) -> None:
        """Nothing is lost: record and log of every job agree."""
        assert self.use(lambda r: r.verify()).equal


@contextmanager
def open_workers(store: str, folder: Path, source: str) -> Iterator[FunctionWorkers]:
    """A workers on that store, with this app."""
    url = f"sqlite:///{folder / 'jobs.db'}"
    if store == "postgres":
        url = asyncio.run(fresh_url(folder))
    workers = FunctionWorkers(folder, url, source)
    try:
        yield workers
    finally:
        workers.close()


def costs(job: Job) -> tuple[int, int, int]:
    """What the job has paid: attempts, failures, crashes."""
    return job.attempt, job.failures, job.crashes


def dead_letter_reason(job: Job) -> ReasonCode | None:
    """Why the job is a dead letter, if it is one."""
    return None if job.dead_letter is None else job.dead_letter.reason_code
