"""Printing for people: tables and colours on a terminal, plain aligned lines in a pipe or a file."""

import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

import click

from holdfast.cli.terminal_escape import plain

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

EMPTY = "-"
STYLES: dict[str, str] = {
    "queued": "blue",
    "assigned": "cyan",
    "running": "cyan",
    "aggregating": "cyan",
    "validating": "cyan",
    "succeeded": "green",
    "partial_success": "yellow",
    "cancelled": "yellow",
    "failed": "red",
    "timeout": "red",
    "dead_lettered": "red",
}


def on_terminal(*, err: bool = False) -> bool:
    """Return whether the stream is a terminal, read by a person."""
    return (sys.stderr if err else sys.stdout).isatty()


@cache
def console(*, err: bool = False) -> "Console":
    """Return a rich console that prints text as it is: no markup, no emoji, no guessing. Heeds NO_COLOR."""
    from rich.console import Console

    return Console(stderr=err, markup=False, emoji=False, highlight=False)


def hint(words: str) -> None:
    """Print what to do next on stderr, only on a terminal."""
    if on_terminal(err=True):
        console(err=True).print(words, style="dim", soft_wrap=True)


def note(words: str) -> None:
    """Print something beside the result on stderr, terminal or not."""
    click.echo(words, err=True)


def facts(pairs: Sequence[tuple[str, str | None]]) -> None:
    """Print one fact a line; those without a value are left out."""
    if on_terminal():
        console().print(facts_table(pairs))
        return
    shown = [(name, plain(value)) for name, value in pairs if value]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"{name:<{width}}  {value}")


def facts_table(pairs: Sequence[tuple[str, str | None]]) -> "RenderableType":
    """Return the facts as a table of rich."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        if value:
            table.add_row(name, _cell(value))
    return table


def rows(headers: Sequence[str], lines: Sequence[Sequence[str | None]], *, header: bool = True) -> None:
    """Print a table. Only what would exceed the width of a terminal is cut."""
    cells = [[plain(cell or EMPTY) for cell in line] for line in lines]
    shown = [list(headers), *cells]
    widths = [max(len(line[n]) for line in shown) for n in range(len(headers) - 1)] + [0]
    if header:
        columns(list(zip(headers, widths, strict=True)), style="bold", crop=True)
    for line in cells:
        columns(list(zip(line, widths, strict=True)), crop=True)


def columns(parts: Sequence[tuple[str, int]], *, style: str = "", crop: bool = False) -> None:
    """Print one line of cells with their widths."""
    cells = [f"{plain(text):<{width}}" for text, width in parts]
    if not on_terminal():
        click.echo("  ".join(cells).rstrip())
        return
    from rich.text import Text

    shown = [Text(cell, style=style or STYLES.get(cell.strip(), "")) for cell in cells]
    row = Text("  ").join(shown)
    row.rstrip()
    console().print(row, soft_wrap=not crop, no_wrap=crop, overflow="ellipsis" if crop else None)


def _cell(value: str) -> "Text":
    from rich.text import Text

    return Text(plain(value), style=STYLES.get(value.partition(" ")[0].rstrip(","), ""))


def clock(instant: datetime | None) -> str | None:
    """Return an instant as text, in UTC and always of the same width."""
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}" if instant else None


def age(length: timedelta) -> str:
    """Return a duration in as few characters as possible: 5s, 12m, 3h, 9d."""
    seconds = max(0, int(length.total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def count(number: int, noun: str) -> str:
    """Return `1 job`, `2 jobs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shorten(text: str, most: int) -> str:
    """Return the text cut to a width, with an ellipsis where it was cut."""
    clean = plain(text)
    return clean if len(clean) <= most else clean[: most - 1] + "…"
