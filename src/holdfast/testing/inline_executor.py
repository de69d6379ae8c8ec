"""An executor for tests: it runs the handlers of an app in this process, on the worker's own loop.

Coroutines run on the loop, plain functions in threads. Without a process of its own, a handler that blocks
the loop blocks the worker.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from holdfast.core.catalogue import WorkerEventType
from holdfast.core.errors import HoldfastError
from holdfast.core.event import Attributes
from holdfast.core.job import Progress
from holdfast.runner.bridge import Bridge
from holdfast.runner.context import CheckpointRefused, Context
from holdfast.runner.invocation import compensate, handle
from holdfast.sdk.app import App
from holdfast.system import first_of
from holdfast.worker.attempt_stop import (
    CANCEL_SECONDS,
    RELEASE_SECONDS,
    THREAD_STOP_SECONDS,
    UNWIND_SECONDS,
)
from holdfast.worker.executor import Ending, Host
from holdfast.worker.failures import needs_compensation, stopped, timed_out
from holdfast.worker.held_job import HeldJob
from holdfast.worker.runner_attempt import RunnerAttempt, run_message
from holdfast.worker.tasks import Tasks, stop

HandlerPoint: TypeAlias = Literal["progress", "emit", "checkpoint", "checkpointed", "returned"]
"""Where a handler is: it reports progress or an event, it asks for a checkpoint, the checkpoint is stored,
it has returned (or raised)."""
HandlerObserver: TypeAlias = Callable[["InlineAttempt", HandlerPoint], None]
"""Called on the loop at every place of a handler. What it raises, the handler gets."""


class InlineExecutor:
    """Runs the jobs of one app. `errors` has the last exception of each job's handler, by job id."""

    kinds: tuple[str, ...] = ()

    def __init__(self, app: App, *, threads: int = 8, observer: HandlerObserver | None = None) -> None:
        self._app = app
        self._thread_count = threads
        self._observer = observer
        self._attempts: dict[HeldJob, InlineAttempt] = {}
        self.errors: dict[str, BaseException] = {}
        self.waiting = 0
        """How many handlers only wait for the worker: to be asked to stop, or for its store."""
        self.waiting_threads = 0

    async def open(self, host: Host) -> None:
        self.host = host
        self._tasks = Tasks(host.trouble)
        self.kinds = tuple(self._app.jobs)
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._threads = ThreadPoolExecutor(self._thread_count, thread_name_prefix="handler")
        self.outputs = self._app.output_store()

    async def close(self) -> None:
        await self._tasks.stop()
        await self.outputs.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def running(self) -> int:
        """How many handlers have begun, and have not died."""
        return sum(attempt.died is None for attempt in self._attempts.values())

    @contextmanager
    def waiting_for_worker(self, *, thread: bool = False) -> Iterator[None]:
        """A context in which a handler waits for the worker; with `thread`, in a thread of its own."""
        self.waiting += 1
        self.waiting_threads += thread
        try:
            yield
        finally:
            self.waiting -= 1
            self.waiting_threads -= thread

    def names(self) -> str:
        """Return the jobs that are running, for a message."""
        jobs = (hold.grant.job for hold in self._attempts)
        return ", ".join(f"{job.spec.kind} (job {job.job_id})" for job in jobs)

    def run(self, holds: Sequence[HeldJob]) -> None:
        for hold in holds:
            self._begin(hold)

    def renewed(self, hold: HeldJob) -> None:
        if (attempt := self._attempts.get(hold)) is not None:
            attempt.context.renew(hold.deadline)

    def _begin(self, hold: HeldJob, failed: Ending | None = None) -> None:
        """Run the handler, or the compensation of one that has `failed`."""
        job = self._app.jobs[hold.grant.job.spec.kind]
        attempt = InlineAttempt(self, hold, failed)
        hook = job if failed is None else job.compensate
        assert hook is not None  # a job without one is not compensated
        attempt.thread = not hook.is_async
        self._attempts[hold] = attempt
        hold.listener = lambda: self._react(attempt)
        work = handle if failed is None else compensate
        payload = bytes(hold.grant.job.spec.payload)
        attempt.task = self._tasks.start(
            self._run(attempt, work(job, attempt.context, payload, self._threads))
        )

    async def _run(self, attempt: "InlineAttempt", work: Coroutine[Any, Any, Ending]) -> None:
        try:
            ending = await work
        except asyncio.CancelledError:  # before it had begun
            ending = Ending(cancelled=True, stopped=True)
        try:
            if attempt.failed is None:
                self.observe(attempt, "returned")
        except BaseException:
            if attempt.died is None:
                raise
        if attempt.died is None:
            self._finish(attempt, ending)

    def observe(self, attempt: "InlineAttempt", place: HandlerPoint) -> None:
        """Tell the observer that the handler is at this place. On the loop only."""
        if attempt.died is not None:
            raise attempt.died
        if self._observer is not None and not attempt.over.is_set():
            self._observer(attempt, place)

    def observe_anywhere(self, attempt: "InlineAttempt", place: HandlerPoint) -> None:
        """As `observe`, from any thread; returns when the observer has."""
        if self.on_loop():
            self.observe(attempt, place)
        elif self._observer is not None:

            async def there() -> None:
                self.observe(attempt, place)

            asyncio.run_coroutine_threadsafe(there(), self.loop).result()

    def on_loop(self) -> bool:
        return threading.get_ident() == self._thread

    def _finish(self, attempt: "InlineAttempt", ending: Ending) -> None:
        """End the attempt, after the compensation of a permanent failure, if the job has one."""
        if attempt.over.is_set():
            return  # the executor had given it up already
        attempt.over.set()
        attempt.changed.set()
        hold = attempt.hold
        del self._attempts[hold]
        if attempt.failed is not None:
            ending = replace(attempt.failed, compensated=ending.compensated is True)
        elif hold.timed_out:
            ending = Ending(failure=timed_out(hold))
        hook = self._app.jobs[hold.grant.job.spec.kind].compensate
        if attempt.failed is None and hook is not None and needs_compensation(hold, ending):
            self._begin(hold, ending)
        else:
            self.host.ended([(hold, ending)])

    # Stopping.

    def _react(self, attempt: "InlineAttempt") -> None:
        hold = attempt.hold
        if attempt.died is not None:
            self._free_slot(attempt)
        elif attempt.failed is None or hold.lost:  # nothing else stops a compensation
            attempt.context.request_stop()
            attempt.changed.set()
            if attempt.stopping is None:
                attempt.stopping = self._tasks.start(self._stop(attempt))

    def _free_slot(self, attempt: "InlineAttempt") -> None:
        """Free the slot of an attempt whose worker has died with it: nothing reports how it ended."""
        if attempt.hold.lost and not attempt.over.is_set():
            attempt.over.set()
            del self._attempts[attempt.hold]
            self.host.ended([(attempt.hold, stopped(attempt.hold))])

    async def _stop(self, attempt: "InlineAttempt") -> None:
        """End a handler that was asked to stop: a coroutine is cancelled when its time is up; a thread is
        given up."""
        hold = attempt.hold
        grace = self._tasks.start(
            self.host.clock.sleep(CANCEL_SECONDS if hold.cancelled else RELEASE_SECONDS)
        )
        grace.add_done_callback(lambda _: attempt.changed.set())
        while not (hold.lost or hold.timed_out or attempt.over.is_set() or grace.done()):
            attempt.changed.clear()
            await attempt.changed.wait()
        await stop(grace)
        if not attempt.thread and attempt.task is not None:
            attempt.task.cancel()
        await self.host.clock.sleep(THREAD_STOP_SECONDS if attempt.thread else UNWIND_SECONDS)
        attempt.stopping = None
        if attempt.over.is_set():
            return
        if hold.cancelled and not (hold.lost or hold.timed_out or hold.released):
            hold.abandon()
        else:
            self._finish(attempt, stopped(hold))


