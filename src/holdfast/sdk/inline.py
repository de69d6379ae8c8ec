"""Inline: an executor that runs the handlers of an app right here, on the worker's own loop.

Coroutines run on the loop, plain functions in threads. There is no process apart, so a handler that
holds the loop holds the worker: it is for tests.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeAlias

from msgspec.structs import replace

from holdfast.sdk.app import App
from holdfast.sdk.handling import compensate, handle
from holdfast.sdk.inline_attempt import Attempt, Place
from holdfast.sdk.outputs import lazy_outputs
from holdfast.worker.executor import Ending, Host
from holdfast.worker.hold import Hold
from holdfast.worker.outcomes import stopped, timed_out, to_compensate
from holdfast.worker.stopping import CANCEL_SECONDS, HEED_SECONDS, RELEASE_SECONDS, UNWIND_SECONDS
from holdfast.worker.tasks import Tasks, stop

Witness: TypeAlias = Callable[[Attempt, Place], None]
"""Called on the loop at every place of a handler. What it raises, the handler gets."""


class Inline:
    """Runs the jobs of one app. `errors` are what handlers raised, by job, the last of each."""

    kinds: tuple[str, ...] = ()

    def __init__(self, app: App, *, threads: int = 8, witness: Witness | None = None) -> None:
        self._app = app
        self._number = threads
        self._witness = witness
        self._attempts: dict[Hold, Attempt] = {}
        self.errors: dict[str, BaseException] = {}
        self.parked = 0
        """How many handlers do nothing but wait for the worker: to be asked to stop, or for its store."""
        self.parked_threads = 0

    async def open(self, host: Host) -> None:
        self.host = host
        self._tasks = Tasks(host.trouble)
        self.kinds = tuple(self._app.jobs)
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._threads = ThreadPoolExecutor(self._number, thread_name_prefix="handler")
        self.outputs = lazy_outputs(self._app.url, self._app.outputs)

    async def close(self) -> None:
        await self._tasks.stop()
        await self.outputs.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def running(self) -> int:
        """How many handlers have begun, and are alive."""
        return sum(attempt.died is None for attempt in self._attempts.values())

    @contextmanager
    def parking(self, *, thread: bool = False) -> Iterator[None]:
        """Inside, a handler waits for the worker; with `thread`, a thread of its does."""
        self.parked += 1
        self.parked_threads += thread
        try:
            yield
        finally:
            self.parked -= 1
            self.parked_threads -= thread

    def names(self) -> str:
        """What is running, for people."""
        jobs = (hold.grant.job for hold in self._attempts)
        return ", ".join(f"{job.spec.kind} (job {job.job_id})" for job in jobs)

    def run(self, holds: Sequence[Hold]) -> None:
        for hold in holds:
            self._begin(hold)

    def renewed(self, hold: Hold) -> None:
        if (attempt := self._attempts.get(hold)) is not None:
            attempt.context.renew(hold.deadline)

    def _begin(self, hold: Hold, failed: Ending | None = None) -> None:
        """Run the handler, or the compensation of one that has `failed`."""
        job = self._app.jobs[hold.grant.job.spec.kind]
        attempt = Attempt(self, hold, failed)
        hook = job if failed is None else job.compensate
        assert hook is not None  # a job without one is not compensated
        attempt.thread = not hook.is_async
        self._attempts[hold] = attempt
        hold.listener = lambda: self._stir(attempt)
        work = handle if failed is None else compensate
        payload = bytes(hold.grant.job.spec.payload)
        attempt.task = self._tasks.start(
            self._run(attempt, work(job, attempt.context, payload, self._threads))
        )

    async def _run(self, attempt: Attempt, work: Coroutine[Any, Any, Ending]) -> None:
        try:
            ending = await work
        except asyncio.CancelledError:  # before it had begun
            ending = Ending(cancelled=True, stopped=True)
        try:
            if attempt.failed is None:
                self.passed(attempt, "returned")
        except BaseException:
            if attempt.died is None:
                raise
        if attempt.died is None:
            self._finish(attempt, ending)

    def passed(self, attempt: Attempt, place: Place) -> None:
        """The handler is at this place. On the loop only."""
        if attempt.died is not None:
            raise attempt.died
        if self._witness is not None and not attempt.over.is_set():
            self._witness(attempt, place)

    def passed_anywhere(self, attempt: Attempt, place: Place) -> None:
        """The handler is at this place, in whichever thread it runs. It goes on when all is done."""
        if self.on_loop():
            self.passed(attempt, place)
        elif self._witness is not None:

            async def there() -> None:
                self.passed(attempt, place)

            asyncio.run_coroutine_threadsafe(there(), self.loop).result()

    def on_loop(self) -> bool:
        return threading.get_ident() == self._thread

    def _finish(self, attempt: Attempt, ending: Ending) -> None:
        """It is over. What failed for good is compensated, if the job can be; then the worker hears."""
        if attempt.over.is_set():
            return  # a straggler: over for us already
        attempt.over.set()
        attempt.stirred.set()
        hold = attempt.hold
        del self._attempts[hold]
        if attempt.failed is not None:
            ending = replace(attempt.failed, compensated=ending.compensated is True)
        elif hold.timed_out:
            ending = Ending(failure=timed_out(hold))
        undo = self._app.jobs[hold.grant.job.spec.kind].compensate
        if attempt.failed is None and undo is not None and to_compensate(hold, ending):
            self._begin(hold, ending)
        else:
            self.host.ended(hold, ending)

    # Stopping.

    def _stir(self, attempt: Attempt) -> None:
        hold = attempt.hold
        if attempt.died is not None:
            self._bury(attempt)
        elif attempt.failed is None or hold.lost:  # nothing else stops a compensation
            attempt.context.tell()
            attempt.stirred.set()
            if attempt.stopping is None:
                attempt.stopping = self._tasks.start(self._stop(attempt))

    def _bury(self, attempt: Attempt) -> None:
        """Its worker has died with it: nobody says how it ended. Its slot is free."""
        if attempt.hold.lost and not attempt.over.is_set():
            attempt.over.set()
            del self._attempts[attempt.hold]
            self.host.ended(attempt.hold, stopped(attempt.hold))

    async def _stop(self, attempt: Attempt) -> None:
        """See a handler that was told to its end: a coroutine is cancelled when its time is up, what
        a thread does is of no interest any more."""
        hold = attempt.hold
        patience = self._tasks.start(
            self.host.clock.sleep(CANCEL_SECONDS if hold.cancelled else RELEASE_SECONDS)
        )
        patience.add_done_callback(lambda _: attempt.stirred.set())
        while not (hold.lost or hold.timed_out or attempt.over.is_set() or patience.done()):
            attempt.stirred.clear()
            await attempt.stirred.wait()
        await stop(patience)
        if not attempt.thread and attempt.task is not None:
            attempt.task.cancel()
        await self.host.clock.sleep(HEED_SECONDS if attempt.thread else UNWIND_SECONDS)
        attempt.stopping = None
        if attempt.over.is_set():
            return
        if hold.cancelled and not (hold.lost or hold.timed_out or hold.released):
            hold.abandon()
        else:
            self._finish(attempt, stopped(hold))
