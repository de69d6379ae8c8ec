"""The plots, as SVG of our own: on a panel of their own colour, so that they read on light and dark pages."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, TOP, ROW, LEGEND = 900, 312, 100, 62, 22, 300
OURS, OURS_TOO, OTHERS, LIMIT = "#c4672b", "#8a4318", "#7ba7d7", "#b9bec5"
COLOURS = ("#1f5fa8", "#3d8f5f", "#8a5fb0", "#a8894a", "#5f9ea0", "#996b6b", "#4f6f8f", "#7a8f3d")
PANEL = "#ffffff"
_STYLE = (
    "text{font:12.5px sans-serif;fill:#24292f}.title{font-size:16px;font-weight:bold}"
    ".group{font-weight:bold}.small{font-size:11px;fill:#57606a}.grid{stroke:#d8dee4}"
    "polyline{fill:none;stroke-width:2}"
)


@dataclass(frozen=True)
class Bar:
    """A row; `value` None is a gap, and `words` say why. With `end` it is the range between the two."""

    label: str
    value: float | None
    words: str
    colour: str = OTHERS
    end: float | None = None


@dataclass(frozen=True)
class Line:
    label: str
    points: list[tuple[float, float]]
    colour: str


def bars(title: str, unit: str, groups: dict[str, list[Bar]]) -> str:
    """Horizontal bars from nothing, grouped under headings."""
    most = max((bar.value or 0.0 for rows in groups.values() for bar in rows), default=0.0) or 1.0
    space = WIDTH - LEFT - RIGHT
    parts, y = [], TOP
    for heading, rows in groups.items():
        parts.append(_text(LEFT, y + 12, heading, "start", "group"))
        y += ROW
        for bar in rows:
            long = space * (bar.value or 0.0) / most
            parts.append(_text(LEFT - 8, y + 13, bar.label, "end"))
            parts.append(_box(LEFT, y + 2, long, bar.colour))
            parts.append(_text(LEFT + long + 6, y + 13, bar.words, "start", "small"))
            y += ROW
        y += ROW // 2
    return _panel(y + 8, title, unit, parts)


def ranges(title: str, unit: str, rows: list[Bar]) -> str:
    """Bars from the one value to the other, on a logarithmic scale."""
    known = [v for bar in rows for v in (bar.value, bar.end) if v is not None and v > 0]
    low, high = (min(known), max(known)) if known else (1.0, 10.0)
    ticks = _ticks(low, high)
    space, bottom = WIDTH - LEFT - RIGHT, TOP + ROW * len(rows)

    def x(value: float) -> float:
        share = math.log(value / ticks[0]) / math.log(ticks[-1] / ticks[0])
        return LEFT + space * min(1.0, max(0.0, share))

    parts = []
    for tick in ticks:
        parts.append(
            f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{TOP - 6}" y2="{bottom}"/>'
        )
        parts.append(_text(x(tick), bottom + 16, f"{tick:g}", "middle", "small"))
    for n, bar in enumerate(rows):
        y = TOP + ROW * n
        parts.append(_text(LEFT - 8, y + 13, bar.label, "end"))
        at = LEFT + 6.0
        if bar.value and bar.end:
            parts.append(_box(x(bar.value), y + 2, max(3.0, x(bar.end) - x(bar.value)), bar.colour))
            at = x(bar.end) + 6
        parts.append(_text(at, y + 13, bar.words, "start", "small"))
    return _panel(bottom + 30, title, unit, parts)


def lines(title: str, unit: str, names: Sequence[str], drawn: list[Line]) -> str:
    """Lines over named places, from nothing upwards; each line has its name at its end."""
    left, height, bottom = 80, 300, TOP + 300
    most = _round_up(max((y for line in drawn for _, y in line.points), default=0.0))
    step = (WIDTH - left - LEGEND) / max(1, len(names) - 1)
    parts = []
    for n in range(5):
        y = bottom - height * n / 4
        parts.append(f'<line class="grid" x1="{left}" x2="{WIDTH - LEGEND}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(left - 8, y + 4, f"{most * n / 4:,g}", "end", "small"))
    for n, name in enumerate(names):
        anchor = "end" if n and n == len(names) - 1 else "middle"
        parts.append(_text(left + step * n, bottom + 18, name, anchor, "small"))
    taken: list[float] = []
    for line in sorted(drawn, key=lambda one: -one.points[-1][1] if one.points else 0.0):
        places = [(left + step * x, bottom - height * y / most) for x, y in line.points]
        if not places:
            continue
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" stroke="{line.colour}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{line.colour}"/>' for x, y in places]
        spot = max([places[-1][1] + 4, *(y + 14 for y in taken[-1:])])
        taken.append(spot)
        parts.append(
            f'<rect x="{WIDTH - LEGEND + 10}" y="{spot - 9:.1f}" width="9" height="9" fill="{line.colour}"/>'
        )
        parts.append(_text(WIDTH - LEGEND + 24, spot, line.label, "start", "small"))
    return _panel(max([bottom + 34.0, *(spot + 12 for spot in taken)]), title, unit, parts)


def _round_up(value: float) -> float:
    """The next number whose quarters are easy to read."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next(step * unit for step in (1, 1.2, 1.6, 2, 2.4, 3, 4, 6, 8, 10) if step * unit >= value)


def _ticks(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**n for n in range(first, max(last, first + 1) + 1)]


def _box(x: float, y: float, width: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="15" rx="2" fill="{colour}"/>'


def _text(x: float, y: float, words: str, anchor: str, kind: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text{name} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _panel(height: float, title: str, unit: str, parts: list[str]) -> str:
    head = [_text(20, 26, title, "start", "title"), _text(20, 45, unit, "start", "small")]
    size = f"0 0 {WIDTH} {height:.0f}"
    body = "\n".join([*head, *parts])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" role="img">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n"
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:.0f}" rx="8" fill="{PANEL}" '
        f'stroke="#d0d7de"/>\n{body}\n</svg>\n'
    )
