"""`holdfast worker`: run the jobs of an app, or queued commands, on this machine."""

import asyncio
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

import click
from msgspec.structs import replace

from holdfast.cli.durations import Duration
from holdfast.cli.metrics_server import MetricsServer
from holdfast.cli.options import (
    chosen_store,
    config_option,
    given_outputs,
    given_store,
    outputs_option,
    store_option,
)
from holdfast.cli.terminal import on_terminal, width
from holdfast.cli.traces import traced
from holdfast.cli.worker_log import JsonLog, StderrWriter, WorkerLog, WorkerStart
from holdfast.cli.worker_metrics import MetricsAddress, WorkerGauges, WorkerMetrics, folder_bytes
from holdfast.cli.worker_presence import announcer_of, process_of
from holdfast.cli.worker_text_log import TextLog
from holdfast.core.errors import Invalid
from holdfast.core.limits import LEASE_MAX, LEASE_MIN
from holdfast.ports import Registry
from holdfast.registry.local import LocalRegistry
from holdfast.runner import RUNNER_ARGV
from holdfast.sdk.defaults import spool_folder, unused_store
from holdfast.sdk.open import open_registry, own_environment, own_secrets
from holdfast.sdk.output_store import chosen_outputs, lazy_outputs
from holdfast.sdk.store_url import StoreUrl
from holdfast.system import (
    SystemClock,
    SystemIds,
    asleep_seconds,
    boot_id,
    machine_name,
    tune_garbage_collector,
    usable_cores,
)
from holdfast.worker.claims import WorkerSettings, choose_queues
from holdfast.worker.command_executor import CommandExecutor
from holdfast.worker.default_slots import THREADS_MAX, with_default_slots
from holdfast.worker.executor import Executor
from holdfast.worker.function_executor import FunctionExecutor
from holdfast.worker.processes import Processes
from holdfast.worker.recovery import recover_forever
from holdfast.worker.redaction import Redactor
from holdfast.worker.spool import FileSpool
from holdfast.worker.tasks import stop
from holdfast.worker.validation import WorkerValidation
from holdfast.worker.worker import Worker


@click.command()
@click.argument("app", required=False, metavar="[MODULE:APP]")
@click.option(
    "--queue", "-q", "queues", multiple=True,
    help="Queue to claim from; may be given several times, the first has priority."
    "  [default: those that the app's functions name, in turn, and default]",
)  # fmt: skip
@click.option(
    "--concurrency", "-c", "slots", type=click.IntRange(1, 10_000),
    show_default="100 coroutines; plain functions and commands: one per core",
    help="Jobs to run at the same time.",
)  # fmt: skip
@click.option("--commands/--no-commands", help="With an app: run queued commands as well.")
@click.option("--name", help="Name of this worker.  [default: host and process id]")
@click.option("--region", help="Region of this worker; jobs of another are left alone.")
@click.option(
    "--lease", type=Duration(least=LEASE_MIN, most=LEASE_MAX), show_default="the job's own, 60s",
    help="How long a silent worker keeps its jobs before others may take them.",
)  # fmt: skip
@click.option(
    "--pass-env", "passed", multiple=True, metavar="NAME",
    help="Variable of this environment that every command may see; * and ? match.",
)  # fmt: skip
@click.option("--drain", is_flag=True, help="Exit when the queues are empty.")
@click.option(
    "--leave", "leave", type=Duration(), default="10s", show_default=True,
    help="Time running jobs have after a SIGTERM before they are given back.",
)  # fmt: skip
@click.option(
    "--spool", metavar="DIR", type=click.Path(file_okay=False),
    show_default="~/.local/state/holdfast/spool",
    help="Folder for output while the store is unavailable.",
)  # fmt: skip
@click.option(
    "--log", "style", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="Format of the log on stderr: a few lines for people, or every job as JSON.",
)  # fmt: skip
@click.option(
    "--metrics", type=MetricsAddress(), metavar="[HOST:]PORT",
    help="Serve metrics for Prometheus; without HOST to this machine only.",
)  # fmt: skip
@store_option
@outputs_option
@config_option
def worker(
    *,
    app: str | None,
    queues: tuple[str, ...],
    slots: int | None,
    commands: bool,
    name: str | None,
    region: str | None,
    lease: timedelta | None,
    passed: tuple[str, ...],
    drain: bool,
    leave: timedelta,
    spool: str | None,
    style: str,
    metrics: tuple[str, int] | None,
) -> None:
    """Claim jobs and run them until stopped (Ctrl-C or SIGTERM).

    With MODULE:APP, such as shop:app, it runs the functions of that app, and only those it has. A function
    that fails is tried ten times within 20 minutes or so, unless its @app.job says otherwise.
    Without, it runs commands: each gets PATH, HOME, the locale and little else of this environment;
    its own variables and secrets are those that the job names. Whatever a job starts is killed with it.
    Promised outputs are validated when a job ends.
    """
    settings = WorkerSettings(
        owner=name or f"{machine_name()}-{os.getpid()}",
        queues=queues,
        slots=slots or usable_cores(),
        region=region,
        lease=lease,
        drain=drain,
        leave_seconds=leave.total_seconds(),
    )
    out, log = _open_log(settings.owner, style)
    try:
        with traced("holdfast-worker", out, as_json=style == "json"):
            asyncio.run(
                run_worker(
                    settings,
                    out,
                    log,
                    app=app,
                    slots_given=slots is not None,
                    commands=commands or app is None,
                    passed=passed,
                    spool_root=spool_folder(spool),
                    metrics=metrics,
                )
            )
    finally:
        out.close()


