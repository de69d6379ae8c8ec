"""What a worker of the command line announces of itself."""

import asyncio
import os
from collections.abc import Sequence

from holdfast import __version__
from holdfast.cli.worker_log import WorkerLog
from holdfast.ports import Registry
from holdfast.system import SystemClock, SystemIds, machine_name
from holdfast.worker.announcer import Announcer, WorkerProcess
from holdfast.worker.claims import WorkerSettings
from holdfast.worker.executor import Executor
from holdfast.worker.function_executor import FunctionExecutor
from holdfast.worker.worker import Worker


def announcer_of(
    registry: Registry,
    worker: Worker,
    settings: WorkerSettings,
    process: WorkerProcess,
    leaving: asyncio.Event,
    log: WorkerLog,
) -> Announcer:
    return Announcer(
        registry,
        settings,
        process,
        clock=SystemClock(),
        ids=SystemIds(),
        leaving=leaving,
        running=lambda: worker.running,
        threads_running=lambda: worker.threads_running,
        paused=lambda: worker.pause.on,
        trouble=log.trouble,
    )


def process_of(app: str | None, executors: Sequence[Executor]) -> WorkerProcess:
    names = ("function" if isinstance(one, FunctionExecutor) else "command" for one in executors)
    return WorkerProcess(
        host=machine_name(),
        pid=os.getpid(),
        version=__version__,
        app=app,
        kinds=tuple(kind for executor in executors for kind in executor.kinds),
        executors=tuple(names),
    )
