"""A plot of the cost of a claim by what surrounds the jobs, as an SVG of our own."""

import math
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 900, 430
LEFT, RIGHT, TOP, BOTTOM = 80, 24, 60, 80
COLOURS = ("#1f5fa8", "#7ba7d7", "#c4672b")
STYLE = (
    "text{font:13px sans-serif;fill:#333}.title{font-size:16px;font-weight:bold}"
    ".grid{stroke:#ddd}.level{stroke:#b00;stroke-dasharray:5 4}polyline{fill:none;stroke-width:2}"
)


@dataclass(frozen=True)
class Point:
    """One situation, and what a claim cost in it: milliseconds by name."""

    label: str
    costs: dict[str, float]


def draw(path: Path, title: str, points: list[Point], levels: dict[str, float]) -> None:
    """Write the plot, milliseconds on a logarithmic scale. `levels` are lines to compare with."""
    values = [*levels.values(), *(cost for p in points for cost in p.costs.values())]
    scale = Scale(min(values), max(values))
    step = (WIDTH - LEFT - RIGHT) / len(points)
    centres = [LEFT + step * (n + 0.5) for n in range(len(points))]
    parts = [f'<text class="title" x="{LEFT}" y="24">{escape(title)}</text>', *scale.grid()]
    for name, value in levels.items():
        parts += [_line("level", scale.y(value)), _text(WIDTH - RIGHT, scale.y(value) - 5, name)]
    for point, centre in zip(points, centres, strict=True):
        for line, words in enumerate(point.label.split("\n")):
            parts.append(_text(centre, HEIGHT - BOTTOM + 20 + 17 * line, words, "middle"))
    for n, (name, colour) in enumerate(zip(points[0].costs, COLOURS, strict=True)):
        places = [(x, scale.y(p.costs[name])) for p, x in zip(points, centres, strict=True)]
        parts += _series(places, colour)
        parts.append(f'<circle cx="{LEFT + 6 + 110 * n}" cy="42" r="5" fill="{colour}"/>')
        parts.append(_text(LEFT + 18 + 110 * n, 46, name, "start"))
    body = "\n".join(parts)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">\n<style>{STYLE}</style>\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n{body}\n</svg>\n',
        encoding="utf-8",
    )


class Scale:
    """Where a number of milliseconds lies: steps of 1, 2 and 5, from below the least to above the most."""

    def __init__(self, least: float, most: float) -> None:
        decades = range(math.floor(math.log10(least)) - 1, math.ceil(math.log10(most)) + 1)
        steps = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
        self._ticks = [
            *(step for step in steps if least / 2.5 < step < most),
            next(step for step in steps if step >= most),
        ]

    def y(self, value: float) -> float:
        low, high = math.log(self._ticks[0]), math.log(self._ticks[-1])
        share = (math.log(value) - low) / (high - low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    def grid(self) -> list[str]:
        lines = [_line("grid", self.y(tick)) for tick in self._ticks]
        return lines + [_text(LEFT - 8, self.y(tick) + 4, f"{tick:g} ms") for tick in self._ticks]


def _line(kind: str, y: float) -> str:
    return f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _text(x: float, y: float, words: str, anchor: str = "end") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _series(places: list[tuple[float, float]], colour: str) -> list[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in places]
    return [f'<polyline points="{path}" stroke="{colour}"/>', *dots]
