"""How text fits a terminal: which columns of a table stay, how wide each is, and where lines are broken.

Nothing is printed here. A width of None is that of a pipe or a file: nothing is left out, cut or wrapped.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

GAP = 2
INDENT = 4
EMPTY = "-"
_LAST_LEAST = 24
_COMMAND = re.compile(r"(?<=: )holdfast [^\n]*[^\n.]$", re.MULTILINE)
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_UNBROKEN = "\0"


class Column(Struct, frozen=True):
    """A column of a table.

    `least` is the width that it may be cut to; without it, it is shown whole. Where not all columns fit,
    that of the highest `rank` is left out first; one of rank 0 always stays. The last column takes the
    rest of the width and is wrapped at words, never cut: where less than its `least` is left for it, or
    less than its longest word, it is written beneath its row, or left out if its rank says so.
    """

    name: str
    rank: int = 0
    least: int | None = None


class Place(Struct, frozen=True):
    """A column in the row: its number, its width, and whether it is never cut."""

    number: int
    width: int
    whole: bool


class Layout(Struct, frozen=True):
    """The columns in the row; `beneath` says that the last column is written under it."""

    places: tuple[Place, ...]
    width: int | None = None
    beneath: bool = False

    def lines(self, cells: Sequence[str]) -> list[list[str]]:
        """Return the lines of one row, each as its cells, padded."""
        if self.width is None or (not self.beneath and not self._has_last(cells)):
            return [[_padded(cells[place.number], place) for place in self.places]]
        if self.beneath:
            row = [_padded(cells[place.number], place) for place in self.places]
            return [row, *self._under(cells[-1])]
        row = [_padded(cells[place.number], place) for place in self.places[:-1]]
        used = sum(text_width(cell) + GAP for cell in row)
        first, *more = wrap(cells[-1], self.width - used)
        if any(text_width(line) > self.width - used for line in (first, *more)):
            return [row, *self._under(cells[-1])]
        return [[*row, first], *([" " * (used - GAP), line] if row else [line] for line in more)]

    def _under(self, last: str) -> list[list[str]]:
        assert self.width is not None  # in a pipe, all is in the row
        lines = wrap(last, self.width - INDENT) if last != EMPTY else []
        return [[" " * INDENT + line] for line in lines]

    def has_columns_of(self, other: "Layout") -> bool:
        """Return whether the same columns are shown, in the row and under it."""
        numbers, others = ([place.number for place in one.places] for one in (self, other))
        return (numbers, self.beneath) == (others, other.beneath)

    def _has_last(self, cells: Sequence[str]) -> bool:
        return bool(self.places) and self.places[-1].number == len(cells) - 1


def fit(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> Layout:
    """Return the layout of these rows, and of their header, for a terminal of this width."""
    names = [column.name for column in columns]
    natural = [max(text_width(row[n]) for row in (names, *rows)) for n in range(len(columns))]
    order = list(range(len(columns)))
    if width is None or _total(natural, order) <= width:
        return Layout(_places(columns, natural, order, cutting=width is not None), width)
    least = [_least(column, most) for column, most in zip(columns, natural, strict=True)]
    words = max((text_width(word) for row in rows for word in row[-1].split(" ")), default=0)
    least[-1] = min(natural[-1], max(columns[-1].least or _LAST_LEAST, words))
    shown = _that_fit(columns, least, order, width)
    beneath = _total(least, shown) > width and len(order) > 1
    if beneath:
        shown = _that_fit(columns, least, order[:-1], width)
    widths = _grown(natural, least, shown, width)
    return Layout(_places(columns, widths, shown, cutting=True), width, beneath)


def fixed(*columns: tuple[str, int]) -> Layout:
    """Return the layout for a pipe whose rows come one by one: names and widths of the columns."""
    places = (Place(n, width, whole=True) for n, (_, width) in enumerate(columns))
    return Layout(tuple(places))


def _that_fit(columns: Sequence[Column], least: Sequence[int], order: Sequence[int], width: int) -> list[int]:
    """Return the columns that are left when those of the highest rank were taken out until they fit."""
    shown = list(order)
    while _total(least, shown) > width:
        worst = max(shown, key=lambda n: columns[n].rank)
        if columns[worst].rank == 0:
            break
        shown.remove(worst)
    return shown


def _grown(natural: Sequence[int], least: Sequence[int], shown: Sequence[int], width: int) -> list[int]:
    """Return the widths of all columns, after the room that is left was shared evenly."""
    widths = list(least)
    room = width - _total(widths, shown)
    while room > 0 and (growing := [n for n in shown if widths[n] < natural[n]][:room]):
        for n in growing:
            widths[n] += 1
        room -= len(growing)
    return widths


def _least(column: Column, natural: int) -> int:
    return natural if column.least is None else min(natural, max(column.least, text_width(column.name)))


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[n] for n in shown) + GAP * (len(shown) - 1)


def _places(
    columns: Sequence[Column], widths: Sequence[int], shown: Sequence[int], *, cutting: bool
) -> tuple[Place, ...]:
    return tuple(Place(n, widths[n], not cutting or columns[n].least is None) for n in shown)


def _padded(text: str, place: Place) -> str:
    shown = text if place.whole else cut(text, place.width)
    return shown + " " * (place.width - text_width(shown))


def text_width(text: str) -> int:
    """Return how many columns of a terminal the text takes; colours take none."""
    if text.isascii() and "\x1b" not in text:
        return len(text)
    from rich.cells import cell_len

    return cell_len(_ESCAPE.sub("", text))


def cut(text: str, most: int) -> str:
    """Return the text, cut to a width with an ellipsis where it is longer."""
    if text_width(text) <= most:
        return text
    kept = text[: max(most - 1, 0)]
    while text_width(kept) > most - 1:
        kept = kept[:-1]
    return kept + "…"


def wrap(text: str, width: int | None, *, indent: int = 0) -> list[str]:
    """Return the lines of the text, broken between words; those after the first are indented.

    No word is broken, and no command at the end of a line that is to be typed as it stands, unless it is
    longer than the width.
    """
    lines: list[str] = []
    for line in text.split("\n"):
        if width is None or text_width(line) <= width:
            lines.append(line)
        else:
            whole = _COMMAND.sub(lambda found: _unbroken(found.group(), width - indent), line)
            lines += _broken(whole, width, " " * indent)
    return lines


def _unbroken(command: str, width: int) -> str:
    return command.replace(" ", _UNBROKEN) if text_width(command) <= width else command


def _broken(text: str, width: int, indent: str) -> list[str]:
    lines, line = [], ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if line.strip() and text_width(longer) > width:
            lines.append(line.rstrip())
            line = indent + word
        else:
            line = longer
    return [line.replace(_UNBROKEN, " ") for line in (*lines, line)]
