"""`holdfast run`: submit a command, execute it here, follow it, and exit as it did."""

import asyncio
import os
import shutil
import signal
from contextlib import suppress
from datetime import timedelta

import click
from msgspec.structs import replace

from holdfast.cli.durations import Duration
from holdfast.cli.exit_codes import ExitCode, outcome_exit
from holdfast.cli.log_printer import LogPrinter, follow_logs
from holdfast.cli.options import Pair, chosen_store, store_option
from holdfast.cli.output_option import PlainOutput
from holdfast.cli.session import absolute_folder, explain_error
from holdfast.cli.session import run as in_session
from holdfast.cli.sizes import Size
from holdfast.cli.terminal import hint, note
from holdfast.cli.terminal_escape import plain
from holdfast.cli.traces import caller_trace, traced
from holdfast.cli.worker_log import outcome_words
from holdfast.core.errors import HoldfastError
from holdfast.core.job import Job
from holdfast.core.limits import LEASE_DEFAULT
from holdfast.core.outputs import File, OutputPromise
from holdfast.core.process_spec import ProcessSpec, encode_process_spec
from holdfast.core.retry import COMMAND_RETRY
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Grant, JobRequest, Registry
from holdfast.sdk.job_submission import TracedSubmission
from holdfast.sdk.open import own_environment, own_secrets
from holdfast.sdk.output_store import lazy_outputs
from holdfast.system import SystemClock, SystemIds, machine_name
from holdfast.worker.claims import WorkerSettings
from holdfast.worker.command_executor import CommandExecutor
from holdfast.worker.processes import Processes
from holdfast.worker.redaction import Redactor
from holdfast.worker.spool import MemorySpool
from holdfast.worker.tasks import stop
from holdfast.worker.validation import WorkerValidation
from holdfast.worker.worker import Worker

REST_SECONDS = 1.0
"""How long to wait for the rest of the output while the outcome of the job is not known yet."""


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("argv", metavar="-- CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--queue", "-q", default="default", show_default=True, help="Queue it belongs to.")
@click.option("--name", help="A name for people; the command itself, if none is given.")
@click.option("--cwd", metavar="DIR", help="Folder to run in.  [default: this one]")
@click.option(
    "--env",
    type=Pair(),
    multiple=True,
    metavar="K=V",
    help="Set an environment variable for it; may be given several times.",
)
@click.option("--timeout", type=Duration(), help="Kill it when it runs longer.")
@click.option("--memory", type=Size(), help="Kill it when it uses more, with all it started.")
@click.option("--pty", is_flag=True, help="Give it a terminal as large as this one.")
@click.option("--lock", metavar="KEY", help="Of all jobs with the same KEY, one runs at a time.")
@click.option(
    "--output", "files", type=PlainOutput(), multiple=True, metavar="PATH[:N]",
    help="Output it has to leave: a path from its folder, or a pattern and how many match.",
)  # fmt: skip
@click.option(
    "--job-id",
    metavar="ID",
    help="Id of the job itself.  [default: a new one]",
)
@store_option
def run(
    *,
    argv: tuple[str, ...],
    queue: str,
    name: str | None,
    cwd: str | None,
    env: tuple[tuple[str, str], ...],
    timeout: timedelta | None,
    memory: int | None,
    pty: bool,
    lock: str | None,
    files: tuple[File, ...],
    job_id: str | None,
) -> None:
    """Run a command as a job, here and now, and exit with its exit code.

    It sees this whole environment, and nothing on its standard input. Ctrl-C asks it to stop. If this
    process is killed, so is the command, and the job fails when its lease has lapsed. Errors of holdfast
    itself exit with 125. Outputs are validated when it has ended: a missing one means exit code 1.
    """
    try:
        columns, rows = shutil.get_terminal_size((80, 24))
        command = ProcessSpec(
            argv=argv,
            env=dict(env),
            cwd=absolute_folder(cwd),
            pty=pty,
            rows=rows if pty else 24,
            columns=columns if pty else 80,
            memory_bytes=memory,
        )
        spec = Spec(
            queue=queue,
            name=name,
            payload=encode_process_spec(command),
            timeout=timeout,
            lock=lock,
            retry=replace(COMMAND_RETRY, max_crashes=1),
            outputs=OutputPromise(files=files) if files else None,
        )
        with traced("holdfast"):
            code = in_session(lambda registry: _run(registry, spec, job_id), create=True)
    except (HoldfastError, OSError) as error:
        explain_error(error)
        code = ExitCode.RUN_FAILED
    raise SystemExit(code)


async def _run(registry: Registry, spec: Spec, job_id: str | None) -> int:
    clock, ids, own = SystemClock(), SystemIds(), own_environment()
    owner = f"run-{machine_name()}-{os.getpid()}"
    new_id = job_id or ids.new()
    asked_at = clock.monotonic()
    with TracedSubmission([JobRequest(spec=spec, job_id=new_id)], caller_trace()) as [request]:
        grant = await registry.acquire(new_id, owner=owner, create=request, lease=LEASE_DEFAULT)
    processes = Processes(clock)
    report, outputs = _SilentReport(), lazy_outputs(chosen_store())
    validating = WorkerValidation(
        registry, outputs, report, clock=clock, ids=ids, machine=machine_name(), name=owner
    )
    worker = Worker(
        registry,
        WorkerSettings(owner=owner),
        report,
        clock=clock,
        ids=ids,
        executors=[CommandExecutor(processes, own=own, passed=("*",), outputs=outputs.url)],
        spool=MemorySpool(),
        validation=validating,
        redactor=Redactor(own_secrets(chosen_store(), outputs.url)),
    )
    cancelling = asyncio.create_task(_cancel_on_signal(registry, new_id))
    following = asyncio.create_task(follow_logs(registry, new_id, LogPrinter()))
    held = await worker.run_one(grant, asked_at + grant.lease_seconds)
    await processes.close()
    interrupted = cancelling.done()
    cancelling.cancel()
    job = await registry.status(new_id)
    if not held or job.state is State.VALIDATING:
        with suppress(TimeoutError):
            async with asyncio.timeout(REST_SECONDS if held else 0):
                await asyncio.shield(following)
        await stop(following)
    if not held:
        hint(f"The lease of {new_id} was lost. See why: holdfast why {new_id}")
        return ExitCode.RUN_FAILED
    if job.state is State.VALIDATING:
        note(f"{new_id}: {plain(await registry.why(new_id))}")
        return ExitCode.UNAVAILABLE
    await following
    code = _report_outcome(job)
    return ExitCode.INTERRUPTED if interrupted and code else code


async def _cancel_on_signal(registry: Registry, job_id: str) -> None:
    """Ctrl-C and SIGTERM ask the job to stop; `run` then follows it to its end."""
    signalled = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, signalled.set)
    await signalled.wait()
    await registry.cancel(job_id, actor="user:terminal", reason="interrupted")


def _report_outcome(job: Job) -> int:
    code = outcome_exit(job)
    if code != ExitCode.DONE:
        # The command itself printed what it did; that its outputs are missing, only holdfast knows.
        show = note if job.found is not None else hint
        show(f"{job.job_id} {job.state}: {plain(outcome_words(job) or '')}")
    return code


class _SilentReport:
    """A report that shows only trouble: `run` itself shows the output of the command."""

    def started(self, grant: Grant) -> None: ...

    def ended(self, job: Job, seconds: float) -> None: ...

    def lost(self, grant: Grant, why: str) -> None: ...

    def trouble(self, why: str) -> None:
        hint(plain(why))

    def paused(self, seconds: float, why: str) -> None: ...

    def resumed(self) -> None: ...
