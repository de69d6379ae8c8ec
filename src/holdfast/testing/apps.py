"""An app in memory, for tests of its handlers: with a manual clock, and `drain` in place of workers."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar, cast

from holdfast.core.errors import Invalid
from holdfast.core.job import Job
from holdfast.core.state import State
from holdfast.ports import Ids, Registry
from holdfast.registry.local import LocalRegistry
from holdfast.runner.call import Call
from holdfast.sdk.app import App
from holdfast.sdk.async_client import AsyncClient
from holdfast.sdk.handle import JobFailed, result_of
from holdfast.testing.inline_executor import HandlerObserver
from holdfast.testing.inline_worker import ATTEMPTS_MAX, Drained, InlineWorker
from holdfast.testing.shared_store import SharedIds, SharedStore
from holdfast.testing.virtual_time import VirtualClock, VirtualLoop

T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def memory_app(app: App, *, start: datetime | None = None, patience: float = 60.0) -> "Iterator[Bench]":
    """Return a context in which the app uses a fresh store in memory.

    The clock begins at `start`, or now, and stands still. `patience` is how many real seconds a handler
    may take without a visible event. Outputs are stored in a folder that is removed at the end.
    """
    bench = Bench(app, start, patience)
    app.close()
    opener, app.opener = app.opener, bench.open_registry
    try:
        with _visible(app), _kept_apart(app):
            yield bench
    finally:
        app.close()
        app.opener = opener
        bench.close()


@contextmanager
def _kept_apart(app: App) -> Iterator[None]:
    """Return a context in which the app has an output store of its own."""
    with (
        TemporaryDirectory(prefix="holdfast-bench-") as folder,
        app.using_outputs(Path(folder).as_uri()),
    ):
        yield
        app.close()


@contextmanager
def _visible(app: App) -> Iterator[None]:
    """Return a context in which the loop of a handler knows when the handler waits for its app's store."""
    call_async = app.background.call_async

    async def seen(work: Callable[[AsyncClient], Awaitable[T]], *, here: bool = False) -> T:
        loop = asyncio.get_running_loop()
        with loop.outside() if isinstance(loop, VirtualLoop) else nullcontext():
            return await call_async(work, here=here)

    before = vars(app.background).pop("call_async", None)
    app.background.call_async = seen  # type: ignore[method-assign]
    try:
        yield
    finally:
        del app.background.call_async
        if before is not None:
            app.background.call_async = before  # type: ignore[method-assign]


class Bench:
    """An app on a store in memory, with the operations of a test."""

    def __init__(self, app: App, start: datetime | None = None, patience: float = 60.0) -> None:
        self.app = app
        self.clock = VirtualClock(start)
        self.ids: Ids = SharedIds()
        self.store = SharedStore(self.clock, self.ids)
        self._patience = patience
        self._worker = self.worker("bench")
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bench")

    async def open_registry(self, url: str) -> Registry:
        return LocalRegistry(self.store, self.ids)

    def worker(self, owner: str, observer: HandlerObserver | None = None) -> "InlineWorker":
        """Return another worker of the same store, on a loop of its own."""
        return InlineWorker(
            self.app,
            self.clock,
            self.ids,
            self.store,
            owner,
            patience=self._patience,
            observer=observer,
        )

    def jobs(self) -> list[Job]:
        """Return every job, in the order of creation."""
        return self.store.all()

    def drain(self, *, until_idle: bool = False, slots: int = 1, attempts_max: int = ATTEMPTS_MAX) -> Drained:
        """Run all jobs that are ready, and those that they make ready, `slots` at a time.

        With `until_idle` the clock is moved to whatever is due next, until no job is left that will
        run. Raise `Endless` after `attempts_max` attempts.
        """
        if asyncio._get_running_loop() is not None:
            raise Invalid("A loop is running here: await drain_async(), or run_async(call).")
        return self._worker.drain(until_idle=until_idle, slots=slots, attempts_max=attempts_max)

    async def drain_async(
        self, *, until_idle: bool = False, slots: int = 1, attempts_max: int = ATTEMPTS_MAX
    ) -> Drained:
        """As `drain`, for coroutines. Handlers run in another thread, on a loop of their own."""
        return await self._apart(
            lambda: self._worker.drain(until_idle=until_idle, slots=slots, attempts_max=attempts_max)
        )

    async def _apart(self, work: Callable[[], T]) -> T:
        future = self._thread.submit(copy_context().run, work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._worker.interrupt()
            raise

    def run(self, call: Call[R]) -> R:
        """Enqueue the call, drain until idle, and return what the handler returned.

        Raise `JobFailed` from the handler's exception when the job did not succeed.
        """
        if asyncio._get_running_loop() is not None:
            raise Invalid("A loop is running here: await run_async(call).")
        [job] = self.app.background.call(lambda client: client.create_jobs([call]))
        drained = self.drain(until_idle=True)
        self._check_succeeded(call, job.job_id, drained)
        ended = self.app.background.call(lambda client: client.wait_result(job.job_id))
        return cast("R", result_of(ended, call.result_type))

    async def run_async(self, call: Call[R]) -> R:
        """As `run`, for coroutines."""
        [job] = await self.app.background.call_async(lambda client: client.create_jobs([call]))
        drained = await self.drain_async(until_idle=True)
        self._check_succeeded(call, job.job_id, drained)
        ended = await self.app.background.call_async(lambda client: client.wait_result(job.job_id))
        return cast("R", result_of(ended, call.result_type))

    def _check_succeeded(self, call: Call[R], job_id: str, drained: Drained) -> None:
        job = next(job for job in self.jobs() if job.job_id == job_id)
        if not job.ended:
            raise AssertionError(f"Job {job_id} ({call.kind}) is still {job.state}: nothing runs it.")
        if job.state is not State.SUCCEEDED:
            errors = (one.error for one in drained.ran if one.job.job_id == job_id)
            raise JobFailed(job) from next(errors, None)

    def close(self) -> None:
        self._thread.submit(self._worker.close).result()
        self._thread.shutdown()
