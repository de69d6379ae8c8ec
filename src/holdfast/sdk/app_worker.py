"""A worker of an app from Python: in the background of a script, a notebook or a web application.

It runs on the loop of the app's own client, in a thread, and shares its store. Functions of a module run in
processes of their own, as `holdfast worker` runs them; those of a script or a notebook, which no other
process can import, run in threads of this one.
"""

import asyncio
import atexit
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from holdfast.core.durations import Duration, parse_duration
from holdfast.core.errors import Conflict, Invalid
from holdfast.sdk.async_client import AsyncClient
from holdfast.sdk.importable import check_not_loading
from holdfast.sdk.work_report import WorkReport, WorkSummary
from holdfast.sdk.worker_session import WorkerSession
from holdfast.system import SystemClock, SystemIds, machine_name, usable_cores
from holdfast.worker.claims import WorkerSettings

if TYPE_CHECKING:
    from holdfast.sdk.app import App

EXIT_SECONDS = 10.0
SIGTERM_EXIT = 128 + signal.SIGTERM


class AppWorker:
    """A worker of an app, in the background: made by `app.worker()`.

        with app.worker() as worker:
            print(resize.enqueue("a.png").result())

    `start` and `stop` are the two ends of the block, for a notebook, where they are in different cells.
    `stop` lets running jobs end for as long as `leave` says, then gives them back, and returns what was done.
    """

    def __init__(self, app: "App", settings: WorkerSettings, *, slots_given: bool) -> None:
        self._app = app
        self._settings = settings
        self._report = WorkReport(SystemClock())
        self._session = WorkerSession(app, settings, self._report, slots_given=slots_given)
        self._opened: Future[None] = Future()
        self._working: Future[None] | None = None

    @property
    def in_processes(self) -> bool:
        """Whether its functions run in processes of their own; else they run in threads of this one."""
        return self._session.in_processes

    def __repr__(self) -> str:
        return f"<worker {self._settings.owner}: {self.summary!r}>"

    @property
    def summary(self) -> WorkSummary:
        """What it has done so far."""
        return self._report.summary()

    def start(self) -> "AppWorker":
        """Begin to work; return when jobs are claimed. Raises what is wrong with the store or the app."""
        if self._working is not None:
            raise Conflict("This worker was started before; app.worker() makes another one.")
        check_not_loading()
        self._working = self._app.background.begin(self._work)
        atexit.register(self._leave_at_exit)
        self._working.add_done_callback(self._ended)
        try:
            self._opened.result()
        except BaseException:
            self._working.cancel()
            raise
        return self

    def _ended(self, working: "Future[None]") -> None:
        atexit.unregister(self._leave_at_exit)
        if not self._opened.done():
            if working.cancelled():
                self._opened.cancel()
            else:
                self._opened.set_exception(working.exception() or Conflict("The worker has ended."))

    def stop(self) -> WorkSummary:
        """Leave: claim no more, let running jobs end or give them back, and return what was done. An
        interrupt meanwhile gives them back at once."""
        self._session.leave()
        while True:
            try:
                return self._result()
            except KeyboardInterrupt:
                self._session.leave()

    def wait(self) -> WorkSummary:
        """Wait until the worker has left: when its queues are empty, if it drains."""
        with _terminated_by_signal():
            try:
                return self._result()
            except (KeyboardInterrupt, SystemExit) as told:
                summary = self.stop()
                if isinstance(told, SystemExit) or self._settings.drain:
                    raise
                return summary

    async def wait_async(self) -> WorkSummary:
        """As `wait`, for coroutines. One that is cancelled stops the worker first."""
        assert self._working is not None  # it is started
        try:
            await asyncio.shield(asyncio.wrap_future(self._working))
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.to_thread(self.stop))
            raise
        return self.summary

    def _result(self) -> WorkSummary:
        if self._working is not None:
            with suppress(CancelledError):  # the app was closed
                self._working.result()
        return self.summary

    def _leave_at_exit(self) -> None:
        """Give back what runs: the process ends."""
        self._session.leave()
        self._session.leave()
        if self._working is not None:
            with suppress(Exception, CancelledError):
                self._working.result(EXIT_SECONDS)

    async def _work(self, client: AsyncClient) -> None:
        await self._session.run(client.registry, lambda: self._opened.set_result(None))

    def __enter__(self) -> "AppWorker":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> "AppWorker":
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)


def worker_settings(
    app: "App",
    *,
    queues: Iterable[str] | None,
    concurrency: int | None,
    drain: bool,
    leave: Duration,
) -> WorkerSettings:
    """Return the settings of a worker of this app, without what is known only when it is loaded."""
    if not app.jobs:
        raise Invalid("This app has no jobs.", advice="Decorate a function with @app.job.")
    if isinstance(queues, str):
        raise Invalid(f"queues takes several names: write queues=[{queues!r}].")
    if concurrency is not None and concurrency < 1:
        raise Invalid(f"concurrency is at least 1, not {concurrency}.")
    return WorkerSettings(
        owner=f"{machine_name()}-{os.getpid()}-{SystemIds().new()[-4:]}",
        queues=tuple(queues or ()),
        slots=concurrency or usable_cores(),
        drain=drain,
        leave_seconds=parse_duration(leave, "leave").total_seconds(),
    )


@contextmanager
def _terminated_by_signal() -> Iterator[None]:
    """A context in which SIGTERM raises `SystemExit`, so that a worker leaves as it should: in the main
    thread of a program that does not handle it otherwise."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(*_: object) -> None:
        raise SystemExit(SIGTERM_EXIT)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
