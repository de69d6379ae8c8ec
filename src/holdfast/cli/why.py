"""`holdfast why`: why a job is in its state."""

import click

from holdfast.cli.job_argument import job_argument, run_for_job
from holdfast.cli.job_view import call
from holdfast.cli.options import store_option
from holdfast.cli.terminal import say
from holdfast.cli.terminal_escape import plain
from holdfast.ports import Registry


@click.command()
@job_argument
@store_option
def why(job_id: str) -> None:
    """Explain in a sentence or two why a job is in its state, and what happens next."""
    shown, words = run_for_job(job_id, _explain)
    if shown is not None:
        say(shown)
    say(plain(words))


async def _explain(registry: Registry, job_id: str) -> tuple[str | None, str]:
    """Return the call of a function, and why the job is in its state."""
    return call(await registry.status(job_id)), await registry.why(job_id)
