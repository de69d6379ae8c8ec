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
from holdfast.cli.exits import Exit, outcome_exit
from holdfast.cli.options import Pair, chosen_store, store_option
from holdfast.cli.output import Output, follow_output
from holdfast.cli.promises import PlainOutput
from holdfast.cli.safe import plain
from holdfast.cli.session import absolute, explain_error
from holdfast.cli.session import run as in_session
from holdfast.cli.sizes import Size
from holdfast.cli.terminal import hint, note
from holdfast.cli.traces import caller_trace, traced
from holdfast.cli.worker_log import outcome_words
from holdfast.core.command import Command, encode_command
from holdfast.core.errors import HoldfastError
from holdfast.core.job import Job
from holdfast.core.limits import LEASE_DEFAULT
from holdfast.core.outputs import File, Promise
from holdfast.core.retry import COMMAND_RETRY
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Grant, Registry, Request
from holdfast.sdk.open import own_environment, own_secrets
from holdfast.sdk.outputs import lazy_outputs
from holdfast.sdk.submitting import Submitting
from holdfast.system import SystemClock, SystemIds, machine
from holdfast.worker.claims import Settings
from holdfast.worker.commands import Commands
from holdfast.worker.processes import Processes
from holdfast.worker.redaction import Redactor
from holdfast.worker.spool import MemorySpool
from holdfast.worker.tasks import stop
from holdfast.worker.validating import Validating
from holdfast.worker.worker import Worker

REST_SECONDS = 1.0
"""How long what it wrote may take to be shown, when nobody knows yet how the job ends."""


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("argv", metavar="-- CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--queue", "-q", default="default", show_default=True, help="Queue it belongs to.")
@click.option("--name", help="A name for people; the command itself, if none is given.")
@click.option("--cwd", metavar="DIR", help="Folder to run in.  [default: this one]")
@click.option("--env", type=Pair(), multiple=True, metavar="K=V", help="Environment variable.")
@click.option("--timeout", type=Duration(), help="Kill it when it runs longer.")
@click.option("--memory", type=Size(), help="Kill it when it uses more, with all it started.")
@click.option("--pty", is_flag=True, help="Give it a terminal as large as this one.")
@click.option("--lock", metavar="KEY", help="One job at a time may hold this resource.")
@click.option(
    "--output", "files", type=PlainOutput(), multiple=True, metavar="PATH[:N]",
    help="Output it has to leave: a path from its folder, or a pattern and how many match.",
)  # fmt: skip
@click.option("--job-id", metavar="ID", help="Id of the job itself.  [default: a new one]")
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
    process is killed, so is the command, and the job is failed when its lease has lapsed. Our own
    errors exit with 125. Outputs are looked for when it has ended: one that is missing is exit code 1.
    """
    try:
        columns, rows = shutil.get_terminal_size((80, 24))
        command = Command(
            argv=argv,
            env=dict(env),
            cwd=absolute(cwd),
            pty=pty,
            rows=rows if pty else 24,
            columns=columns if pty else 80,
            memory_bytes=memory,
        )
        spec = Spec(
            queue=queue,
            name=name,
            payload=encode_command(command),
            timeout=timeout,
            lock=lock,
            retry=replace(COMMAND_RETRY, max_crashes=1),
            outputs=Promise(files=files) if files else None,
        )
        with traced("holdfast"):
            code = in_session(lambda registry: _run(registry, spec, job_id), create=True)
    except (HoldfastError, OSError) as error:
        explain_error(error)
        code = Exit.RUN_FAILED
    raise SystemExit(code)


async def _run(registry: Registry, spec: Spec, job_id: str | None) -> int:
    clock, ids, own = SystemClock(), SystemIds(), own_environment()
    owner = f"run-{machine()}-{os.getpid()}"
    made = job_id or ids.new()
    asked_at = clock.monotonic()
    with Submitting([Request(spec=spec, job_id=made)], caller_trace()) as [request]:
        grant = await registry.acquire(made, owner=owner, create=request, lease=LEASE_DEFAULT)
    processes = Processes(clock)
    report, outputs = _Quiet(), lazy_outputs(chosen_store())
    validating = Validating(
        registry, outputs, report, clock=clock, ids=ids, machine=machine(), name=owner
    )
    worker = Worker(
        registry,
        Settings(owner=owner),
        report,
        clock=clock,
        ids=ids,
        executors=[Commands(processes, own=own, passed=("*",), outputs=outputs.url)],
        spool=MemorySpool(),
        validating=validating,
        redactor=Redactor(own_secrets(chosen_store(), outputs.url)),
    )
    asking = asyncio.create_task(_cancel_when_told(registry, made))
    following = asyncio.create_task(follow_output(registry, made, Output()))
    ours = await worker.run_one(grant, asked_at + grant.lease_seconds)
    await processes.close()
    interrupted = asking.done()
    asking.cancel()
    job = await registry.get(made)
    if not ours or job.state is State.VALIDATING:
        with suppress(TimeoutError):
            async with asyncio.timeout(REST_SECONDS if ours else 0):
                await asyncio.shield(following)
        await stop(following)
    if not ours:
        hint(f"The lease of {made} was lost. Look: holdfast why {made}")
        return Exit.RUN_FAILED
    if job.state is State.VALIDATING:
        note(f"{made}: {plain(await registry.why(made))}")
        return Exit.UNAVAILABLE
    await following
    code = _tell(job)
    return Exit.INTERRUPTED if interrupted and code else code


async def _cancel_when_told(registry: Registry, job_id: str) -> None:
    """Ctrl-C and SIGTERM ask the job to stop; `run` then follows it to its end."""
    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    await told.wait()
    await registry.cancel(job_id, actor="user:terminal", reason="interrupted")


def _tell(job: Job) -> int:
    code = outcome_exit(job)
    if code != Exit.DONE:
        # What the command itself did is for it to say; that its outputs are missing, only we know.
        say = note if job.found is not None else hint
        say(f"{job.job_id} {job.state}: {plain(outcome_words(job) or '')}")
    return code


class _Quiet:
    """`run` shows the command's own output; the worker in it has nothing to add."""

    def started(self, grant: Grant) -> None: ...

    def ended(self, job: Job, seconds: float) -> None: ...

    def lost(self, grant: Grant, why: str) -> None: ...

    def trouble(self, why: str) -> None:
        hint(plain(why))

    def paused(self, seconds: float, why: str) -> None: ...

    def resumed(self) -> None: ...
