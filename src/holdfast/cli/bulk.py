"""One command on many jobs: count them, ask, run the plan, and say what came of it."""

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing

import click
from msgspec.structs import replace

from holdfast.cli.bulk_options import Chosen
from holdfast.cli.exit_codes import ExitCode, error_exit
from holdfast.cli.inspector import chosen_inspector, in_output_store
from holdfast.cli.job_argument import job_ids_of
from holdfast.cli.options import chosen_store
from holdfast.cli.session import run
from holdfast.cli.terminal import confirm, console, count, note, on_terminal
from holdfast.cli.terminal_escape import plain
from holdfast.core.bulk import BulkEffect, BulkPlan, BulkResult, BulkVerb
from holdfast.core.job import Job
from holdfast.ports import Inspector, Registry
from holdfast.registry.bulk import BulkReport, plan_bulk, planned_jobs, run_bulk
from holdfast.sdk.defaults import actor
from holdfast.sdk.store_url import shown_url
from holdfast.system import SystemIds

_DONE = {
    BulkVerb.CANCEL: "Cancelled, or asked to stop,",
    BulkVerb.REPLAY: "Replayed",
    BulkVerb.VALIDATE: "Validated",
    BulkVerb.RESUME: "Resumed",
}


def run_many(
    verb: BulkVerb,
    chosen: Chosen,
    *,
    noun: str = "job",
    again: bool = False,
    force: bool = False,
    reason: str | None = None,
    reason_code: str | None = None,
    dry_run: bool = False,
    check: Callable[[Job], object] | None = None,
) -> int:
    """Do this to all chosen jobs; return the exit code. `check` may refuse them all before the first."""

    async def work(registry: Registry) -> int:
        named = await job_ids_of(registry, chosen.job_ids)
        selection = replace(chosen.selection(await registry.now()), job_ids=named, reason_code=reason_code)
        plan = await plan_bulk(
            registry, SystemIds(), verb, selection, again=again, force=force, reason=reason
        )
        many = 0
        async with aclosing(_pending(registry, plan, check)) as pages:
            async for job_ids in pages:
                many += len(job_ids)
                if dry_run:
                    click.echo("".join(f"{plain(job_id)}\n" for job_id in job_ids), nl=False)
        if dry_run:
            note(f"Would {verb} {count(many, noun)}; nothing was changed.")
            return ExitCode.DONE
        if not many and not chosen.job_ids:
            note(f"There is no {noun} to {verb} among them; nothing was changed.")
            return ExitCode.DONE
        if not chosen.job_ids and not chosen.yes and at_prompt():
            store = plain(shown_url(chosen_store()))
            confirm(f"{str(verb).capitalize()} {count(many, noun)} in {store}?")
        return await _run(registry, plan, many, noun)

    return run(work)


def at_prompt() -> bool:
    """Return whether a person is there to be asked."""
    return on_terminal() and sys.stdin.isatty()


async def _pending(
    registry: Registry, plan: BulkPlan, check: Callable[[Job], object] | None
) -> AsyncGenerator[list[str], None]:
    """Yield the ids of the jobs of the plan, without those that have been replayed already."""
    async with aclosing(planned_jobs(registry, plan)) as pages:
        async for page in pages:
            for one in page:
                if check is not None and one.job is not None:
                    check(one.job)
            job_ids = [one.job_id for one in page]
            if plan.verb is BulkVerb.REPLAY and not plan.again:
                replays = await registry.replays(job_ids)
                job_ids = [one for one, made in zip(job_ids, replays, strict=True) if not made]
            yield job_ids


async def _run(registry: Registry, plan: BulkPlan, many: int, noun: str) -> int:
    """Run the plan; print each result, and the sum of them also when it breaks off."""
    report, code = BulkReport(), ExitCode.DONE.value
    async with AsyncExitStack() as stack:
        inspectors: dict[bool, Inspector] = {}

        async def inspect(job: Job) -> Inspector:
            stored = in_output_store(job.spec.outputs)
            if stored not in inspectors:
                opened = chosen_inspector(registry, stored=stored)
                inspectors[stored] = await stack.enter_async_context(opened)
            return inspectors[stored]

        stack.callback(lambda: _print_report(plan.verb, report, noun))
        advance = _progress(stack, many)
        async for results in run_bulk(registry, plan, actor=actor(), inspect=inspect):
            for one in results:
                report.add(one)
                _print_result(plan.verb, one)
                if one.error is not None:
                    code = code or error_exit(one.error)
            advance(len(results))
    return code


def _progress(stack: AsyncExitStack, many: int) -> Callable[[int], None]:
    """Show a progress bar on a terminal; return what moves it."""
    if not on_terminal(err=True):
        return lambda _: None
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=console(err=True), transient=True)
    stack.enter_context(progress)
    bar = progress.add_task("", total=many)
    return lambda more: progress.advance(bar, more)


def _print_result(verb: BulkVerb, one: BulkResult) -> None:
    """Print a line for each job that has become another one, or another state."""
    if one.effect is not BulkEffect.DONE or one.job is None:
        return
    if verb is BulkVerb.VALIDATE:
        click.echo(f"{plain(one.job_id)}  {one.job.state}")
    elif one.other_id is not None:
        click.echo(f"{plain(one.job_id)}  {plain(one.other_id)}")


def _print_report(verb: BulkVerb, report: BulkReport, noun: str) -> None:
    already = {
        BulkVerb.CANCEL: "cancelled already, or asked to stop",
        BulkVerb.REPLAY: "replayed before: --again replays them too",
        BulkVerb.VALIDATE: "not due: --force validates them too",
        BulkVerb.RESUME: "resumed already, or lack nothing",
    }
    note(f"{_DONE[verb]} {count(report.done, noun)}.")
    if report.already:
        note(f"Passed over {count(report.already, noun)}: {already[verb]}.")
    if report.refused:
        note(f"Refused {count(report.refused, noun)}:")
    for reason, many in report.reasons.items():
        note(f"  {many:,} x {plain(reason)}")
