"""`holdfast worker`: run the jobs of an app, or queued commands, on this machine."""

import asyncio
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import click

from holdfast.cli.durations import Duration
from holdfast.cli.metrics_server import Server
from holdfast.cli.options import (
    chosen_store,
    config_option,
    given_outputs,
    given_store,
    outputs_option,
    store_option,
)
from holdfast.cli.terminal import on_terminal
from holdfast.cli.traces import traced
from holdfast.cli.worker_lines import Lines
from holdfast.cli.worker_log import JsonLog, Log, Opening, Stderr
from holdfast.cli.worker_metrics import Address, Metrics, Source, folder_bytes
from holdfast.core.errors import Invalid
from holdfast.core.limits import LEASE_MAX, LEASE_MIN
from holdfast.ports import Registry
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_registry, own_environment, own_secrets
from holdfast.sdk.outputs import chosen_outputs, lazy_outputs
from holdfast.sdk.store_url import StoreUrl, shown_url
from holdfast.system import SystemClock, SystemIds, boot_id, machine, settle_memory
from holdfast.worker.claims import Settings
from holdfast.worker.commands import Commands
from holdfast.worker.executor import Executor
from holdfast.worker.functions import Functions
from holdfast.worker.processes import Processes
from holdfast.worker.recovery import recover_always
from holdfast.worker.redaction import Redactor
from holdfast.worker.spool import FileSpool
from holdfast.worker.tasks import stop
from holdfast.worker.validating import Validating
from holdfast.worker.worker import Worker

SLOTS_FOR_APP = 32


