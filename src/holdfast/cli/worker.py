"""`holdfast worker`: run queued commands on this machine."""

import asyncio
import os
import signal
import socket
from datetime import timedelta

import click

from holdfast.cli.durations import Duration
from holdfast.cli.options import store_option
from holdfast.cli.safe import plain
from holdfast.cli.session import run
from holdfast.cli.terminal import count
from holdfast.core.explain import span
from holdfast.core.job import Job
from holdfast.core.state import State
from holdfast.ports import Grant, Registry
from holdfast.system import SystemClock, SystemIds
from holdfast.worker.execution import Commands
from holdfast.worker.worker import Settings, Worker


@click.command()
@click.option(
    "--queue", "-q", "queues", multiple=True, default=("default",), show_default=True,
    help="Queue to work on; give several, the first goes first.",
)  # fmt: skip
@click.option(
    "--concurrency", "-c", "slots", type=click.IntRange(1, 1000), default=os.cpu_count() or 1,
    help="Jobs to run at the same time.  [default: one per core]",
)  # fmt: skip
@click.option("--name", help="Name of this worker.  [default: host and process id]")
@click.option("--region", help="Region of this worker; jobs of another are left alone.")
@click.option("--lease", type=Duration(), help="Lease to ask for.  [default: the job's own, 60s]")
@click.option(
    "--pass-env", "passed", multiple=True, metavar="NAME",
    help="Variable of this environment that every job may see; * and ? match.",
)  # fmt: skip
@click.option("--drain", is_flag=True, help="Leave when the queues are empty.")
@click.option(
    "--leave", "leave", type=Duration(), default=timedelta(seconds=10),
    help="Time running jobs have after a SIGTERM before they are given back.  [default: 10s]",
)  # fmt: skip
@store_option
def worker(
    *,
    queues: tuple[str, ...],
    slots: int,
    name: str | None,
    region: str | None,
    lease: timedelta | None,
    passed: tuple[str, ...],
    drain: bool,
    leave: timedelta,
) -> None:
    """Claim jobs and run them until told to leave (Ctrl-C or SIGTERM).

    A job gets PATH, HOME, the locale and little else of this environment; its own variables and
    secrets come by name. Whatever it starts is killed with it.
    """
    settings = Settings(
        owner=name or f"{socket.gethostname()}-{os.getpid()}",
        queues=queues,
        slots=slots,
        region=region,
        lease=lease,
        drain=drain,
        leave_seconds=leave.total_seconds(),
    )
    run(lambda registry: work(registry, settings, passed), create=True)


async def work(registry: Registry, settings: Settings, passed: tuple[str, ...] = ()) -> None:
    """Run one worker with its signals wired, telling people what it does."""
    lines = Lines()
    ids, clock = SystemIds(), SystemClock()
    commands = Commands(clock, own=os.environ, passed=passed)
    worker = Worker(registry, settings, lines, clock=clock, ids=ids, executor=commands)
    loop = asyncio.get_running_loop()

    def leave() -> None:
        if not lines.leaving:
            lines.leaving = True
            lines.say(
                f"Leaving: running jobs have {settings.leave_seconds:g} s to end, then they are given"
                " back. Once more stops them now."
            )
        worker.leave()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, leave)
    queues = ", ".join(settings.queues)
    lines.say(f"{settings.owner} works on {queues}, {settings.slots} at a time. Ctrl-C to leave.")
    await worker.run()
    lines.say(f"{settings.owner} left; {count(lines.done, 'job')} done.")


def coloured(text: str, colour: str) -> str:
    """Coloured on a terminal (click takes the colour out elsewhere), unless NO_COLOR says not to."""
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=colour)


_MARKS = {State.SUCCEEDED: ("✔", "green"), State.QUEUED: ("↻", "yellow")}


class Lines:
    """What a worker tells people, one calm line at a time, on stderr."""

    def __init__(self) -> None:
        self.done = 0
        self.leaving = False
        self._trouble = ""

    def say(self, text: str) -> None:
        click.echo(plain(text), err=True)

    def started(self, grant: Grant) -> None:
        again = f" (attempt {grant.attempt})" if grant.attempt > 1 else ""
        click.echo(f"{coloured('▶', 'cyan')} {_title(grant.job)}{again}", err=True)

    def ended(self, job: Job, seconds: float) -> None:
        self.done += job.ended
        mark, colour = _MARKS.get(job.state, ("✘", "red"))
        why = "" if job.state is State.SUCCEEDED else f": {plain(job.reason or '')}"
        took = span(timedelta(seconds=seconds))
        click.echo(f"{coloured(mark, colour)} {_title(job)} {job.state} in {took}{why}", err=True)

    def lost(self, grant: Grant, why: str) -> None:
        mark = coloured("⚠", "yellow")
        click.echo(f"{mark} {_title(grant.job)} is no longer ours: {plain(why)}", err=True)

    def trouble(self, why: str) -> None:
        if why != self._trouble:  # an outage is one line, not one every half second
            self._trouble = why
            click.echo(f"{coloured('⚠', 'yellow')} {plain(why)}", err=True)


def _title(job: Job) -> str:
    return f"{job.job_id} {plain(job.spec.name or '')}".rstrip()
