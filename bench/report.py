"""The table: what we reach beside the limit, and whether it is what PERFORMANCE.md asks for."""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Figure:
    """One line. `gate` marks a must that needs no worker: missing it fails the run. A rate per second
    says as much about the machine as about us, so where there is a limit beside it the gate is
    `floor`, the share of the limit that we must reach."""

    name: str
    ours: float
    unit: str
    limit: float | None = None
    must: float | None = None
    goal: float | None = None
    gate: bool = False
    at_least: bool = True
    floor: float | None = None

    def meets(self, target: float | None) -> bool | None:
        if target is None:
            return None
        return self.ours >= target if self.at_least else self.ours <= target

    @property
    def missed(self) -> bool:
        if self.floor is not None and self.limit is not None:
            return self.ours / self.limit < self.floor
        return self.gate and self.meets(self.must) is False


def at_most(
    name: str,
    ours: float,
    unit: str = "ms",
    must: float | None = None,
    goal: float | None = None,
    *,
    gate: bool = False,
) -> Figure:
    """A line where less is better."""
    return Figure(name, ours, unit, None, must, goal, gate, at_least=False)


def flat(name: str, times: float, *, gate: bool = False) -> Figure:
    """A line about growth: how often the cost of the smallest."""
    return at_most(name, times, "times", 2, 1.2, gate=gate)


@dataclass(frozen=True)
class Outcome:
    """A whole run. `sections` are Markdown that follows the table."""

    store: str
    version: str
    figures: list[Figure]
    notes: list[str]
    sections: list[str] = field(default_factory=list)


def number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def row(figure: Figure) -> str:
    sign = "≥" if figure.at_least else "≤"

    def target(value: float | None) -> str:
        if value is None:
            return ""
        return f"{sign} {number(value)}: {'yes' if figure.meets(value) else '**no**'}"

    ratio = "" if figure.limit is None else f"{figure.ours / figure.limit:.2f}"
    if figure.floor is not None:
        ratio += f" (gate: {figure.floor:.2f})"
    cells = (
        figure.name,
        f"{number(figure.ours)} {figure.unit}",
        number(figure.limit),
        ratio,
        target(figure.must) + (" (gate)" if figure.gate else ""),
        target(figure.goal),
    )
    return "| " + " | ".join(cells) + " |"


def machine(outcome: Outcome) -> dict[str, str]:
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": _commit(),
        "machine": f"{os.cpu_count()} x {_processor()}, {platform.system()} {platform.release()}",
        "python": platform.python_version(),
        outcome.store.lower(): outcome.version,
        "load": " ".join(f"{load:.1f}" for load in os.getloadavg()),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    ask: Callable[..., str] = lambda *words: subprocess.run(  # noqa: E731
        ["git", *words], cwd=HERE, capture_output=True, text=True, check=False
    ).stdout.strip()
    changed = " + changes" if ask("status", "--porcelain", "--", "../src") else ""
    return ask("rev-parse", "--short", "HEAD") + changed


def conclude(name: str, outcome: Outcome, *, quick: bool) -> int:
    """Keep and print the Markdown of a run; answers 1 when a gate was missed."""
    about = machine(outcome)
    lines = [
        f"# {outcome.store}" + " (quick)" * quick,
        "",
        *(f"- {name}: {value}" for name, value in about.items()),
        *(f"- {note}" for note in outcome.notes),
        "",
        "| figure | ours | limit | ratio | must | goal |",
        "|---|---|---|---|---|---|",
        *map(row, outcome.figures),
        "",
        *outcome.sections,
    ]
    text = "\n".join(lines)
    folder = HERE / "results"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    document = {
        "about": about,
        "notes": outcome.notes,
        "figures": list(map(asdict, outcome.figures)),
    }
    (folder / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(text)
    missed = [figure for figure in outcome.figures if figure.missed]
    for figure in missed:
        print(f"missed: {figure.name}: {number(figure.ours)} {figure.unit}", file=sys.stderr)
    return int(bool(missed))
