"""`holdfast events`: the facts as they were recorded, of one job or of all."""

import click
import msgspec

from holdfast.cli.job_argument import complete_jobs, job_id_of, newest_option
from holdfast.cli.job_view import shown_id
from holdfast.cli.json_output import print_json
from holdfast.cli.layout import Column, Layout, fit, fixed
from holdfast.cli.options import store_option
from holdfast.cli.session import run
from holdfast.cli.terminal import count, hint, note, row, say, shorten, width
from holdfast.core.catalogue import EventClass
from holdfast.core.documents import event_document
from holdfast.core.event import Event
from holdfast.core.output_chunks import chunks_of
from holdfast.ports import Registry

_PAGE = 50
_TIME_WIDTH = len("2026-01-31T12:00:00.000Z")
_JOB_WIDTH = 16
"""Of the column of jobs on a terminal: twice a short id; a longer id that somebody chose is cut."""
_CLOCK_WIDTH = len("12:00:00.000")
_REST_WIDTH = 75  # place, event, and enough of the details


@click.command()
@click.argument("job_id", metavar="[JOB]", required=False, shell_complete=complete_jobs)
@newest_option
@click.option("--after", metavar="CURSOR", help="Continue where an earlier reading ended.")
@click.option("--follow", "-f", is_flag=True, help="Print new events as they come; ends with the job.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line; data is base64.")
@store_option
def events(job_id: str | None, *, after: str | None, follow: bool, as_json: bool) -> None:
    """Print the event log of a job, or without JOB that of all jobs, in commit order.

    Registry events have an offset in their job (#3), worker events a sequence in their
    attempt (2.7).
    """
    run(lambda registry: _print(registry, job_id, after, follow=follow, as_json=as_json))


async def _print(
    registry: Registry, job_id: str | None, cursor: str | None, *, follow: bool, as_json: bool
) -> None:
    if job_id is not None:
        job_id = await job_id_of(registry, job_id)
    table = _EventTable(with_job=job_id is None)

    def show(event: Event) -> None:
        if as_json:
            print_json(event_document(event), indent=False)
        else:
            table.show(event)

    while True:
        if job_id is None:
            page = await registry.events(after=cursor, limit=_PAGE)
        else:
            page = await registry.logs(job_id, after=cursor, limit=_PAGE)
        for event in page.events:
            show(event)
        cursor = page.cursor
        if not page.events:
            break
    if not follow:
        show_cursor = note if job_id is None else hint
        show_cursor(f"To read on from here: add --after {cursor}")
        return
    async for event in registry.watch(job_id, after=cursor):
        show(event)


class _EventTable:
    """Events as they come, a row each. On a narrow terminal a line of its own tells the day."""

    def __init__(self, *, with_job: bool) -> None:
        self._with_job = with_job
        self._day: str | None = None
        self._layout = self._fit(_TIME_WIDTH)
        columns = width()
        if columns and columns < _TIME_WIDTH + (_JOB_WIDTH + 2) * with_job + _REST_WIDTH:
            self._day = ""
            self._layout = self._fit(_CLOCK_WIDTH)

    def _fit(self, time_width: int) -> Layout:
        if width() is None:
            job = [("JOB", 36)] if self._with_job else []
            return fixed(("TIME", time_width), *job, ("PLACE", 6), ("EVENT", 22), ("DETAILS", 0))
        job_column = [Column("JOB", least=8)] if self._with_job else []
        sample = ["-" * time_width, *["-" * _JOB_WIDTH] * self._with_job, "-" * 6, "-" * 23, "- " * 200]
        return fit(
            [Column("TIME"), *job_column, Column("PLACE", rank=1), Column("EVENT"), Column("DETAILS")],
            [sample],
            width(),
        )

    def show(self, event: Event) -> None:
        at = f"{event.occurred_at:%Y-%m-%dT%H:%M:%S}.{event.occurred_at.microsecond // 1000:03d}Z"
        if self._day is not None:
            day, at = at[:10], at[11:23]
            if day != self._day:
                say(f"── {day} ──")
                self._day = day
        job = [shown_id(event.job_id or "-")] if self._with_job else []
        row(self._layout, [at, *job, _place(event), event.event_type, _words(event)])


def _place(event: Event) -> str:
    if event.offset is not None:
        return f"#{event.offset}"
    return "-" if event.sequence is None else f"{event.attempt}.{event.sequence}"


def _words(event: Event) -> str:
    """Return the details, the most important first."""
    arrow = f"{event.from_state or 'new'} -> {event.to_state}" if event.to_state else None
    attempt = f"attempt {event.attempt}" if event.attempt and event.sequence is None else None
    token = f"token {event.fencing_token}" if event.fencing_token and event.sequence is None else None
    by = f"by {event.actor}" if event.actor else None
    return ", ".join(filter(None, [arrow, _written(event), attempt, token, by, event.reason, _more(event)]))


def _written(event: Event) -> str | None:
    """Return the streams, pieces and bytes of the output in this event; None without output."""
    if event.data is None:
        return None
    size = count(len(event.data), "byte")
    if event.end_sequence is None:
        return f"{event.stream}, {size}"
    some = list(chunks_of(event))
    streams = " and ".join(sorted({piece.stream for piece in some}))
    return f"{streams}, {count(len(some), 'piece')} up to {event.attempt}.{event.last_sequence}, {size}"


def _more(event: Event) -> str | None:
    """Return the attributes of worker and external events, or the counts behind a verdict."""
    if event.event_class in (EventClass.WORKER, EventClass.EXTERNAL):
        attributes = {name: value for name, value in event.attributes.items() if name != "items"}
        spaces = 0 if width() else -1  # lines are broken at them
        encoded = msgspec.json.format(msgspec.json.encode(attributes), indent=spaces)
        return shorten(encoded.decode(), 120) if attributes else None
    if not isinstance(found := event.attributes.get("found"), dict):
        return None
    return f"{found.get('verified', 0):,} verified, {found.get('missing', 0):,} missing"
