"""`holdfast outputs`: the outputs that a job promised, and which are there."""

import click

from holdfast.cli.inspector import chosen_inspector, in_output_store
from holdfast.cli.job_argument import job_argument, run_for_job
from holdfast.cli.json_output import encode_json
from holdfast.cli.layout import Column, Layout
from holdfast.cli.options import outputs_option, store_option
from holdfast.cli.output_summary import output_counts
from holdfast.cli.progress import with_progress_bar
from holdfast.cli.terminal import hint, note, rows
from holdfast.core.documents import document
from holdfast.core.errors import Conflict, Denied
from holdfast.core.job import Job
from holdfast.core.outputs import Output
from holdfast.core.state import State
from holdfast.ports import Inspector, OutputPage, Registry
from holdfast.sdk.defaults import actor

_COLUMNS = (
    Column("OUTPUT"),
    Column("STATE"),
    Column("BYTES", rank=1),
    Column("SHA256", rank=2),
    Column("WHY"),
)
_PAGE = 1000
_DIGITS = 12


@click.command()
@job_argument
@click.option("--missing", is_flag=True, help="Only those that are missing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@outputs_option
@store_option
def outputs(job_id: str, *, missing: bool, as_json: bool) -> None:
    """List the outputs that a job promised, as the last validation saw them.

    `there` was made by this job, `reused` was found and not made again, `missing` is not there or not as
    promised, and WHY says why. The counts are printed at the end, on stderr. If the job ended without
    success and its outputs were not validated yet, they are validated now.
    """
    run_for_job(job_id, lambda registry, found: _outputs(registry, found, missing=missing, as_json=as_json))


async def _outputs(registry: Registry, job_id: str, *, missing: bool, as_json: bool) -> None:
    job = await registry.status(job_id)
    if job.spec.outputs is None:
        note(_unnamed_text(job))
        return
    async with chosen_inspector(registry, stored=in_output_store(job.spec.outputs)) as inspector:
        if job.unvalidated:
            job = await _validate(registry, inspector, job)
        checked = await _print_pages(inspector, job_id, missing=missing, as_json=as_json)
    note(f"{output_counts(job)}." if checked else _unvalidated_text(job))
    if job.resumable:
        hint(f"Make what is missing: holdfast resume {job_id}")


async def _validate(registry: Registry, inspector: Inspector, job: Job) -> Job:
    """Return the job after its outputs were validated; unchanged for a caller that may only read."""
    try:
        return await with_progress_bar(
            registry, job.job_id, inspector.validate(job.job_id, actor=actor(), force=True)
        )
    except (Denied, Conflict):
        return job


async def _print_pages(inspector: Inspector, job_id: str, *, missing: bool, as_json: bool) -> bool:
    """Print page after page, keeping none; return whether the outputs were validated yet."""
    after: str | None = None
    layout: Layout | None = None
    while True:
        page = await inspector.list_outputs(job_id, missing=missing, after=after, limit=_PAGE)
        if page.outputs:
            layout = _print(page, after=layout, as_json=as_json)
        after = page.next
        if after is None:
            return page.checked


def _print(page: OutputPage, *, after: Layout | None, as_json: bool) -> Layout | None:
    if as_json:
        click.echo("\n".join(_line(output, checked=page.checked) for output in page.outputs))
        return None
    return rows(_COLUMNS, [_row(output, checked=page.checked) for output in page.outputs], after=after)


def _line(output: Output, *, checked: bool) -> str:
    fields = document(output)
    return encode_json({"name": output.name, "state": state_of(output, checked=checked), **fields})


def _row(output: Output, *, checked: bool) -> tuple[str | None, ...]:
    return (
        output.name,
        state_of(output, checked=checked),
        None if output.size is None else str(output.size),
        output.sha256[:_DIGITS] if output.sha256 else None,
        output.missing if checked else None,
    )


def state_of(output: Output, *, checked: bool) -> str:
    """Return in one word whether the output is there."""
    if not checked:
        return "promised"
    if output.missing is not None:
        return "missing"
    return "reused" if output.reused else "there"


def _unnamed_text(job: Job) -> str:
    if job.spec.promised_outputs:
        return f"{output_counts(job)}, which only your own validator knows by name."
    return "This job promises no outputs: it is done when its work is."


def _unvalidated_text(job: Job) -> str:
    if job.state is State.VALIDATING:
        return f"Not validated yet. Validate now: holdfast validate {job.job_id}"
    if job.unvalidated:
        why = job.check.reason if job.check else None
        return f"Not validated yet: {why or 'holdfast validate ' + job.job_id + ' --force'}"
    return "They are validated when the work is done."
