"""A connection to a runner without a process, and an executor of functions without a runner."""

import asyncio
import socket
from collections.abc import Sequence
from datetime import timedelta
from math import inf
from pathlib import Path
from typing import cast

from holdfast.core.spec import Spec
from holdfast.ports import JobRequest, Registry
from holdfast.runner import RUNNER_ARGV
from holdfast.sdk.open import open_registry
from holdfast.system import SystemClock
from holdfast.worker.executor import Ending
from holdfast.worker.frames import Ended, KnownJob
from holdfast.worker.function_executor import FunctionExecutor
from holdfast.worker.held_job import HeldJob
from holdfast.worker.processes import Child, ProcessExit
from holdfast.worker.runner_attempt import RunnerAttempt
from holdfast.worker.runner_connection import RunnerConnection, RunnerListener
from holdfast.worker.runner_output import RunnerOutput
from holdfast.worker.tasks import Tasks
from tests.worker.fake_host import FakeHost

CLOCK = SystemClock()


async def claim_job(registry: Registry, kind: str = "work", **spec: object) -> HeldJob:
    """A job that this worker has just claimed."""
    request = JobRequest(spec=Spec(kind=kind, **spec))  # type: ignore[arg-type]
    job = await registry.enqueue(request, actor="user:ana")
    grant = await registry.acquire(job.job_id, owner="w-1")
    return HeldJob(grant, CLOCK.monotonic() + 30)


class FakeChild:
    """A process that only counts its signals, and how long it may live."""

    pid = 0

    def __init__(self) -> None:
        self.signals: list[int] = []
        self.lifetimes: list[float] = []

    def send(self, number: int) -> None:
        self.signals.append(number)

    def set_lifetime(self, seconds: float) -> None:
        self.lifetimes.append(seconds)


class RecordingListener:
    """A listener that keeps what the runner sends."""

    def __init__(self) -> None:
        self.messages: list[object] = []

    def received(self, runner: RunnerConnection, messages: Sequence[object]) -> None:
        self.messages += messages

    def wrote(self, runner: RunnerConnection, stream: str, data: bytes) -> None:
        self.messages.append(data)

    def begin(self, runner: RunnerConnection, attempts: Sequence[RunnerAttempt]) -> None: ...

    def no_runner(self, attempt: RunnerAttempt, error: Exception) -> None: ...

    def runner_ended(self, runner: RunnerConnection, exit: ProcessExit) -> None: ...  # noqa: A002


async def open_connection(
    listener: RunnerListener,
) -> tuple[RunnerConnection, FakeChild, socket.socket]:
    """A connection without a process, and the far end of its line."""
    connection, child = (
        RunnerConnection(listener, listener.runner_ended, exclusive=True, memory_bytes=None),
        FakeChild(),
    )
    connection.child = cast("Child", child)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    loop = asyncio.get_running_loop()
    connection._transport, _ = await loop.create_connection(lambda: connection, sock=ours)
    return connection, child, theirs


class AttemptSetup:
    """An executor of functions with one attempt, whose runner is played by the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def __aenter__(self) -> "AttemptSetup":
        self.registry = await open_registry("memory://")
        self.host = FakeHost(self.registry, self.folder)
        self.functions = FunctionExecutor(
            self.host.processes, "plant:app", runner_argv=RUNNER_ARGV, slots=1, env={}
        )
        self.functions._known = {"work": KnownJob("work", "shared", None, compensates=False)}
        self.functions._host = self.host
        self.functions._tasks = Tasks(self.host.trouble)
        self.functions._output = RunnerOutput(self.host, self.functions._tasks)
        self.connection, self.child, self.far = await open_connection(RecordingListener())
        self.connection.exclusive = False
        self.hold = await claim_job(self.registry, timeout=timedelta(seconds=1))
        self.attempt = RunnerAttempt(self.hold)
        self.functions.begin(self.connection, [self.attempt])
        return self

    async def __aexit__(self, *_: object) -> None:
        self.connection._transport.close()
        self.far.close()
        await self.functions._tasks.stop()
        for output in self.host.outputs.values():
            await output.close()
        await self.registry.close()

    async def wait_for_stop(self) -> None:
        """Wait until the runner was asked to stop the attempt."""
        for _ in range(100):
            await asyncio.sleep(0)
        assert self.attempt.stop_reply is not None

    def is_read(self) -> bool:
        return not self.connection._paused

    def report_ended(self, ending: Ending, at: float = inf) -> None:
        """Report that the attempt has ended, late unless a time is given."""
        self.functions.received(self.connection, [Ended(self.attempt.number, ending, at)])
