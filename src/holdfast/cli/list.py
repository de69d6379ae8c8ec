"""`holdfast list`: jobs, page by page."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeAlias

import click

from holdfast.cli.bulk_options import STATE_CHOICE, states_of
from holdfast.cli.job_view import title
from holdfast.cli.json_output import encode_json
from holdfast.cli.layout import Column, Layout
from holdfast.cli.options import Pair, store_option
from holdfast.cli.output_summary import end_words, output_counts
from holdfast.cli.session import filled_page, run
from holdfast.cli.terminal import age, clock, note, on_terminal, rows, shorten
from holdfast.core.documents import job_document
from holdfast.core.job import Job
from holdfast.core.limits import PAGE_ITEMS_MAX
from holdfast.core.short_ids import short_id
from holdfast.core.state import UNSUCCESSFUL
from holdfast.ports import JobFilter, JobPage, Registry

_PIPE_COLUMNS = tuple(
    Column(name) for name in ("JOB", "STATE", "ATTEMPT", "QUEUE", "OWNER", "CREATED", "COMMAND", "REASON")
)
_TERMINAL_COLUMNS = (
    Column("JOB"),
    Column("STATE"),
    Column("TRY", rank=2),
    Column("AGE", rank=1),
    Column("COMMAND", least=24),
    Column("QUEUE", rank=3, least=8),
    Column("OWNER", rank=4, least=8),
    Column("REASON"),
)
_COMMAND_WIDTH = 40
_REASON_WIDTH = 200


@click.command("list")
@click.option("--queue", "-q", help="Only this queue.")
@click.option(
    "--state",
    "-s",
    "states",
    multiple=True,
    type=STATE_CHOICE,
    metavar="STATE",
    help="Only this state, or `active`, or `ended`; may be given several times.",
)
@click.option("--kind", help="Only this kind of work: command, or the name of a function.")
@click.option("--name", help="Only with this name.")
@click.option("--owner", help="Only what this worker holds.")
@click.option("--label", "labels", type=Pair(), multiple=True, metavar="K=V", help="Only with this label.")
@click.option(
    "--arg",
    "arguments",
    type=Pair(),
    multiple=True,
    metavar="K=V",
    help="Only functions with this argument, such as seed=7; may be given several times.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, PAGE_ITEMS_MAX),
    default=50,
    show_default=True,
    help="Page size.",
)
@click.option("--after", metavar="CURSOR", help="Continue where a page ended.")
@click.option("--oldest", is_flag=True, help="Oldest first.  [default: newest first]")
@click.option("--all", "everything", is_flag=True, help="All pages.")
@click.option("--json", "as_json", is_flag=True, help='{"jobs": [...], "next": CURSOR or null}')
@store_option
def list_jobs(
    *,
    queue: str | None,
    states: tuple[str, ...],
    kind: str | None,
    name: str | None,
    owner: str | None,
    labels: tuple[tuple[str, str], ...],
    arguments: tuple[tuple[str, str], ...],
    limit: int,
    after: str | None,
    oldest: bool,
    everything: bool,
    as_json: bool,
) -> None:
    """List jobs, the newest first."""
    which = JobFilter(
        queue=queue,
        kind=kind,
        name=name,
        states=states_of(states),
        owner=owner,
        labels=dict(labels),
        arguments=dict(arguments),
    )
    show = _show_json if as_json else _show_table
    size = PAGE_ITEMS_MAX if everything else limit

    async def work(registry: Registry) -> None:
        async def read(cursor: str | None) -> JobPage:
            return await filled_page(registry, which, cursor, size, newest=not oldest)

        await show(registry, which, read, after, everything=everything)

    run(work)


Read: TypeAlias = Callable[[str | None], Awaitable[JobPage]]


async def _show_table(
    registry: Registry, which: JobFilter, read: Read, after: str | None, *, everything: bool
) -> None:
    page = await read(after)
    if not page.jobs:
        note(_empty_text(which, after))
        return
    now = await registry.now()
    layout = _print_page(page, now, after=None)
    while everything and page.next is not None:
        page = await read(page.next)
        layout = _print_page(page, now, after=layout)
    if page.next is not None:
        note(f"There are more: add --after {page.next}")


def _print_page(page: JobPage, now: datetime, *, after: Layout | None) -> Layout:
    """A pipe gets all columns in a fixed order; a terminal those that fit, the most important ones first."""
    if on_terminal():
        return rows(_TERMINAL_COLUMNS, [_terminal_row(job, now) for job in page.jobs], after=after)
    return rows(_PIPE_COLUMNS, [_pipe_row(job) for job in page.jobs], after=after)


def _pipe_row(job: Job) -> tuple[str | None, ...]:
    what = shorten(title(job), _COMMAND_WIDTH)
    tries, queue, at = str(job.attempt), job.spec.queue, clock(job.created_at)
    return (job.job_id, job.state, tries, queue, job.owner, at, what, _reason(job))


def _terminal_row(job: Job, now: datetime) -> tuple[str | None, ...]:
    what, old = shorten(title(job), _COMMAND_WIDTH), age(now - job.created_at)
    tries, queue, why = str(job.attempt), job.spec.queue, shorten(_reason(job) or "", _REASON_WIDTH)
    return (short_id(job.job_id), job.state, tries, old, what, queue, job.owner, why)


def _reason(job: Job) -> str | None:
    """Return why the job is in its state: its reason, or what is known of its outputs."""
    if job.state in UNSUCCESSFUL:
        return end_words(job)
    if job.check is not None and job.check.reason is not None:
        return job.check.reason
    return job.reason or (output_counts(job) if job.found else None)


def _empty_text(which: JobFilter, after: str | None) -> str:
    if after is not None:
        return "There are no more jobs."
    if which != JobFilter():
        return "No job matches; see them all: holdfast list"
    return "There are no jobs yet. Submit one: holdfast submit -- echo hello"


async def _show_json(
    registry: Registry, which: JobFilter, read: Read, after: str | None, *, everything: bool
) -> None:
    """One object, written page by page, so that a long list takes no memory."""
    comma = ""
    click.echo('{"jobs": [', nl=False)
    while True:
        page = await read(after)
        if page.jobs:
            lines = [f"\n  {encode_json(job_document(job))}" for job in page.jobs]
            click.echo(comma + ",".join(lines), nl=False)
            comma = ","
        after = page.next
        if not everything or after is None:
            break
    click.echo(f"\n], {encode_json({'next': after})[1:]}")
