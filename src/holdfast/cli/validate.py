"""`holdfast validate`: validate the outputs of a job now, or override the verdict."""

import click

from holdfast.cli.bulk import run_many
from holdfast.cli.bulk_options import Chosen, bulk_options
from holdfast.cli.exit_codes import ExitCode, outcome_exit
from holdfast.cli.inspector import chosen_inspector, in_output_store
from holdfast.cli.job_argument import run_for_job
from holdfast.cli.options import outputs_option, store_option
from holdfast.cli.output_summary import verdict_words
from holdfast.cli.progress import with_progress_bar
from holdfast.cli.terminal import hint, note, say
from holdfast.cli.terminal_escape import plain
from holdfast.core.bulk import BulkVerb
from holdfast.core.errors import Conflict
from holdfast.core.job import Job
from holdfast.core.state import State
from holdfast.ports import Inspector, Registry
from holdfast.sdk.defaults import actor

_WAIT_SECONDS = 1.0
_OVERRIDES = click.Choice([State.SUCCEEDED.value, State.FAILED.value])


@click.command()
@bulk_options
@click.option("--force", is_flag=True, help="Validate now, though it is not due.")
@click.option(
    "--override", type=_OVERRIDES, help="End a validating job with this verdict, whatever is there."
)
@click.option("--reason", help="Why it is overridden; stored with the job.")
@outputs_option
@store_option
def validate(chosen: Chosen, *, force: bool, override: str | None, reason: str | None) -> None:
    """Validate the promised outputs of jobs; the verdict is succeeded, partial_success or failed.

    Workers and servers do this by themselves, when the work is done and, for what is missing, now and
    then later; --force does not wait for that. If no worker or server can see the outputs of a validating
    job and you know what became of them, --override sets the verdict, under your name and with your
    reason. A partial success cannot be overridden: it has succeeded when its outputs are there.

    A job that failed, was cancelled, timed out or is a dead letter stays that; which of its outputs are
    there is recorded with it, and `holdfast resume` makes the others.

    It exits with 0 when the job has succeeded, and with 75 when its outputs could not be seen. Of many
    jobs it prints each with its new state, and exits with 0 if all could be validated.
    """
    if override is None and reason is not None:
        raise click.UsageError("--reason goes with --override.")
    if override is not None and force:
        raise click.UsageError("--force validates, --override does not: choose one.")
    if override is not None and not (reason or "").strip():
        raise click.UsageError("An override needs a reason: add --reason TEXT.")
    job_id = chosen.one
    if job_id is None:
        if override is not None:
            raise click.UsageError("One job at a time is overridden.")
        raise SystemExit(run_many(BulkVerb.VALIDATE, chosen, force=force))
    if override is not None:
        verdict = State(override)
        job = run_for_job(job_id, lambda registry, found: _override(registry, found, verdict, reason or ""))
        raise SystemExit(outcome_exit(job))
    job = run_for_job(job_id, lambda registry, found: _validate(registry, found, force=force))
    raise SystemExit(_exit(job))


async def _override(registry: Registry, job_id: str, verdict: State, reason: str) -> Job:
    seen = await registry.status(job_id)
    job = await registry.complete_validation(
        job_id, actor=actor(), version=seen.version, override=verdict, reason=reason
    )
    say(f"{job.state}: overridden by {plain(actor())}.")
    return job


async def _validate(registry: Registry, job_id: str, *, force: bool) -> Job:
    before = await registry.status(job_id)
    if not before.ended and before.state is not State.VALIDATING:
        raise Conflict(f"Job {job_id} is {before.state}: its work is not done.", job_id=job_id)
    async with chosen_inspector(registry, stored=in_output_store(before.spec.outputs)) as inspector:
        job = await with_progress_bar(registry, job_id, _validated(registry, inspector, job_id, force=force))
    if job.state is State.VALIDATING:
        note(plain(await registry.why(job_id)))
        if job == before:
            hint(f"Validate at once: holdfast validate {job_id} --force")
        return job
    say(plain(verdict_words(job)))
    if job.unvalidated and (job.check is None or job.check.reason is None):
        note(plain(await registry.why(job_id)))
    elif job.check is not None and job.check.reason is not None:
        note(f"They could not be seen just now: {plain(job.check.reason)}")
    elif job.check is not None and job.check == before.check and not force:
        note(f"It is not due for validation. Validate at once: holdfast validate {job_id} --force")
    if job.resumable:
        hint(f"Make what is missing: holdfast resume {job_id}")
    return job


async def _validated(registry: Registry, inspector: Inspector, job_id: str, *, force: bool) -> Job:
    """Return the job after its validation. A server may return earlier and go on: then wait for it."""
    job = await inspector.validate(job_id, actor=actor(), force=force)
    while job.check is not None and job.check.until is not None:
        if job.check.until <= await registry.now():
            break
        await registry.changes(since=registry.change_mark(), timeout=_WAIT_SECONDS)
        job = await registry.status(job_id)
    return job


def _exit(job: Job) -> int:
    unseen = job.check is not None and job.check.reason is not None
    if job.state is State.VALIDATING or job.unvalidated or unseen:
        return ExitCode.UNAVAILABLE
    return outcome_exit(job)
