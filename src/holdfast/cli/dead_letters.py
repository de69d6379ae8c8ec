"""`holdfast dead-letters`: jobs that were given up, why, and their replay."""

import click
from msgspec.structs import replace

from holdfast.cli.bulk import run_many
from holdfast.cli.bulk_options import Chosen, bulk_options
from holdfast.cli.job_argument import job_argument, run_for_job
from holdfast.cli.job_view import call, print_traceback, replays_of, shown_id, title
from holdfast.cli.json_output import print_json
from holdfast.cli.layout import Column
from holdfast.cli.options import store_option
from holdfast.cli.output_summary import missing_names, output_counts
from holdfast.cli.session import filled_page, run
from holdfast.cli.terminal import clock, facts, hint, note, on_terminal, rows, shorten
from holdfast.core.bulk import BulkVerb
from holdfast.core.catalogue import ReasonCode
from holdfast.core.documents import job_document
from holdfast.core.errors import Conflict
from holdfast.core.job import Job
from holdfast.core.limits import PAGE_ITEMS_MAX
from holdfast.core.state import State
from holdfast.ports import JobFilter, Registry

_COLUMNS = (
    Column("JOB"),
    Column("REASON"),
    Column("STAGE", rank=5),
    Column("ATTEMPTS", rank=4),
    Column("QUEUE", rank=2, least=8),
    Column("ENDED", rank=3),
    Column("REPLAYED", rank=1),
    Column("COMMAND", least=24),
    Column("LAST ERROR"),
)
_ERROR_WIDTH = 200
_REASONS = click.Choice([code.value for code in ReasonCode])


@click.group("dead-letters")
def dead_letters() -> None:
    """List, show and replay dead letters: jobs that were given up."""


@dead_letters.command("list")
@click.option("--queue", "-q", help="Only this queue.")
@click.option("--reason", type=_REASONS, metavar="CODE", help="Only with this reason code.")
@click.option(
    "--limit", type=click.IntRange(1, PAGE_ITEMS_MAX), default=50, show_default=True, help="Page size."
)
@click.option("--after", metavar="CURSOR", help="Continue where a page ended.")
@store_option
def list_letters(*, queue: str | None, reason: str | None, limit: int, after: str | None) -> None:
    """List dead letters, oldest job first."""
    run(lambda registry: _list(registry, queue, reason, limit, after))


async def _list(
    registry: Registry, queue: str | None, reason: str | None, limit: int, after: str | None
) -> None:
    page = await filled_page(registry, _dead_letter_filter(queue), after, limit)
    letters = [job for job in page.jobs if _has_reason(job, reason)]
    if letters:
        replays = await registry.replays([job.job_id for job in letters])
        rows(_COLUMNS, [_row(job, made) for job, made in zip(letters, replays, strict=True)])
    elif page.next is None:
        note("There are no dead letters.")
    if page.next is not None:
        note(f"There are more: add --after {page.next}")


def _row(job: Job, replays: list[str]) -> tuple[str | None, ...]:
    letter = job.dead_letter
    return (
        shown_id(job.job_id),
        letter.reason_code if letter else None,
        letter.stage if letter else None,
        str(letter.attempts) if letter else str(job.attempt),
        job.spec.queue,
        clock(job.ended_at),
        "yes" if replays else "no",
        shorten(title(job), 40),
        shorten(_words(job) or "", _ERROR_WIDTH) if on_terminal() else _words(job),
    )


def _words(job: Job) -> str | None:
    """Return the last error, and how many of the promised outputs are there."""
    error = job.dead_letter.last_error if job.dead_letter else job.reason
    return f"{(error or '').rstrip('.')}; {output_counts(job)}" if job.found else error


@dead_letters.command("show")
@job_argument
@click.option("--json", "as_json", is_flag=True, help="The whole record as one JSON object.")
@store_option
def show_letter(job_id: str, *, as_json: bool) -> None:
    """Show one dead letter: all that is needed to decide about it, even months later."""
    run_for_job(job_id, lambda registry, found: _show(registry, found, as_json=as_json))


async def _show(registry: Registry, job_id: str, *, as_json: bool) -> None:
    job = await registry.status(job_id)
    letter = job.dead_letter
    if letter is None:
        raise Conflict(f"Job {job_id} is {job.state}, not a dead letter.", job_id=job_id)
    if as_json:
        print_json(job_document(job))
        return
    replays = await replays_of(registry, job)
    facts(
        [
            ("Job", job.job_id),
            ("Command", title(job)),
            ("Call", call(job) if job.spec.name else None),
            ("Queue", job.spec.queue),
            ("Reason code", letter.reason_code),
            ("Last error", letter.last_error),
            ("Attempts", str(letter.attempts)),
            ("Last owner", letter.last_owner or "none: it had no owner"),
            ("Last lease until", clock(letter.last_lease_expires_at) or "none: it had no owner"),
            ("Correlation", letter.correlation_id),
            ("Stage", letter.stage),
            ("Ended", clock(job.ended_at)),
            ("Outputs", output_counts(job)),
            ("Missing", missing_names(job)),
            ("Replayed as", ", ".join(replays)),
        ]
    )
    print_traceback(job)
    if job.resumable:
        hint(f"Make what is missing: holdfast resume {job_id}")
    if not replays:
        hint(f"Replay it: holdfast dead-letters replay {job_id}")


@dead_letters.command("replay")
@bulk_options
@click.option("--reason", type=_REASONS, metavar="CODE", help="Only with this reason code.")
@click.option("--again", is_flag=True, help="Also what was replayed before.")
@click.option("--dry-run", is_flag=True, help="Only list what would be replayed.")
@store_option
def replay_letters(chosen: Chosen, *, reason: str | None, again: bool, dry_run: bool) -> None:
    """Run dead letters again, each as a new job; prints old and new id.

    The letters stay where they are, linked to their replays; those that have one are passed over, unless
    you give --again. On a terminal it asks first, with their number, unless they are named.
    """
    if chosen.job_ids and reason:
        raise click.UsageError("--reason goes with --all or another filter.")
    if chosen.states:
        raise click.UsageError("Dead letters have one state: leave --state away.")
    raise SystemExit(
        run_many(
            BulkVerb.REPLAY,
            replace(chosen, states=(State.DEAD_LETTERED,)),
            noun="dead letter",
            again=again,
            reason_code=reason,
            dry_run=dry_run,
            check=_check_letter,
        )
    )


def _check_letter(job: Job) -> None:
    """Raise `Conflict` if this is none: all are checked before the first is replayed."""
    if job.state is not State.DEAD_LETTERED:
        raise Conflict(
            f"Job {job.job_id} is {job.state}, not a dead letter; nothing was replayed.",
            job_id=job.job_id,
        )


def _dead_letter_filter(queue: str | None) -> JobFilter:
    return JobFilter(queue=queue, states=(State.DEAD_LETTERED,))


def _has_reason(job: Job, reason: str | None) -> bool:
    return reason is None or (job.dead_letter is not None and job.dead_letter.reason_code == reason)