def _open_log(owner: str, style: str) -> tuple[StderrWriter, WorkerLog]:
    clock = SystemClock()
    if style == "json":
        out = StderrWriter()
        return out, JsonLog(owner, clock, out, redact=out.redact)
    out = StderrWriter(partial(width, err=True))
    bare = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    colours = on_terminal(err=True) and not bare
    return out, TextLog(owner, clock, out, colours=colours, redact=out.redact)


async def run_worker(
    settings: WorkerSettings,
    out: StderrWriter,
    log: WorkerLog,
    *,
    app: str | None,
    slots_given: bool,
    commands: bool,
    passed: tuple[str, ...],
    spool_root: Path,
    metrics: tuple[str, int] | None = None,
) -> None:
    """Run one worker until it has left, and log what it does."""
    clock, ids = SystemClock(), SystemIds()
    async with AsyncExitStack() as stack:
        spool = FileSpool(spool_root, f"{settings.owner}-{ids.new()}")
        stack.callback(spool.close)
        processes = Processes(clock, inherited=[spool.lock])
        stack.push_async_callback(processes.close)
        executors, url, outputs = await _load_executors(
            processes,
            settings,
            out,
            app=app,
            threads=settings.slots if slots_given else THREADS_MAX,
            passed=passed if commands else None,
        )
        queues, left_out = choose_queues(settings.queues, _named_queues(executors))
        in_turn = not settings.queues and len(queues) > 1
        settings = replace(settings, queues=queues, in_turn=in_turn)
        if app is not None and not slots_given:
            settings = with_default_slots(settings, executors)
        out.hide(hidden := own_secrets(url, outputs))
        _check_shared(url)
        registry = await open_registry(url)
        stack.push_async_callback(registry.close)
        # Recovery is for workers of this machine only.
        store = f"{StoreUrl(url).name} {boot_id() or machine_name()}"
        spool.set_store(store)
        counted = WorkerMetrics(log)
        report = counted if metrics else log
        if metrics and isinstance(registry, LocalRegistry):
            registry.start_counting()
        validation = WorkerValidation(
            registry,
            lazy_outputs(url, outputs),
            report,
            clock=clock,
            ids=ids,
            machine=machine_name(),
            name=settings.owner,
            queues=settings.queues if commands else (),
        )
        worker = Worker(
            registry,
            settings,
            report,
            clock=clock,
            ids=ids,
            executors=executors,
            spool=spool,
            validation=validation,
            redactor=Redactor(hidden),
            suspended=asleep_seconds,
        )
        leaving = _handle_signals(worker, settings, log)
        source = _gauges(registry, settings, worker, spool, leaving)
        with _serve_metrics(counted, source, metrics) as address:
            log.opened(_worker_start(settings, app, url, address, left_out))
            if app is not None and given_store() is None and (told := unused_store(url)):
                log.trouble(told)
            announcer = announcer_of(registry, worker, settings, process_of(app, executors), leaving, log)
            recovery = recover_forever(spool_root, store, registry, log, clock=clock, ids=ids)
            beside = [asyncio.create_task(recovery), asyncio.create_task(announcer.run())]
            tune_garbage_collector(own_code_only=True)
            try:
                await worker.run()
            finally:
                await stop(*beside)
                await announcer.left()
    log.left()


