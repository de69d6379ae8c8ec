"""`holdfast resume`: make the missing outputs of a job, in a new job."""

import click
from msgspec import Struct

from holdfast.cli.bulk import run_many
from holdfast.cli.bulk_options import Chosen, bulk_options
from holdfast.cli.exit_codes import outcome_exit
from holdfast.cli.inspector import chosen_inspector, in_output_store
from holdfast.cli.job_argument import run_for_job
from holdfast.cli.log_printer import follow_to_verdict
from holdfast.cli.options import outputs_option, store_option
from holdfast.cli.output_summary import output_counts
from holdfast.cli.terminal import count, hint, note, say
from holdfast.cli.terminal_escape import plain
from holdfast.core.bulk import BulkVerb
from holdfast.core.job import Job
from holdfast.ports import Registry, Resumption
from holdfast.sdk.defaults import actor


@click.command()
@bulk_options
@click.option("--dry-run", is_flag=True, help="Only list what would be made again.")
@click.option("--again", is_flag=True, help="Make a new job even while another one resumes it.")
@click.option("--wait", is_flag=True, help="Follow the output of the new job; exit with its exit code.")
@outputs_option
@store_option
def resume(chosen: Chosen, *, dry_run: bool, again: bool, wait: bool) -> None:
    """Make new jobs for the missing outputs of ended jobs, and print their ids.

    The outputs are validated first. The new job is the same work, and promises only the missing outputs;
    each of the two names the other in its status. When it is done, the old job is validated again.

    Of a study exactly the missing tasks are run. A command cannot be split: it runs again as it is, and
    writes everything again, unless it reads HOLDFAST_MISSING, which lists the missing paths, one a line.
    Managed outputs are all made again, by the handler that makes them.

    Until the new job has ended, a second resume returns the same job, unless you give --again. Of many
    jobs the old and the new id are printed.

    \b
      holdfast resume --dry-run JOB
      id=$(holdfast resume JOB)
    """
    if dry_run and wait:
        raise click.UsageError("A dry run makes no job to wait for.")
    job_id = chosen.one
    if job_id is None:
        if wait:
            raise click.UsageError("--wait follows one job: name it.")
        raise SystemExit(run_many(BulkVerb.RESUME, chosen, again=again, dry_run=dry_run))
    options = _Options(dry_run=dry_run, again=again, wait=wait)
    job = run_for_job(job_id, lambda registry, found: _resume(registry, found, options))
    if wait and job is not None:
        raise SystemExit(outcome_exit(job))


class _Options(Struct, frozen=True, kw_only=True):
    dry_run: bool
    again: bool
    wait: bool


async def _resume(registry: Registry, job_id: str, options: _Options) -> Job | None:
    original = await registry.status(job_id)
    async with chosen_inspector(registry, stored=in_output_store(original.spec.outputs)) as inspector:
        resumption = await inspector.resume(
            job_id, actor=actor(), dry_run=options.dry_run, again=options.again
        )
    if resumption.job is None:
        if resumption.missing:
            _print_plan(resumption, original)
        else:
            note(f"Nothing is missing: {plain(output_counts(await registry.status(job_id)) or '')}.")
        return None
    if resumption.earlier:
        note(f"{job_id} is resumed by {resumption.job.job_id} already ({resumption.job.state}).")
        hint(f"Make another beside it: holdfast resume --again {job_id}")
    if options.wait:
        return await follow_to_verdict(registry, resumption.job.job_id)
    click.echo(resumption.job.job_id)
    hint(
        f"It makes {count(resumption.missing, 'output')}."
        f" Execute it: holdfast worker -q {resumption.job.spec.queue}\n"
        f"Follow it:  holdfast logs -f {resumption.job.job_id}"
    )
    return resumption.job


def _print_plan(resumption: Resumption, original: Job) -> None:
    total = original.spec.promised_outputs
    say(f"{resumption.missing:,} of {total:,} outputs would be made again:")
    for name in resumption.names:
        click.echo(f"  {plain(name)}")
    more = resumption.missing - len(resumption.names)
    if more > 0:
        say(f"  and {more:,} more: holdfast outputs --missing {original.job_id}")
