"""An app in memory, for tests of its handlers: a clock in your hand, and `drain` in place of workers."""

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
from holdfast.sdk.app import App
from holdfast.sdk.async_client import AsyncClient
from holdfast.sdk.calls import Call
from holdfast.sdk.handle import JobFailed, result_of
from holdfast.sdk.inline import Witness
from holdfast.testing.hand import ATTEMPTS_MAX, Drained, Hand
from holdfast.testing.shared_store import SharedIds, SharedStore
from holdfast.testing.virtual_time import VirtualClock, VirtualLoop

T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def memory_app(
    app: App, *, start: datetime | None = None, patience: float = 60.0
) -> "Iterator[Bench]":
    """The app on a fresh store in memory, as long as the block lasts.

    The clock begins at `start`, or now, and stands still. `patience` is how many real seconds a handler
    may take in which nothing can be seen to happen. Outputs are kept in a folder that is removed at the
    end.
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
    """Inside, the app has an output store of its own."""
    with TemporaryDirectory(prefix="holdfast-bench-") as folder, app.keeping(Path(folder).as_uri()):
        yield
        app.close()


@contextmanager
def _visible(app: App) -> Iterator[None]:
    """While a handler waits for its own app's store, the loop it runs on knows that it does."""
    call_async = app.reach.call_async

    async def seen(work: Callable[[AsyncClient], Awaitable[T]], *, here: bool = False) -> T:
        loop = asyncio.get_running_loop()
        with loop.outside() if isinstance(loop, VirtualLoop) else nullcontext():
            return await call_async(work, here=here)

    before = vars(app.reach).pop("call_async", None)
    app.reach.call_async = seen  # type: ignore[method-assign]
    try:
        yield
    finally:
        del app.reach.call_async
        if before is not None:
            app.reach.call_async = before  # type: ignore[method-assign]


class Bench:
    """An app on a store in memory, and what a test does with it."""

    def __init__(self, app: App, start: datetime | None = None, patience: float = 60.0) -> None:
        self.app = app
        self.clock = VirtualClock(start)
        self.ids: Ids = SharedIds()
        self.store = SharedStore(self.clock, self.ids)
        self._patience = patience
        self._hand = self.hand("bench")
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bench")

    async def open_registry(self, url: str) -> Registry:
        return LocalRegistry(self.store, self.ids)

    def hand(self, owner: str, witness: Witness | None = None) -> "Hand":
        """Another worker at the same store, on a loop of its own."""
        return Hand(
            self.app,
            self.clock,
            self.ids,
            self.store,
            owner,
            patience=self._patience,
            witness=witness,
        )

    def jobs(self) -> list[Job]:
        """Every job as it is, in the order they were made."""
        return self.store.all()

    def drain(
        self, *, until_idle: bool = False, slots: int = 1, attempts_max: int = ATTEMPTS_MAX
    ) -> Drained:
        """Run all jobs that are ready, and those that they make ready, `slots` at a time.

        With `until_idle` the clock is moved to whatever is due next, until no job is left that will
        run. `Endless` after so many attempts.
        """
        if asyncio._get_running_loop() is not None:
            raise Invalid("A loop is running here: await drain_async(), or run_async(call).")
        return self._hand.drain(until_idle=until_idle, slots=slots, attempts_max=attempts_max)

    async def drain_async(
        self, *, until_idle: bool = False, slots: int = 1, attempts_max: int = ATTEMPTS_MAX
    ) -> Drained:
        """As `drain`, for coroutines. Handlers run in another thread, on a loop of their own."""
        return await self._apart(
            lambda: self._hand.drain(until_idle=until_idle, slots=slots, attempts_max=attempts_max)
        )

    async def _apart(self, work: Callable[[], T]) -> T:
        future = self._thread.submit(copy_context().run, work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._hand.interrupt()
            raise

    def run(self, call: Call[R]) -> R:
        """Enqueue the call, drain until idle, and return what the handler returned.

        `JobFailed` when it ended otherwise, from what the handler raised.
        """
        if asyncio._get_running_loop() is not None:
            raise Invalid("A loop is running here: await run_async(call).")
        [job] = self.app.reach.call(lambda client: client.make([call]))
        return self._result(call, job.job_id, self.drain(until_idle=True))

    async def run_async(self, call: Call[R]) -> R:
        """As `run`, for coroutines."""
        [job] = await self.app.reach.call_async(lambda client: client.make([call]))
        return self._result(call, job.job_id, await self.drain_async(until_idle=True))

    def _result(self, call: Call[R], job_id: str, drained: Drained) -> R:
        job = next(job for job in self.jobs() if job.job_id == job_id)
        if not job.ended:
            raise AssertionError(
                f"Job {job_id} ({call.kind}) is still {job.state}: nothing runs it."
            )
        if job.state is not State.SUCCEEDED:
            errors = (one.error for one in drained.ran if one.job.job_id == job_id)
            raise JobFailed(job) from next(errors, None)
        return cast("R", result_of(job, call.result_type))

    def close(self) -> None:
        self._thread.submit(self._hand.close).result()
        self._thread.shutdown()
