"""`holdfast status`: one job, in full."""

import click

from holdfast.cli.costs import cost_fields, cost_words, job_cost
from holdfast.cli.exit_codes import outcome_exit
from holdfast.cli.job_argument import job_argument, run_for_job
from holdfast.cli.job_view import Facts, job_facts, links_of, print_traceback
from holdfast.cli.json_output import print_json
from holdfast.cli.layout import fixed
from holdfast.cli.options import store_option
from holdfast.cli.terminal import clock, console, facts, facts_text, on_terminal, row
from holdfast.core.catalogue import EventType
from holdfast.core.cost import last_attempt_duration
from holdfast.core.documents import job_document
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.state import State
from holdfast.ports import Registry

REFRESH_SECONDS = 2.0
_STEPS = fixed(("TIME", 20), ("STATE", 15), ("ATTEMPT", 11), ("REASON", 0))
"""The lines of a job that is followed in a pipe."""


@click.command()
@job_argument
@click.option("--watch", "-w", is_flag=True, help="Follow until the job ends; exit with its exit code.")
@click.option("--json", "as_json", is_flag=True, help="The whole record as one JSON object.")
@store_option
def status(job_id: str, *, watch: bool, as_json: bool) -> None:
    """Show one job: state, attempt, owner, lease, budgets, times, outcome and why."""
    if watch:
        job = run_for_job(job_id, lambda registry, found: _watch(registry, found, as_json=as_json))
        if not as_json:
            print_traceback(job)
        raise SystemExit(outcome_exit(job))
    run_for_job(job_id, lambda registry, found: _show(registry, found, as_json=as_json))


async def _show(registry: Registry, job_id: str, *, as_json: bool) -> None:
    job = await registry.status(job_id)
    if as_json:
        print_json(await _document(registry, job))
    else:
        facts(await _job_facts(registry, job))
        print_traceback(job)


async def _job_facts(registry: Registry, job: Job) -> Facts:
    history, now = await registry.history(job.job_id), await registry.now()
    return job_facts(
        job,
        now,
        why=await registry.why(job.job_id),
        links=await links_of(registry, job),
        took=last_attempt_duration(history, now),
        cost=cost_words(job, job_cost(history, now)),
    )


async def _document(registry: Registry, job: Job) -> dict[str, object]:
    history = await registry.history(job.job_id)
    return {**job_document(job), **cost_fields(job_cost(history, await registry.now()))}


async def _watch(registry: Registry, job_id: str, *, as_json: bool) -> Job:
    """Refresh in place on a terminal; else one line for every transition, or one JSON object."""
    if on_terminal() and not as_json:
        return await _watch_live(registry, job_id)
    shown = 0
    async for event in registry.watch(job_id):
        if event.to_state is None and event.event_type != EventType.OUTPUTS_UNSEEN:
            continue
        if not as_json:
            _print_step(event)
        elif (job := await registry.status(job_id)).version != shown:
            print_json(await _document(registry, job), indent=False)
            shown = job.version
    return await registry.status(job_id)


def _print_step(event: Event) -> None:
    words = event.reason or (f"by {event.actor}" if event.actor else "")
    at = clock(event.occurred_at) or ""
    state = event.to_state or State.VALIDATING
    row(_STEPS, [at, state, f"attempt {event.attempt}", words])


async def _watch_live(registry: Registry, job_id: str) -> Job:
    from rich.live import Live

    with Live(console=console(), auto_refresh=False) as live:
        while True:
            mark = registry.change_mark()
            job = await registry.status(job_id)
            live.update(facts_text(await _job_facts(registry, job)), refresh=True)
            if job.ended:
                return job
            await registry.changes(since=mark, timeout=REFRESH_SECONDS)
