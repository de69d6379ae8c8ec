"""The command line on a temporary SQLite file, and a registry to make jobs with a past."""

import asyncio
import os
import pty
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from click.testing import CliRunner, Result

from holdfast.cli.main import cli
from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.event import Event
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import Outcome, Success
from holdfast.core.retry import Retry
from holdfast.core.state import State
from holdfast.ports import Grant, Registry
from holdfast.sdk.open import open_registry

PROGRAM = [sys.executable, "-m", "holdfast"]


T = TypeVar("T")
SOURCE = Path(__file__).parents[2] / "src"


class CommandLine:
    """One store, its command line in this process and in others."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "jobs.db"
        self.url = f"sqlite:///{self.file}"
        self.environment = {
            **os.environ,
            "HOLDFAST_STORE": self.url,
            "PYTHONPATH": str(SOURCE),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def run(self, *arguments: str, code: int = 0) -> Result:
        """The command in this process; its exit code must be `code`."""
        result = CliRunner(env={"HOLDFAST_STORE": self.url}).invoke(cli, arguments)
        assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
        return result

    def process(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[bytes]:
        """The command as a process of its own, with pipes."""
        return subprocess.run(
            [sys.executable, "-m", "holdfast", *arguments],
            env=self.environment,
            capture_output=True,
            timeout=timeout,
            check=False,
        )

    def registry(self, work: Callable[[Registry], Awaitable[T]]) -> T:
        """Do something with the registry itself."""

        async def session() -> T:
            registry = await open_registry(self.url)
            try:
                return await work(registry)
            finally:
                await registry.close()

        return asyncio.run(session())

    def state(self, job_id: str) -> State:
        return self.registry(lambda registry: registry.status(job_id)).state

    def submit(self, *options: str, command: Sequence[str] = ("echo", "hello")) -> str:
        return self.run("submit", *options, "--", *command).stdout.strip()

    def claim(self, job_id: str, owner: str = "w1") -> Grant:
        return self.registry(lambda registry: registry.acquire(job_id, owner=owner))

    def finish(self, job_id: str, outcome: Outcome | None = None, *events: Event) -> Job:
        """Claim the job, write the output, and end it so."""

        async def work(registry: Registry) -> Job:
            grant = await registry.acquire(job_id, owner="w1")
            if events:
                await registry.publish(grant, events)
            return await registry.complete(grant, outcome or Success(result={"exit_code": 0}))

        return self.registry(work)

    def dead_letter(self, message: str = "exit code 3") -> str:
        job_id = self.submit("--on-exhausted", "dead_letter")
        self.finish(job_id, failure(message))
        return job_id


def failure(message: str = "exit code 3", exit_code: int | None = 3) -> Failure:
    return Failure(message=message, code="ExitCode", exit_code=exit_code)


def output(sequence: int, data: bytes, stream: str = "stdout") -> Event:
    """A piece of output, as a worker publishes it."""
    return Event(
        event_type=WorkerEventType.OUTPUT,
        event_class=EventClass.WORKER,
        occurred_at=datetime(2026, 1, 1, 12, 0, sequence % 60, tzinfo=UTC),
        sequence=sequence,
        stream=stream,
        data=data,
    )


RETRY = Retry()


def on_a_terminal(
    cli: CommandLine, *arguments: str, typed: bytes = b"", **environment: str
) -> tuple[int, str]:
    """Exit code and everything that a terminal of 200 columns was sent, with what was `typed` there."""
    master, slave = pty.openpty()
    seen = b""
    process = subprocess.Popen(
        [*PROGRAM, *arguments],
        env={**cli.environment, "TERM": "xterm-256color", "COLUMNS": "200", **environment},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    os.write(master, typed)
    while True:
        try:
            piece = os.read(master, 65_536)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    os.close(master)
    return process.wait(timeout=120), seen.decode()
