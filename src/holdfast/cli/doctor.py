"""`holdfast doctor`: what this store guarantees, what it does not, and what to do about it."""

import asyncio
from collections.abc import Sequence

import click

from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.json_output import print_json
from holdfast.cli.options import chosen_store, store_option
from holdfast.cli.session import advice
from holdfast.cli.terminal import console, count, on_terminal, say
from holdfast.cli.terminal_escape import plain
from holdfast.core.errors import HoldfastError
from holdfast.ports import Finding, Level
from holdfast.sdk.open import doctor_store

_STYLES: dict[Level, str] = {"good": "green", "note": "blue", "warning": "yellow", "fault": "red"}
_WORSE: tuple[Level, ...] = ("warning", "fault")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The findings as one JSON object.")
@store_option
def doctor(*, as_json: bool) -> None:
    """Report what this store guarantees and what it does not, with advice.

    It opens the store as every command does, and then only reads; a PostgreSQL server is checked even
    before holdfast has tables there. Exits with 0 when there is no fault, else with 1. A store that
    cannot be opened is reported as by every command, with its exit code.
    """
    try:
        found = asyncio.run(doctor_store(chosen_store()))
    except (HoldfastError, OSError) as error:
        if as_json:
            words = error.message if isinstance(error, HoldfastError) else str(error)
            print_json(_document([Finding("store", "fault", words, advice(error))]))
        raise
    if as_json:
        print_json(_document(found))
    else:
        _print(found)
    if any(finding.level == "fault" for finding in found):
        raise SystemExit(ExitCode.NO)


def _document(found: Sequence[Finding]) -> dict[str, object]:
    return {
        "verdict": verdict(found),
        "faults": len(_of_level(found, "fault")),
        "warnings": len(_of_level(found, "warning")),
        "findings": [
            {"topic": f.topic, "level": f.level, "words": f.words, "advice": f.advice} for f in found
        ],
    }


def _of_level(found: Sequence[Finding], level: Level) -> list[Finding]:
    return [finding for finding in found if finding.level == level]


def verdict(found: Sequence[Finding]) -> str:
    """Return the findings in one line; a single fault or warning in full. Only a store that was found to
    be durable is called so."""
    faults, warnings = _of_level(found, "fault"), _of_level(found, "warning")
    if not faults and not warnings:
        durable = any(finding.topic == "durability" for finding in _of_level(found, "good"))
        return "This store keeps what it acknowledges." if durable else "No faults, no warnings."
    worst = faults or warnings
    line = count(len(worst), "fault" if faults else "warning")
    if len(worst) == 1:
        line += f": {worst[0].words}"
    else:
        line += f": {', '.join(dict.fromkeys(finding.topic for finding in worst))}."
    return f"{line} And {count(len(warnings), 'warning')}." if faults and warnings else line


def _print(found: Sequence[Finding]) -> None:
    if on_terminal():
        _print_table(found)
        return
    wide = max((len(finding.topic) for finding in found), default=0)
    for f in found:
        advice = f" {f.advice}" if f.advice else ""
        click.echo(plain(f"{f.level:<7}  {f.topic:<{wide}}  {f.words}{advice}"))
    say(plain(verdict(found)))


def _print_table(found: Sequence[Finding]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for f in found:
        words = Text(plain(f.words))
        if f.advice:
            words.append(f"\n{plain(f.advice)}", style="dim")
        table.add_row(Text(f.level, style=_STYLES[f.level]), f.topic, words)
    worst: Level = "good"
    for level in _WORSE:
        worst = level if _of_level(found, level) else worst
    console().print(table)
    console().print()
    console().print(Text(plain(verdict(found)), style=f"bold {_STYLES[worst]}"))
