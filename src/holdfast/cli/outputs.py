"""`holdfast outputs`: what a job promised to leave behind, and what is there of it."""

import click

from holdfast.cli.documents import encode
from holdfast.cli.findings import tally
from holdfast.cli.inspecting import inspecting, is_kept
from holdfast.cli.options import job_argument, outputs_option, store_option
from holdfast.cli.progress import with_bar
from holdfast.cli.session import run
from holdfast.cli.terminal import hint, note, rows
from holdfast.core.documents import document
from holdfast.core.errors import Conflict, Denied
from holdfast.core.job import Job
from holdfast.core.outputs import Output
from holdfast.core.state import State
from holdfast.ports import Inspector, OutputPage, Registry
from holdfast.sdk.caller import actor

_HEADERS = ("OUTPUT", "STATE", "BYTES", "SHA256", "WHY")
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

    `there` was made by this job, `reused` was found and not made again, `missing` does not count, and
    WHY says why. How many there are of each is told at the end, on stderr. If the job ended without
    success and nobody has looked yet, they are looked for now.
    """
    run(lambda registry: _outputs(registry, job_id, missing=missing, as_json=as_json))


async def _outputs(registry: Registry, job_id: str, *, missing: bool, as_json: bool) -> None:
    job = await registry.get(job_id)
    if job.spec.outputs is None:
        note(_unnamed(job))
        return
    async with inspecting(registry, kept=is_kept(job.spec.outputs)) as inspector:
        if job.unverified:
            job = await _look(registry, inspector, job)
        checked = await _print_pages(inspector, job_id, missing=missing, as_json=as_json)
    note(f"{tally(job)}." if checked else _unseen(job))
    if job.resumable:
        hint(f"Make what is missing: holdfast resume {job_id}")


async def _look(registry: Registry, inspector: Inspector, job: Job) -> Job:
    """The job when its outputs were looked for; as it is, for whoever may only read."""
    try:
        return await with_bar(
            registry, job.job_id, inspector.validate(job.job_id, actor=actor(), force=True)
        )
    except (Denied, Conflict):
        return job


async def _print_pages(inspector: Inspector, job_id: str, *, missing: bool, as_json: bool) -> bool:
    """Print page after page, none of which is kept; answers whether anybody has looked yet."""
    after: str | None = None
    header = True
    while True:
        page = await inspector.outputs(job_id, missing=missing, after=after, limit=_PAGE)
        if page.outputs:
            _print(page, header=header, as_json=as_json)
            header = False
        after = page.next
        if after is None:
            return page.checked


def _print(page: OutputPage, *, header: bool, as_json: bool) -> None:
    if as_json:
        click.echo("\n".join(_line(output, checked=page.checked) for output in page.outputs))
    else:
        lines = [_row(output, checked=page.checked) for output in page.outputs]
        rows(_HEADERS, lines, header=header)


def _line(output: Output, *, checked: bool) -> str:
    said = document(output)
    return encode({"name": output.name, "state": state_of(output, checked=checked), **said})


def _row(output: Output, *, checked: bool) -> tuple[str | None, ...]:
    return (
        output.name,
        state_of(output, checked=checked),
        None if output.size is None else str(output.size),
        output.sha256[:_DIGITS] if output.sha256 else None,
        output.missing if checked else None,
    )


def state_of(output: Output, *, checked: bool) -> str:
    """In one word, whether it is there."""
    if not checked:
        return "promised"
    if output.missing is not None:
        return "missing"
    return "reused" if output.reused else "there"


def _unnamed(job: Job) -> str:
    if job.spec.promised_outputs:
        return f"{tally(job)}, which only your own validator knows by name."
    return "This job promises no outputs: it is done when its work is."


def _unseen(job: Job) -> str:
    if job.state is State.VALIDATING:
        return f"Nobody has seen them yet. Look now: holdfast validate {job.job_id}"
    if job.unverified:
        why = job.check.reason if job.check else None
        return f"Nobody has seen them yet: {why or 'holdfast validate ' + job.job_id + ' --force'}"
    return "They are looked for when the work is done."
