"""The runners of an app: processes in which its handlers run, started when there is work for them.

One is shared by all handlers that do not ask for a process of their own. The others are exclusive, are
kept for further jobs, and are replaced after many jobs or when they have grown large.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from holdfast.core.errors import Invalid
from holdfast.failpoint import failpoint
from holdfast.worker.frames import Hello
from holdfast.worker.processes import ProcessExit, ProcessStarter
from holdfast.worker.runner_attempt import RunnerAttempt
from holdfast.worker.runner_connection import RunnerConnection, RunnerListener
from holdfast.worker.tasks import stop

HELLO_SECONDS = 60.0
RECYCLE_JOBS = 1000
RECYCLE_BYTES = 512 * 1024 * 1024


class RunnerPool:
    """Finds, or starts, a runner for every attempt. `limits`: how many threads the shared runner has, and how
    many exclusive runners there may be."""

    def __init__(
        self,
        listener: RunnerListener,
        processes: ProcessStarter,
        app: str,
        *,
        runner_argv: Sequence[str],
        limits: tuple[int, int],
        env: Mapping[str, str],
        stores: tuple[str, str],
        piped: bool = False,
    ) -> None:
        self._listener = listener
        self._argv = runner_argv
        self._piped = piped
        self._processes = processes
        self._app = app
        self._threads, self._processes_max = limits
        self._env = env
        self._stores = stores
        self._shared: RunnerConnection | None = None
        self._waiting: list[RunnerAttempt] = []
        self._queues: dict[int | None, deque[RunnerAttempt]] = {}  # by memory limit
        self._starting: dict[asyncio.Task[None], bool] = {}
        self._closing = False
        self.runners: dict[RunnerConnection, None] = {}

    async def load(self) -> Hello:
        """Start the shared runner. Raise `Invalid` when the app cannot be loaded."""
        self._shared, hello = await self._start(exclusive=False, memory_bytes=None)
        return hello

    async def close(self) -> None:
        self._closing = True
        await stop(*self._starting)
        for runner in list(self.runners):
            await runner.close()

    def submit_shared(self, attempts: Sequence[RunnerAttempt]) -> None:
        """Have the attempts begun in the shared runner, as soon as there is one."""
        self._waiting += attempts
        self._serve_shared()

    def submit_exclusive(self, attempt: RunnerAttempt, memory_bytes: int | None) -> None:
        """Have the attempt begun in a runner of its own, as soon as one is free."""
        self._queues.setdefault(memory_bytes, deque()).append(attempt)
        self._serve_queue(memory_bytes)

    def attempts_ended(self, runner: RunnerConnection, count: int) -> None:
        """So many attempts in this runner are over."""
        runner.attempts_done += count
        if runner.exclusive:
            if runner.attempts_done >= RECYCLE_JOBS or runner.resident_bytes() > RECYCLE_BYTES:
                self.retire(runner)
            self._serve_queues()
        elif runner.retired and not runner.attempts:
            runner.kill()

    def retire(self, runner: RunnerConnection) -> None:
        """Give this runner no more attempts, and kill it when its last one has ended."""
        runner.retired = True
        if not runner.attempts:
            runner.kill()

    def _runner_ended(self, runner: RunnerConnection, exit: ProcessExit) -> None:  # noqa: A002
        self.runners.pop(runner, None)
        if self._shared is runner:
            self._shared = None
        self._listener.runner_ended(runner, exit)
        self._serve_all()

    def _serve_shared(self) -> None:
        runner = self._shared
        if runner is not None and not runner.retired:
            waiting, self._waiting = self._waiting, []
            self._listener.begin(runner, waiting)
        elif self._waiting and False not in self._starting.values():
            self._start_task(self._start_shared(), exclusive=False)

    async def _start_shared(self) -> None:
        try:
            self._shared, _ = await self._start(exclusive=False, memory_bytes=None)
        except (Invalid, OSError) as error:
            while self._waiting:
                self._listener.no_runner(self._waiting.pop(0), error)

    def _serve_queues(self) -> None:
        """Serve every queue, the one that has waited longest first: none may starve beside a busy one."""
        waited = {m: queue[0].held.begun_at or 0.0 for m, queue in self._queues.items() if queue}
        for memory_bytes in sorted(waited, key=waited.__getitem__):
            self._serve_queue(memory_bytes)

    def _serve_queue(self, memory_bytes: int | None) -> None:
        """Give the waiting attempts to idle runners; start more, or retire idle ones with another limit."""
        queue = self._queues.get(memory_bytes)
        if not queue:
            return
        idle = [runner for runner in self.runners if _idle(runner)]
        for runner in idle:
            while queue and not runner.attempts and runner.memory_bytes == memory_bytes:
                self._listener.begin(runner, [queue.popleft()])
        others = [runner for runner in idle if runner.memory_bytes != memory_bytes]
        count = sum(runner.exclusive for runner in self.runners)
        coming = sum(self._starting.values())
        for _ in range(len(queue) - coming):
            if count + coming < self._processes_max:
                coming += 1
                self._start_task(self._start_exclusive(memory_bytes), exclusive=True)
            elif others:
                self.retire(others.pop())

    async def _start_exclusive(self, memory_bytes: int | None) -> None:
        try:
            await self._start(exclusive=True, memory_bytes=memory_bytes)
        except (Invalid, OSError) as error:
            if queue := self._queues[memory_bytes]:
                self._listener.no_runner(queue.popleft(), error)

    def _start_task(self, work: Coroutine[Any, Any, None], *, exclusive: bool) -> None:
        task = asyncio.create_task(work)
        self._starting[task] = exclusive
        task.add_done_callback(self._started)

    def _started(self, task: asyncio.Task[None]) -> None:
        del self._starting[task]
        self._serve_all()

    def _serve_all(self) -> None:
        if not self._closing:
            self._serve_shared()
            self._serve_queues()

    async def _start(self, *, exclusive: bool, memory_bytes: int | None) -> tuple[RunnerConnection, Hello]:
        runner = RunnerConnection(
            self._listener,
            self._runner_ended,
            exclusive=exclusive,
            memory_bytes=memory_bytes,
            piped=self._piped,
        )
        threads = 1 if exclusive else self._threads
        self.runners[runner] = None
        try:
            await runner.start(
                self._processes,
                self._argv,
                self._app,
                stores=self._stores,
                threads=threads,
                env=self._env,
            )
        except BaseException:
            del self.runners[runner]
            raise
        failpoint("worker.runner_started")
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                hello = await asyncio.shield(runner.hello)
        except (TimeoutError, ConnectionError) as error:
            runner.kill()
            words = str(error) or f"{self._app} took too long to load."
            raise Invalid(words, advice=self._advice()) from error
        if hello.error is not None:
            raise Invalid(hello.error, advice=self._advice())
        runner.ready = True
        return runner, hello

    def _advice(self) -> str:
        """Return the advice: a command that shows whether the app can be loaded."""
        module = self._app.partition(":")[0]
        return f"Try it in the folder of the app: python -c 'import {module}'"


def _idle(runner: RunnerConnection) -> bool:
    return runner.exclusive and runner.ready and not runner.attempts and not runner.retired