class InlineAttempt:
    """A handler that is running, and its channel: its reports go to the worker at once."""

    def __init__(self, inline: InlineExecutor, hold: HeldJob, failed: Ending | None) -> None:
        self.hold = hold
        self.failed = failed
        self.thread = False
        self.died: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        self.stopping: asyncio.Task[None] | None = None
        self.changed = asyncio.Event()
        self.over = asyncio.Event()
        self._inline = inline
        self.context = InlineContext(inline, self)

    def die(self, error: BaseException) -> None:
        """Behave from now on as if its process and its worker were gone: nothing that it reports arrives,
        neither does its ending, and its lease is not renewed."""
        self.died = error
        self.hold.abandon()
        raise error

    def write(self, stream: str, data: bytes) -> None:
        self._on_loop(lambda: self._inline.host.output(self.hold).write(data, stream))

    def emit(self, event_type: WorkerEventType, attributes: Attributes) -> None:
        if event_type is WorkerEventType.CUSTOM:
            self._inline.observe_anywhere(self, "emit")
        host, at = self._inline.host, self._inline.host.clock.now()
        self._on_loop(lambda: host.output(self.hold).add_event(event_type, at=at, **attributes))

    def progress(self, done: int, total: int | None, message: str | None) -> None:
        self._inline.observe_anywhere(self, "progress")
        progress = Progress(done, total, message)
        self._on_loop(lambda: self._inline.host.progress(self.hold, progress))

    def _on_loop(self, report: Callable[[], None]) -> None:
        def unless_over() -> None:
            if self.died is None and not self.over.is_set():
                report()

        if self._inline.on_loop():
            unless_over()
        else:
            self._inline.loop.call_soon_threadsafe(unless_over)

    def checkpoint(self, value: bytes) -> "asyncio.Future[None]":
        return asyncio.ensure_future(self._checkpoint(value))

    async def _checkpoint(self, value: bytes) -> None:
        self._inline.observe(self, "checkpoint")
        try:
            with self._inline.waiting_for_worker(thread=self.thread):
                await self._inline.host.checkpoint(self.hold, msgspec.json.decode(value))
        except HoldfastError as error:
            raise CheckpointRefused(error.message) from error
        self._inline.observe(self, "checkpointed")


class InlineContext(Context):
    """A context that waits by the worker's clock, and records what the handler raised."""

    def __init__(self, inline: InlineExecutor, attempt: InlineAttempt) -> None:
        run = run_message(RunnerAttempt(attempt.hold))
        super().__init__(run, attempt, inline.host.clock, Bridge(inline.loop), inline.outputs)
        self._inline = inline

    def wait_cancelled(self, seconds: float | None = None) -> bool:
        if self.cancelled or self._inline.on_loop():
            return super().wait_cancelled(seconds)
        waiting = self._wait(seconds)
        return asyncio.run_coroutine_threadsafe(waiting, self._inline.loop).result()

    async def _wait(self, seconds: float | None) -> bool:
        waits = [self.cancellation()]
        if seconds is not None:
            waits.append(self._inline.host.clock.sleep(seconds))
        with self._inline.waiting_for_worker(thread=True):
            await first_of(*waits)
        return self.cancelled

    async def cancellation(self) -> None:
        with self._inline.waiting_for_worker():
            await super().cancellation()

    def fail(self, message: str, trace: str) -> None:
        if (error := sys.exception()) is not None:
            self._inline.errors[self.job_id] = error
        super().fail(message, trace)
