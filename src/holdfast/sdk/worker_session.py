"""A worker of an app while it works: on the loop of the app's client, with all that is beside it."""

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast import __version__
from holdfast.ports import Registry
from holdfast.runner import RUNNER_ARGV
from holdfast.runner.in_thread import RunnerThreads
from holdfast.runner.streams import routed
from holdfast.sdk.defaults import spool_folder
from holdfast.sdk.importable import check_no_processes, importable_name
from holdfast.sdk.open import own_secrets
from holdfast.sdk.output_store import lazy_outputs
from holdfast.sdk.store_url import StoreUrl
from holdfast.sdk.work_report import WorkReport
from holdfast.system import SystemClock, SystemIds, boot_id, machine_name
from holdfast.worker.announcer import Announcer, WorkerProcess
from holdfast.worker.claims import WorkerSettings, choose_queues
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


class WorkerSession:
    """Composes a worker from an app and its settings, as `holdfast worker` does, and runs it."""

    def __init__(
        self, app: "App", settings: WorkerSettings, report: WorkReport, *, slots_given: bool
    ) -> None:
        self._app = app
        self._settings = settings
        self._report = report
        self._slots_given = slots_given
        self._leaving = asyncio.Event()
        self._worker: Worker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.in_processes = False

    def leave(self) -> None:
        """Have the worker leave; called again, have it give back at once what runs. From any thread."""
        if self._loop is not None and self._worker is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._worker.leave)
            self._loop.call_soon_threadsafe(self._leaving.set)

    async def run(self, registry: Registry, opened: Callable[[], None]) -> None:
        """Work until told to leave; call `opened` when jobs are about to be claimed."""
        self._loop = asyncio.get_running_loop()
        app, report, clock, ids = self._app, self._report, SystemClock(), SystemIds()
        hidden = own_secrets(app.url, app.outputs)
        async with AsyncExitStack() as stack:
            spool = self._spool(ids)
            stack.callback(spool.close)
            executor = await self._executor(stack, spool, hidden)
            settings = self._chosen(executor)
            self._worker = Worker(
                registry,
                settings,
                report,
                clock=clock,
                ids=ids,
                executors=[executor],
                spool=spool,
                validation=WorkerValidation(
                    registry,
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
                self._recover(stack, spool, registry)
            await self._announce(stack, executor, self._worker, registry, settings)
            opened()
            await self._worker.run()

    def _chosen(self, executor: FunctionExecutor) -> WorkerSettings:
        """Return the settings, completed by what is known of the app."""
        given = self._settings.queues
        queues, left_out = choose_queues(given, executor.queues)
        if left_out:
            self._report.trouble(
                f"nothing is taken from {', '.join(left_out)}, which the app's functions name"
            )
        settings = replace(self._settings, queues=queues, in_turn=not given and len(queues) > 1)
        return settings if self._slots_given else with_default_slots(settings, [executor])

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

    async def _announce(
        self,
        stack: AsyncExitStack,
        executor: FunctionExecutor,
        worker: Worker,
        registry: Registry,
        settings: WorkerSettings,
    ) -> None:
        """Have it in the list of workers for as long as it works."""
        process = WorkerProcess(
            host=machine_name(),
            pid=os.getpid(),
            version=__version__,
            app=importable_name(self._app) or "__main__",
            kinds=executor.kinds,
            executors=("function",),
        )
        announcer = Announcer(
            registry,
            settings,
            process,
            clock=SystemClock(),
            ids=SystemIds(),
            leaving=self._leaving,
            running=lambda: worker.running,
            threads_running=lambda: worker.threads_running,
            paused=lambda: worker.pause.on,
            trouble=self._report.trouble,
        )
        stack.push_async_callback(announcer.left)
        stack.push_async_callback(stop, asyncio.create_task(announcer.run()))

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
