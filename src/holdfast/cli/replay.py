"""`holdfast replay`: run a job that did not succeed again, as a new job."""

import click

from holdfast.cli.bulk import at_prompt, run_many
from holdfast.cli.bulk_options import Chosen, bulk_options
from holdfast.cli.job_argument import run_for_job
from holdfast.cli.options import store_option
from holdfast.cli.terminal import confirm, hint
from holdfast.cli.terminal_escape import plain
from holdfast.core.bulk import BulkVerb
from holdfast.core.errors import Conflict
from holdfast.core.job import Job
from holdfast.ports import Registry
from holdfast.sdk.defaults import actor


@click.command()
@bulk_options
@click.option("--again", is_flag=True, help="Also what was replayed before.")
@click.option("--dry-run", is_flag=True, help="Only list what would be replayed.")
@store_option
def replay(chosen: Chosen, *, again: bool, dry_run: bool) -> None:
    """Run jobs that ended without success again, each as a new job, and print the new ids.

    The old job stays as it is; each of the two names the other in its status. A job that was replayed
    before is replayed once more only with --again, or when you confirm it.

    Of one job the new id is printed, of many the old and the new one. On a terminal it asks first, with
    their number, unless they are named.

    \b
      holdfast replay JOB
      holdfast replay --state failed --since 2h
    """
    job_id = chosen.one
    if job_id is None or dry_run:
        raise SystemExit(run_many(BulkVerb.REPLAY, chosen, again=again, dry_run=dry_run))
    job = run_for_job(job_id, lambda registry, found: _replay(registry, found, again=again or chosen.yes))
    click.echo(job.job_id)
    if job.spec.promised_outputs:
        hint(f"It promises all outputs. For the missing ones: holdfast resume {job_id}")
    hint(f"Follow it: holdfast logs -f {job.job_id}")


async def _replay(registry: Registry, job_id: str, *, again: bool) -> Job:
    """Return the new job. Of a job that was replayed before, only `again`, or when a person says so."""
    [earlier] = [[]] if again else await registry.replays([job_id])
    if earlier:
        [new] = await registry.status_many(earlier[-1:])
        state = "was pruned since" if new is None else f"is {new.state}"
        words = f"Job {job_id} was replayed as {earlier[-1]}, which {state}."
        if not (at_prompt() and confirm(f"{plain(words)} Replay it again?", abort=False)):
            raise Conflict(
                words, job_id=job_id, advice=f"To replay it again: holdfast replay --again {job_id}"
            )
    return await registry.replay(job_id, actor=actor())
