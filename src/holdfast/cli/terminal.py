"""Printing for people: tables and colours on a terminal, plain aligned lines in a pipe or a file."""

import os
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

import click

from holdfast.cli.layout import EMPTY, GAP, Column, Layout, fit, wrap
from holdfast.cli.terminal_escape import plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_WIDTH_DEFAULT = 80
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


def width(*, err: bool = False) -> int | None:
    """Return how many columns the terminal has; None for a pipe or a file, where nothing is wrapped."""
    if not on_terminal(err=err):
        return None
    set_by_hand = os.environ.get("COLUMNS", "")
    if set_by_hand.isdecimal() and int(set_by_hand):
        return int(set_by_hand)
    try:
        return os.get_terminal_size((sys.stderr if err else sys.stdout).fileno()).columns or _WIDTH_DEFAULT
    except (OSError, ValueError):
        return _WIDTH_DEFAULT


def say(words: str, *, err: bool = False) -> None:
    """Print sentences, wrapped at words on a terminal."""
    click.echo("\n".join(wrap(words, width(err=err))), err=err)


def note(words: str) -> None:
    """Print something beside the result on stderr, terminal or not."""
    say(words, err=True)


def hint(words: str) -> None:
    """Print what to do next on stderr, only on a terminal."""
    if on_terminal(err=True):
        lines = wrap(words, width(err=True))
        console(err=True).print("\n".join(lines), style="dim", soft_wrap=True)


def confirm(question: str, *, abort: bool = True) -> bool:
    """Return whether the answer is yes; with `abort`, end the command if it is not."""
    columns = width(err=True)
    room = None if columns is None else columns - len(" [y/N]: ")
    return click.confirm("\n".join(wrap(question, room)), abort=abort, err=True)


def facts(pairs: Sequence[tuple[str, str | None]]) -> None:
    """Print one fact a line; those without a value are left out."""
    if on_terminal():
        console().print(facts_text(pairs), soft_wrap=True)
        return
    shown = [(name, plain(value)) for name, value in pairs if value]
    wide = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"{name:<{wide}}  {value}")


def facts_text(pairs: Sequence[tuple[str, str | None]]) -> "Text":
    """Return the facts as they are shown on a terminal."""
    from rich.text import Text

    shown = [(name, value) for name, value in pairs if value]
    wide = max((len(name) for name, _ in shown), default=0) + GAP
    room, lines = (width() or _WIDTH_DEFAULT) - wide, list[Text]()
    for name, value in shown:
        style = STYLES.get(value.partition(" ")[0].rstrip(","), "")
        first, *more = wrap(plain(value), room)
        lines.append(Text.assemble((f"{name:<{wide}}", "dim"), (first, style)))
        lines += [Text(" " * wide) + Text(line, style=style) for line in more]
    return Text("\n").join(lines)


def rows(
    columns: Sequence[Column], lines: Sequence[Sequence[str | None]], *, after: Layout | None = None
) -> Layout:
    """Print a table, and return its layout: `after` that of the page before, the next needs no header."""
    cells = [[plain(cell or EMPTY) for cell in line] for line in lines]
    layout = fit(columns, cells, width())
    if after is None or (layout.width and not layout.has_columns_of(after)):
        row(layout, [column.name for column in columns], style="bold")
    for line in cells:
        row(layout, line)
    return layout


def row(layout: Layout, cells: Sequence[str | None], *, style: str = "") -> None:
    """Print one row of a table with this layout."""
    for line in layout.lines([plain(cell or EMPTY) for cell in cells]):
        if layout.width is None:
            click.echo((" " * GAP).join(line).rstrip())
            continue
        from rich.text import Text

        shown = [Text(cell, style=style or STYLES.get(cell.strip(), "")) for cell in line]
        text = Text(" " * GAP).join(shown)
        text.rstrip()
        console().print(text, soft_wrap=True)


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