@click.command()
@click.argument("app", required=False, metavar="[MODULE:APP]")
@click.option(
    "--queue", "-q", "queues", multiple=True, default=("default",), show_default=True,
    help="Queue to work on; give several, the first goes first.",
)  # fmt: skip
@click.option(
    "--concurrency", "-c", "slots", type=click.IntRange(1, 10_000),
    show_default="32 for an app, one per core for commands",
    help="Jobs to run at the same time.",
)  # fmt: skip
@click.option("--commands/--no-commands", help="With an app: run queued commands as well.")
@click.option("--name", help="Name of this worker.  [default: host and process id]")
@click.option("--region", help="Region of this worker; jobs of another are left alone.")
@click.option(
    "--lease", type=Duration(least=LEASE_MIN, most=LEASE_MAX), show_default="the job's own, 60s",
    help="Lease to ask for.",
)  # fmt: skip
@click.option(
    "--pass-env", "passed", multiple=True, metavar="NAME",
    help="Variable of this environment that every command may see; * and ? match.",
)  # fmt: skip
@click.option("--drain", is_flag=True, help="Leave when the queues are empty.")
@click.option(
    "--leave", "leave", type=Duration(), default="10s", show_default=True,
    help="Time running jobs have after a SIGTERM before they are given back.",
)  # fmt: skip
@click.option(
    "--spool", metavar="DIR", type=click.Path(file_okay=False),
    show_default="~/.local/state/holdfast/spool",
    help="Where output waits while the store is away.",
)  # fmt: skip
@click.option(
    "--log", "style", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="What it says on stderr: calm lines for people, or every job as JSON.",
)  # fmt: skip
@click.option(
    "--metrics", type=Address(), metavar="[HOST:]PORT",
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
    """Claim jobs and run them until told to leave (Ctrl-C or SIGTERM).

    With MODULE:APP, such as shop:app, it runs the functions of that app, and only those it has.
    Without, it runs commands: each gets PATH, HOME, the locale and little else of this environment;
    its own variables and secrets come by name. Whatever a job starts is killed with it. The outputs that
    jobs have promised are looked for when they end.
    """
    settings = Settings(
        owner=name or f"{machine()}-{os.getpid()}",
        queues=queues,
        slots=slots or (SLOTS_FOR_APP if app else os.cpu_count() or 1),
        region=region,
        lease=lease,
        drain=drain,
        leave_seconds=leave.total_seconds(),
    )
    out, log = _voice(settings.owner, style)
    try:
        with traced("holdfast-worker", out, as_json=style == "json"):
            asyncio.run(
                work(
                    settings,
                    out,
                    log,
                    app=app,
                    commands=commands or app is None,
                    passed=passed,
                    spool_root=_spool_root(spool),
                    metrics=metrics,
                )
            )
    finally:
        out.close()


def _voice(owner: str, style: str) -> tuple[Stderr, Log]:
    clock, out = SystemClock(), Stderr()
    if style == "json":
        return out, JsonLog(owner, clock, out)
    bare = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return out, Lines(owner, clock, out, colours=on_terminal(err=True) and not bare)


async def work(
    settings: Settings,
    out: Stderr,
    log: Log,
    *,
    app: str | None,
    commands: bool,
    passed: tuple[str, ...],
    spool_root: Path,
    metrics: tuple[str, int] | None = None,
) -> None:
    """Run one worker with its signals wired, telling people what it does."""
    clock, ids = SystemClock(), SystemIds()
    spool = FileSpool(spool_root, f"{settings.owner}-{ids.new()}")
    processes = Processes(clock, inherited=[spool.lock])
    counted = Metrics(log)
    own, hidden = own_environment(), own_secrets(given_store(), given_outputs())
    out.hide(hidden)
    try:
        executors: list[Executor] = []
        if app is not None:
            functions = _functions(processes, app, settings.slots, out, hidden)
            executors.append(functions)
            hello = await functions.load()
            url, outputs = hello.url, hello.outputs
        else:
            url = chosen_store()
            outputs = chosen_outputs(url, given_outputs())
        out.hide(hidden := own_secrets(url, outputs))
        if commands:
            executors.append(Commands(processes, own=own, passed=passed, outputs=outputs))
        if StoreUrl(url).dies_with_process:
            raise Invalid(
                "A memory:// store lives inside one process, so a worker would never see a job. Give the"
                " app a file: sqlite:///jobs.db"
            )
        registry = await open_registry(url)
        try:
            where = (
                f"{StoreUrl(url).name} {boot_id()}"  # nobody speaks for another machine's workers
            )
            spool.label(where)
            report = counted if metrics else log
            if metrics and isinstance(registry, LocalRegistry):
                registry.count()
            worker = Worker(
                registry,
                settings,
                report,
                clock=clock,
                ids=ids,
                executors=executors,
                spool=spool,
                validating=Validating(
                    registry,
                    lazy_outputs(url, outputs),
                    report,
                    clock=clock,
                    ids=ids,
                    machine=machine(),
                    name=settings.owner,
                    queues=settings.queues if commands else (),
                ),
                redactor=Redactor(hidden),
            )
            leaving = _wire(worker, settings, log)
            source = _source(registry, settings, worker, spool, leaving)
            with _served(counted, source, metrics) as address:
                log.opened(_opening(settings, app, url, address))
                recovering = asyncio.create_task(
                    recover_always(spool_root, where, registry, log, clock=clock, ids=ids)
                )
                settle_memory(ours=True)
                try:
                    await worker.run()
                finally:
                    await stop(recovering)
        finally:
            await registry.close()
    finally:
        await processes.close()
        spool.close()
    log.left()


def _functions(
    processes: Processes, app: str, slots: int, out: Stderr, hidden: Sequence[str]
) -> Functions:
    return Functions(
        processes,
        app,
        slots=slots,
        env=os.environ,
        url=given_store(),
        outputs=given_outputs(),
        stray=out.copy,
        redactor=Redactor(hidden),
    )


def _wire(worker: Worker, settings: Settings, log: Log) -> asyncio.Event:
    """Signals make the worker leave; answers what is set from then on."""
    leaving = asyncio.Event()

    def leave() -> None:
        if not leaving.is_set():
            leaving.set()
            log.leaving(settings.leave_seconds)
        worker.leave()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, leave)
    return leaving


def _opening(settings: Settings, app: str | None, url: str, address: str | None) -> Opening:
    return Opening(
        worker=settings.owner,
        app=app,
        store=shown_url(url),
        queues=settings.queues,
        slots=settings.slots,
        metrics=address,
    )


def _source(
    registry: Registry,
    settings: Settings,
    worker: Worker,
    spool: FileSpool,
    leaving: asyncio.Event,
) -> Source:
    return Source(
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
def _served(
    counted: Metrics, source: Source, address: tuple[str, int] | None
) -> Iterator[str | None]:
    """Serve the metrics, if anybody wants them; answers where."""
    if address is None:
        yield None
        return
    server = Server(counted, source)
    try:
        yield server.open(*address)
    finally:
        server.close()


def _spool_root(given: str | None) -> Path:
    if given:
        return Path(given)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "holdfast" / "spool"
