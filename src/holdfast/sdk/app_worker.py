"""A worker of an app from Python: in the background of a script, a notebook or a web application.

It runs on the loop of the app's own client, in a thread, and shares its store. Functions of a module run in
processes of their own, as `holdfast worker` runs them; those of a script or a notebook, which no other
process can import, run in threads of this one.
"""

import asyncio
import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from holdfast.core.durations import Duration, parse_duration
from holdfast.core.errors import Conflict, Invalid
from holdfast.ports import Registry
from holdfast.runner import RUNNER_ARGV
from holdfast.runner.in_thread import RunnerThreads
from holdfast.runner.streams import routed
from holdfast.sdk.async_client import AsyncClient
from holdfast.sdk.defaults import spool_folder
from holdfast.sdk.importable import check_no_processes, check_not_loading, importable_name
from holdfast.sdk.open import own_secrets
from holdfast.sdk.output_store import lazy_outputs
from holdfast.sdk.store_url import StoreUrl
from holdfast.sdk.work_report import WorkReport, WorkSummary
from holdfast.system import SystemClock, SystemIds, boot_id, machine_name, usable_cores
from holdfast.worker.claims import WorkerSettings
from holdfast.worker.default_slots import THREADS_MAX, with_default_slots
from holdfast.worker.function_executor import FunctionExecutor
from holdfast.worker.processes import Processes, ProcessStarter
from holdfast.worker.recovery import recover_forever
from holdfast.worker.redaction import Redactor
from holdfast.worker.spool import FileSpool, MemorySpool, Spool
from holdfast.worker.tasks import stop
from holdfast.worker.validation import WorkerValidation
from holdfast.worker.worker import Worker

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
        self._slots_given = slots_given
        self._report = WorkReport(SystemClock())
        self._worker: Worker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened: Future[None] = Future()
        self._working: Future[None] | None = None
        self.in_processes = False
        """Whether its functions run in processes of their own; else they run in threads of this one."""

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
        self._leave()
        while True:
            try:
                return self._result()
            except KeyboardInterrupt:
                self._leave()

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

    def _leave(self) -> None:
        if self._loop is not None and self._worker is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._worker.leave)

    def _leave_at_exit(self) -> None:
        """Give back what runs: the process ends."""
        self._leave()
        self._leave()
        if self._working is not None:
            with suppress(Exception, CancelledError):
                self._working.result(EXIT_SECONDS)

    def __enter__(self) -> "AppWorker":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> "AppWorker":
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    async def _work(self, client: AsyncClient) -> None:
        """Work until told to leave. On the loop of the client."""
        self._loop = asyncio.get_running_loop()
        app, report, clock, ids = self._app, self._report, SystemClock(), SystemIds()
        hidden = own_secrets(app.url, app.outputs)
        async with AsyncExitStack() as stack:
            spool = self._spool(ids)
            stack.callback(spool.close)
            executor = await self._executor(stack, spool, hidden)
            settings = self._settings
            if not self._slots_given:
                settings = with_default_slots(settings, [executor])
            self._worker = Worker(
                client.registry,
                settings,
                report,
                clock=clock,
                ids=ids,
                executors=[executor],
                spool=spool,
                validation=WorkerValidation(
                    client.registry,
                    lazy_outputs(app.url, app.outputs),
                    report,
                    clock=clock,
                    ids=ids,
                    machine=machine_name(),
                    name=settings.owner,
                ),
                redactor=Redactor(hidden),
            )
            if isinstance(spool, FileSpool):
                self._recover(stack, spool, client.registry)
            self._opened.set_result(None)
            await self._worker.run()

    def _spool(self, ids: SystemIds) -> Spool:
        if StoreUrl(self._app.url).dies_with_process:
            return MemorySpool()
        spool = FileSpool(spool_folder(), f"{self._settings.owner}-{ids.new()}")
        spool.set_store(self._store_name())
        return spool

    def _store_name(self) -> str:
        return f"{StoreUrl(self._app.url).name} {boot_id() or machine_name()}"

    async def _executor(self, stack: AsyncExitStack, spool: Spool, hidden: list[str]) -> FunctionExecutor:
        """Return the executor, with the app loaded: in a process, or in a thread of this one."""
        app, name = self._app, importable_name(self._app)
        self.in_processes = name is not None and isinstance(spool, FileSpool)
        starter: ProcessStarter
        if self.in_processes and isinstance(spool, FileSpool):
            starter = processes = Processes(SystemClock(), inherited=[spool.lock])
            stack.push_async_callback(processes.close)
        else:
            check_no_processes(app)
            starter = threads = RunnerThreads(app)
            stack.push_async_callback(threads.close)
            stack.enter_context(routed())
        executor = FunctionExecutor(
            starter,
            name or "this app",
            runner_argv=RUNNER_ARGV if self.in_processes else (),
            slots=self._settings.slots if self._slots_given else THREADS_MAX,
            processes_max=self._settings.slots,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            url=app.url,
            outputs=app.outputs,
            redactor=Redactor(hidden),
        )
        stack.push_async_callback(executor.close_runners)
        await executor.load()
        return executor

    def _recover(self, stack: AsyncExitStack, spool: FileSpool, registry: Registry) -> None:
        """Close what killed workers of this machine have left, for as long as this one works."""
        recovery = asyncio.create_task(
            recover_forever(
                spool.folder.parent,
                self._store_name(),
                registry,
                self._report,
                clock=SystemClock(),
                ids=SystemIds(),
            )
        )
        stack.push_async_callback(stop, recovery)


def worker_settings(
    app: "App",
    *,
    queues: Iterable[str] | None,
    concurrency: int | None,
    drain: bool,
    leave: Duration,
) -> WorkerSettings:
    """Return the settings of a worker of this app. Without `queues` it takes those of its functions."""
    if not app.jobs:
        raise Invalid("This app has no jobs.", advice="Decorate a function with @app.job.")
    if isinstance(queues, str):
        raise Invalid(f"queues takes several names: write queues=[{queues!r}].")
    if concurrency is not None and concurrency < 1:
        raise Invalid(f"concurrency is at least 1, not {concurrency}.")
    own = dict.fromkeys(job.queue for job in app.jobs.values())
    return WorkerSettings(
        owner=f"{machine_name()}-{os.getpid()}-{SystemIds().new()[-4:]}",
        queues=tuple(own if queues is None else queues),
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
