"""`holdfast resume`: make what a partial success lacks, and nothing else."""

import click

from holdfast.cli.exits import outcome_exit
from holdfast.cli.inspecting import inspecting, is_kept
from holdfast.cli.options import job_argument, outputs_option, store_option
from holdfast.cli.output import follow_to_verdict
from holdfast.cli.safe import plain
from holdfast.cli.session import run
from holdfast.cli.terminal import count, hint
from holdfast.core.job import Job
from holdfast.ports import Registry, Resumption
from holdfast.sdk.caller import actor


@click.command()
@job_argument
@click.option("--dry-run", is_flag=True, help="Only say what would be made again.")
@click.option("--wait", is_flag=True, help="Follow the output of the new job; exit as it does.")
@outputs_option
@store_option
def resume(job_id: str, *, dry_run: bool, wait: bool) -> None:
    """Make a new job of what a partial success lacks, and print its id.

    The new job is the same work with the missing outputs alone to make; each of the two names the
    other in its status. When it is done, the old job is looked at again.

    \b
      holdfast resume --dry-run JOB
      id=$(holdfast resume JOB)
    """
    if dry_run and wait:
        raise click.UsageError("A dry run makes no job to wait for.")
    job = run(lambda registry: _resume(registry, job_id, dry_run=dry_run, wait=wait))
    if wait and job is not None:
        raise SystemExit(outcome_exit(job))


async def _resume(registry: Registry, job_id: str, *, dry_run: bool, wait: bool) -> Job | None:
    original = await registry.get(job_id)
    async with inspecting(registry, kept=is_kept(original.spec.outputs)) as inspector:
        made = await inspector.resume(job_id, actor=actor(), dry_run=dry_run)
    if made.job is None:
        _print_plan(made, original)
        return None
    if wait:
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
