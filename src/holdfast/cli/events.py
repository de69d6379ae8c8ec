"""`holdfast events`: the facts as they were recorded, of one job or of all."""

import click
import msgspec

from holdfast.cli.job_argument import complete_jobs, job_id_of, newest_option
from holdfast.cli.job_view import shown_id
from holdfast.cli.json_output import print_json
from holdfast.cli.options import store_option
from holdfast.cli.session import run
from holdfast.cli.terminal import columns, count, hint, note, on_terminal, shorten
from holdfast.core.catalogue import EventClass
from holdfast.core.documents import event_document
from holdfast.core.event import Event
from holdfast.core.output_chunks import chunks_of
from holdfast.ports import Registry

_PAGE = 50


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

    def show(event: Event) -> None:
        if as_json:
            print_json(event_document(event), indent=False)
        else:
            _print_line(event, with_job=job_id is None)

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


def _print_line(event: Event, *, with_job: bool) -> None:
    at = f"{event.occurred_at:%Y-%m-%dT%H:%M:%S}.{event.occurred_at.microsecond // 1000:03d}Z"
    job = [(shown_id(event.job_id or "-"), 8 if on_terminal() else 36)] if with_job else []
    columns([(at, 24), *job, (_place(event), 6), (event.event_type, 22), (_words(event), 0)])


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
        return shorten(msgspec.json.encode(attributes).decode(), 120) if attributes else None
    if not isinstance(found := event.attributes.get("found"), dict):
        return None
    return f"{found.get('verified', 0):,} verified, {found.get('missing', 0):,} missing"