def _check_shared(url: str) -> None:
    if StoreUrl(url).dies_with_process:
        raise Invalid(
            "A memory:// store lives inside one process, so a worker would never see a job. Give the app a"
            " file: sqlite:///jobs.db"
        )


async def _load_executors(
    processes: Processes,
    settings: WorkerSettings,
    out: StderrWriter,
    *,
    app: str | None,
    threads: int,
    passed: tuple[str, ...] | None,
) -> tuple[list[Executor], str, str | None]:
    """Return the executors of the app and of commands (`passed` is None: none), and the URLs of the store
    and of the output store, which an app may choose."""
    own, hidden = own_environment(), own_secrets(given_store(), given_outputs())
    out.hide(hidden)
    executors: list[Executor] = []
    if app is not None:
        functions = FunctionExecutor(
            processes,
            app,
            runner_argv=RUNNER_ARGV,
            slots=threads,
            processes_max=settings.slots,
            env=_runner_environment(),
            url=given_store(),
            outputs=given_outputs(),
            stray=out.copy,
            redactor=Redactor(hidden),
        )
        executors.append(functions)
        hello = await functions.load()
        url, outputs = hello.url, hello.outputs
    else:
        url = chosen_store()
        outputs = chosen_outputs(url, given_outputs())
    if passed is not None:
        executors.append(CommandExecutor(processes, own=own, passed=passed, outputs=outputs))
    return executors, url, outputs


def _named_queues(executors: Sequence[Executor]) -> tuple[str, ...]:
    return tuple(queue for one in executors if isinstance(one, FunctionExecutor) for queue in one.queues)


def _runner_environment() -> dict[str, str]:
    """The environment of runners: --store wins over HOLDFAST_STORE there, too."""
    store = given_store() if "HOLDFAST_STORE" in os.environ else None
    return {**os.environ, "HOLDFAST_STORE": store} if store else {**os.environ}


def _handle_signals(worker: Worker, settings: WorkerSettings, log: WorkerLog) -> asyncio.Event:
    """Make the worker leave on a signal; return the event that is set from then on."""
    leaving = asyncio.Event()

    def leave() -> None:
        if not leaving.is_set():
            leaving.set()
            log.leaving(settings.leave_seconds)
        worker.leave()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, leave)
    return leaving


def _worker_start(
    settings: WorkerSettings, app: str | None, url: str, address: str | None, left_out: tuple[str, ...]
) -> WorkerStart:
    return WorkerStart(
        worker=settings.owner,
        app=app,
        store=StoreUrl(url).name,
        queues=settings.queues,
        slots=settings.slots,
        threads=None if settings.threads is None else settings.threads.slots,
        metrics=address,
        left_out=left_out,
    )


def _gauges(
    registry: Registry,
    settings: WorkerSettings,
    worker: Worker,
    spool: FileSpool,
    leaving: asyncio.Event,
) -> WorkerGauges:
    return WorkerGauges(
        registry=registry,
        clock=worker.clock,
        slots=settings.slots,
        running=lambda: worker.running,
        waiting=lambda: worker.waiting,
        leaving=leaving.is_set,
        paused=lambda: worker.pause.on,
        given_back=lambda: worker.pause.given_back,
        spool_bytes=lambda: folder_bytes(spool.folder),
    )


@contextmanager
def _serve_metrics(
    counted: WorkerMetrics, source: WorkerGauges, address: tuple[str, int] | None
) -> Iterator[str | None]:
    """Serve the metrics at this address, if there is one; yield the URL."""
    if address is None:
        yield None
        return
    server = MetricsServer(counted, source)
    try:
        yield server.open(*address)
    finally:
        server.close()
