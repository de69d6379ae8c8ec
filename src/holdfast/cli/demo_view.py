"""What the demo shows: a live picture on a terminal, plain lines in a pipe, and the proof in both."""

import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click

from holdfast.cli.terminal import STYLES
from holdfast.cli.terminal_escape import plain
from holdfast.core.catalogue import EventClass, EventType
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.state import State
from holdfast.ports import Verification

if TYPE_CHECKING:
    from rich.console import RenderableType

RECENT = 8


class View(Protocol):
    """A way to show the demo."""

    def open(self, names: dict[str, str], url: str) -> None: ...

    def show(self, event: Event, name: str) -> None: ...

    def kill(self, owner: str, name: str) -> None: ...

    def close(
        self, jobs: list[Job], story: list[Event], proof: Verification, killed: str, url: str
    ) -> None: ...


def event_sentence(event: Event, name: str) -> str | None:
    """Return what happened, in words; None for what is not worth a line."""
    who = (event.actor or "").partition(":")[2]
    match event.event_type:
        case EventType.CLAIMED:
            again = f", attempt {event.attempt}" if (event.attempt or 1) > 1 else ""
            return f"{who} claimed {name} (fencing token {event.fencing_token}{again})"
        case EventType.SUCCEEDED:
            return f"{who} finished {name}"
        case EventType.FAILED:
            return f"{name} failed: {event.reason}"
        case EventType.REQUEUED:
            return f"{name} is queued again: {event.reason}"
        case EventType.STALE_WRITE_REJECTED:
            return f"refused: {event.reason}"
        case _:
            return None


class PlainView:
    """One line an event, for pipes and logs."""

    def open(self, names: dict[str, str], url: str) -> None:
        click.echo(f"{len(names)} jobs, 3 workers, leases of 3 s, one SQLite file.")

    def show(self, event: Event, name: str) -> None:
        if words := event_sentence(event, name):
            click.echo(f"{event.occurred_at:%H:%M:%S}  {plain(words)}")

    def kill(self, owner: str, name: str) -> None:
        click.echo(f"          *** kill -9 {owner}, in the middle of {name} ***")

    def close(self, jobs: list[Job], story: list[Event], proof: Verification, killed: str, url: str) -> None:
        click.echo()
        for line in closing_lines(jobs, story, proof, killed, url):
            click.echo(line)


class LiveView:
    """Progress, workers and the last few events, redrawn in place."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(highlight=False)
        self._live = Live(console=self._console, refresh_per_second=12, transient=True)
        self._names: dict[str, str] = {}
        self._states: dict[str, State] = {}
        self._doing: dict[str, str] = {}
        self._dead: set[str] = set()
        self._recent: list[str] = []

    def open(self, names: dict[str, str], url: str) -> None:
        self._names = names
        self._states = dict.fromkeys(names, State.QUEUED)
        text = f"[bold]{len(names)} jobs[/], 3 workers, leases of 3 s, one SQLite file.\n"
        self._console.print(text)
        self._live.start()

    def show(self, event: Event, name: str) -> None:
        if event.event_class is EventClass.TRANSITION and event.job_id and event.to_state:
            self._states[event.job_id] = event.to_state
            owner = (event.actor or "").partition(":")[2]
            if event.event_type == EventType.CLAIMED:
                self._doing[owner] = name
            elif owner in self._doing and event.event_type != EventType.STARTED:
                self._doing[owner] = ""
        if words := event_sentence(event, name):
            self._add_line(words)
        self._live.update(self._layout())

    def kill(self, owner: str, name: str) -> None:
        self._dead.add(owner)
        self._add_line(f"[bold red]kill -9 {owner}[/], in the middle of {name}", markup=True)
        self._live.update(self._layout())

    def _add_line(self, words: str, *, markup: bool = False) -> None:
        from rich.markup import escape

        self._recent = [*self._recent, words if markup else escape(plain(words))][-RECENT:]

    def _layout(self) -> "RenderableType":
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        counts = Counter(self._states.values())
        bar = Text()
        for state in (State.SUCCEEDED, State.FAILED, State.RUNNING, State.ASSIGNED, State.QUEUED):
            bar.append("█" * (2 * counts[state]), style=STYLES.get(state, ""))
        legend = "   ".join(f"{n} {state}" for state, n in sorted(counts.items()) if n)
        workers = Table.grid(padding=(0, 2))
        for owner in sorted({*self._doing, *self._dead}):
            dead = owner in self._dead
            now = "killed" if dead else self._doing.get(owner) or "idle"
            workers.add_row(owner, Text(now, style="red" if dead else "cyan" if now != "idle" else "dim"))
        lines = [Text.from_markup(f"  [dim]{line}[/]") for line in self._recent]
        return Group(bar, Text(legend, style="dim"), Text(), workers, Text(), *lines)

    def close(self, jobs: list[Job], story: list[Event], proof: Verification, killed: str, url: str) -> None:
        self._live.stop()
        for line in closing_lines(jobs, story, proof, killed, url):
            mark, rest = line[:1], line[1:]
            style = {"✔": "green", "✘": "red"}.get(mark, "")
            self._console.print(mark, style=style, end="", markup=False)
            self._console.print(rest, markup=False, soft_wrap=True)


def closing_lines(
    jobs: list[Job], story: list[Event], proof: Verification, killed: str, url: str
) -> list[str]:
    """Return the end of the demo: what became of the jobs, the story of the killed one, the proof."""
    counts = Counter(str(job.state) for job in jobs)
    failed = next((job for job in jobs if job.state is State.FAILED), None)
    retried = sum(job.attempt > 1 for job in jobs)
    summary = ", ".join(f"{n} {state}" for state, n in counts.most_common())
    lines = [f"{len(jobs)} jobs: {summary}; {retried} needed a second attempt.", ""]
    lines.append(f"The job that {killed} held when it was killed:")
    for event in story:
        who = (event.actor or "").partition(":")[2]
        token = f"token {event.fencing_token}" if event.fencing_token else ""
        why = f"  {event.reason}" if event.reason else ""
        what = f"{event.offset}  {event.event_type:<14} attempt {event.attempt}"
        lines.append(f"  {what}  {token:<8} {who:<10}{why}".rstrip())
    equal = "✔" if proof.equal else "✘"
    ended = "✔" if all(job.ended for job in jobs) else "✘"
    lines += [
        "",
        f"{ended} No job was lost: {sum(job.ended for job in jobs)} of {len(jobs)} ended.",
        f"{equal} One event per transition: {proof.events} events, {proof.transitions} transitions.",
        f"{equal} verify: every record equals the fold of its log.",
        "",
        "Try next:",
        f"  export HOLDFAST_STORE={url}",
        f"  {holdfast_command()} list",
        f"  {holdfast_command()} why {failed.job_id}" if failed else f"  {holdfast_command()} verify",
        f"  {holdfast_command()} run -- echo hello",
    ]
    return lines


def holdfast_command() -> str:
    """Return how to call holdfast from here: by name where the shell finds it, else by path."""
    if shutil.which("holdfast"):
        return "holdfast"
    script = Path(sys.executable).with_name("holdfast")
    here = Path.cwd()
    return str(script.relative_to(here) if script.is_relative_to(here) else script)
