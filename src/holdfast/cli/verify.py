"""`holdfast verify`: derive every job from its log again, and compare."""

import click

from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.json_output import print_json
from holdfast.cli.options import store_option
from holdfast.cli.session import run
from holdfast.cli.terminal import count, note, say
from holdfast.cli.terminal_escape import plain
from holdfast.ports import Verification

_SHOWN = 20


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The findings as one JSON object.")
@store_option
def verify(*, as_json: bool) -> None:
    """Derive every job from its log again and compare it with what is stored.

    Exits with 0 when all are equal and every transition has its event, else with 1.
    """
    found = run(lambda registry: registry.verify())
    if as_json:
        print_json(_document(found))
    else:
        _print(found)
    if not found.equal:
        raise SystemExit(ExitCode.NO)


def _document(found: Verification) -> dict[str, object]:
    return {
        "jobs": found.jobs,
        "transitions": found.transitions,
        "events": found.events,
        "control": found.control,
        "equal": found.equal,
        "mismatches": [{"job_id": m.job_id, "details": m.details} for m in found.mismatches],
    }


def _print(found: Verification) -> None:
    size = f"{count(found.jobs, 'job')}, {count(found.transitions, 'transition')}"
    size += f", {count(found.events, 'transition event')}"
    if found.equal:
        say(f"{size}: equal. Every record is what its log says.")
        return
    say(f"{size}: NOT equal.")
    if found.transitions != found.events:
        say("The number of transitions and the number of their events differ.")
    for mismatch in found.mismatches[:_SHOWN]:
        for detail in mismatch.details:
            click.echo(f"{plain(mismatch.job_id)}  {plain(detail)}")
    if len(found.mismatches) > _SHOWN:
        say(f"and {count(len(found.mismatches) - _SHOWN, 'more job')}.")
    note("Keep the store as it is, and compare: holdfast events JOB shows the log of one.")
