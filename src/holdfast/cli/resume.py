"""`holdfast resume`: make what is missing of the outputs of a job."""

import click
from msgspec import Struct

from holdfast.cli.exits import outcome_exit
from holdfast.cli.findings import tally
from holdfast.cli.inspecting import inspecting, is_kept
from holdfast.cli.options import job_argument, outputs_option, store_option
from holdfast.cli.output import follow_to_verdict
from holdfast.cli.safe import plain
from holdfast.cli.session import run
from holdfast.cli.terminal import count, hint, note
from holdfast.core.job import Job
from holdfast.ports import Registry, Resumption
from holdfast.sdk.caller import actor


@click.command()
@job_argument
@click.option("--dry-run", is_flag=True, help="Only say what would be made again.")
@click.option("--again", is_flag=True, help="Also while another job resumes it.")
@click.option("--wait", is_flag=True, help="Follow the output of the new job; exit as it does.")
@outputs_option
@store_option
def resume(job_id: str, *, dry_run: bool, again: bool, wait: bool) -> None:
    """Make a new job of what an ended job lacks, and print its id.

    The outputs are looked for first. The new job is the same work, and promises the missing outputs
    alone; each of the two names the other in its status. When it is done, the old job is looked at
    again.

    Of a study exactly the missing tasks are run. A command cannot be split: it runs again as it is, and
    writes again what is there, unless it goes by HOLDFAST_MISSING, in which it finds the missing paths,
    one a line. Managed outputs are all made again, by the handler that makes them.

    To resume twice is to resume once: as long as the new job has not ended, it is that one again,
    unless you say --again.

    \b
      holdfast resume --dry-run JOB
      id=$(holdfast resume JOB)
    """
    if dry_run and wait:
        raise click.UsageError("A dry run makes no job to wait for.")
    asked = _Asked(dry_run=dry_run, again=again, wait=wait)
    job = run(lambda registry: _resume(registry, job_id, asked))
    if wait and job is not None:
        raise SystemExit(outcome_exit(job))


class _Asked(Struct, frozen=True, kw_only=True):
    dry_run: bool
    again: bool
    wait: bool


async def _resume(registry: Registry, job_id: str, asked: _Asked) -> Job | None:
    original = await registry.get(job_id)
    async with inspecting(registry, kept=is_kept(original.spec.outputs)) as inspector:
        made = await inspector.resume(
            job_id, actor=actor(), dry_run=asked.dry_run, again=asked.again
        )
    if made.job is None:
        if made.missing:
            _print_plan(made, original)
        else:
            note(f"Nothing is missing: {plain(tally(await registry.get(job_id)) or '')}.")
        return None
    if made.earlier:
        note(f"{job_id} is resumed by {made.job.job_id} already ({made.job.state}).")
        hint(f"Make another beside it: holdfast resume --again {job_id}")
    if asked.wait:
        return await follow_to_verdict(registry, made.job.job_id)
    click.echo(made.job.job_id)
    hint(
        f"It makes {count(made.missing, 'output')}."
        f" Execute it: holdfast worker -q {made.job.spec.queue}\n"
        f"Follow it:  holdfast logs -f {made.job.job_id}"
    )
    return made.job


def _print_plan(made: Resumption, original: Job) -> None:
    total = original.spec.promised_outputs
    click.echo(f"{made.missing:,} of {total:,} outputs would be made again:")
    for name in made.names:
        click.echo(f"  {plain(name)}")
    more = made.missing - len(made.names)
    if more > 0:
        click.echo(f"  and {more:,} more: holdfast outputs --missing {original.job_id}")
