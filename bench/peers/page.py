"""The page: tables of one run, from its figures alone. What is missing is said as missing."""

import json
from collections.abc import Callable
from pathlib import Path

from peers import page_text
from peers.figures import (
    BULK,
    CLIENTS,
    CLIENTS_P99,
    DRAIN,
    HELD,
    IDLE_RSS,
    LONG_DRAIN,
    P50,
    P95,
    P99,
    RECOVERY,
    RSS,
    SERVER_CPU,
    SINGLE,
    STORED,
    UNDISTURBED,
    WAL,
    WORKER_CPU,
    Found,
    behind,
)
from peers.outcome import Entry, Outcome
from peers.plots import plots
from peers.soak_tables import soaked
from peers.verdicts import COLUMNS, cells, steadiness, table

CELL_MAX = 160
Column = tuple[str, Callable[[Entry], str]]


def write(outcome: Outcome, folder: Path | None) -> str:
    """The page; with a folder it goes there, with its plots and all figures beside it."""
    pictures = plots(outcome)
    text = page(outcome, list(pictures))
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{outcome.page}.md").write_text(text, encoding="utf-8")
        told = [dict(zip(COLUMNS, row, strict=True)) for row in cells(outcome.entries, outcome.limits)]
        document = json.dumps({**outcome.document(), "table": told}, indent=2) + "\n"
        (folder / f"{outcome.page}.json").write_text(document, encoding="utf-8")
        for name, picture in pictures.items():
            (folder / name).write_text(picture, encoding="utf-8")
    return text


def page(outcome: Outcome, pictures: list[str]) -> str:
    size = outcome.size
    sections = [
        ["# holdfast beside others", "", page_text.PREFACE],
        [*(f"- {name}: {value}" for name, value in outcome.about.items()), ""],
        [*(f"![{name}]({name})" for name in pictures), ""],
        _verdicts(outcome),
        ["## Enqueue, drain, wait", "", *_table(outcome.entries, _speed(outcome))],
        [
            "",
            page_text.COLUMNS.format(jobs=f"{size.jobs:,}", long=f"{size.long_jobs:,}", waits=size.waits),
        ],
        ["## What a job costs", "", page_text.COSTS, *_table(outcome.entries, _costs())],
        [
            "",
            "## The limit, and how steady the machine was",
            "",
            page_text.LIMITS,
            *_limits(outcome),
        ],
        _claims_section(outcome) if outcome.whole else [],
        ["", "## Beside a snapshot", "", page_text.SNAPSHOT.format(seconds=f"{size.snapshot_seconds:,.0f}")],
        _table(outcome.entries, _snapshots()),
        _recovery_and_soak(outcome) if outcome.whole else [],
        ["", "## What is guaranteed for it", "", page_text.GUARANTEES],
        _table(outcome.entries, _guarantees()),
        ["", "## Settings", "", *_settings(outcome.entries)],
        ["", "## What went wrong", "", *_failures(outcome)],
        ["", "## Time", "", *_times(outcome), ""],
    ]
    return "\n".join(line for section in sections for line in section)


def _claims_section(outcome: Outcome) -> list[str]:
    size = outcome.size
    words = page_text.CLAIMS.format(jobs=f"{size.behind_jobs:,}")
    return ["", "## Claims beside many others", "", words, *_table(outcome.entries, _claims(size.levels))]


def _recovery_and_soak(outcome: Outcome) -> list[str]:
    recovery = ["", "## Recovery", "", page_text.RECOVERY, *_table(outcome.entries, _recovery())]
    return [*recovery, "", "## Soak", "", page_text.SOAK, *soaked(outcome.soaks)]


def _verdicts(outcome: Outcome) -> list[str]:
    size, lines = outcome.size, table(outcome.entries, outcome.limits)
    words = page_text.VERDICTS.format(
        seconds=f"{size.snapshot_seconds:,.0f}",
        rate=size.snapshot_rate,
        crowd=f"{size.crowd_jobs:,}",
        unfit=f"{size.unfit_jobs:,}",
    )
    return (
        ["## What issue 21 asks for", "", words, *lines, "", steadiness(outcome.limits), ""] if lines else []
    )


def cell(text: str) -> str:
    """One that cannot break a table."""
    plain = " ".join(text.split()).replace("|", "\\|")
    return plain if len(plain) <= CELL_MAX else plain[: CELL_MAX - 2] + " …"


def number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def figure(found: Found, name: str) -> str:
    """The best of all rounds, all of them where they differ, and what has to be said beside it."""
    best, spread = found.best(name), found.spread(name)
    if best is None or spread is None:
        gap = found.missing.get(name, "not measured")
        return "failed, see below" if gap.startswith("failed") else gap
    low, high = map(number, spread)
    told = number(best) if low == high else f"{number(best)} ({low} .. {high})"
    remark = found.remarks.get(name)
    return f"{told}; {remark}" if remark else told


def _table(entries: list[Entry], columns: list[Column]) -> list[str]:
    head = ["system", *(name for name, _ in columns)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for entry in entries:
        row = [_name(entry), *(cell(of(entry)) for _, of in columns)]
        lines.append("| " + " | ".join(row) + " |")
    return lines


def _name(entry: Entry) -> str:
    system = entry.system
    title = cell(f"{system.name} {system.version}".strip() + system.title[len(system.name) :])
    return f"**{title}**" if system.ours else title


def _of(name: str) -> Callable[[Entry], str]:
    def told(entry: Entry) -> str:
        if entry.environment is None and not entry.found.figures:
            return entry.found.failures[0] if entry.found.failures else "not measured"
        return figure(entry.found, name)

    return told


def _speed(outcome: Outcome) -> list[Column]:
    size = outcome.size
    return [
        ("bulk /s", _of(BULK)),
        ("one at a time /s", _of(SINGLE)),
        ("64 clients /s", _of(CLIENTS)),
        ("… p99 ms", _of(CLIENTS_P99)),
        (f"drain {size.jobs:,} /s", _of(DRAIN)),
        (f"drain {size.long_jobs:,} /s", _of(LONG_DRAIN)),
        ("idle p50 ms", _of(P50)),
        ("idle p95 ms", _of(P95)),
        ("idle p99 ms", _of(P99)),
    ]


def _costs() -> list[Column]:
    return [
        ("workers' CPU µs", _of(WORKER_CPU)),
        ("server's CPU µs", _of(SERVER_CPU)),
        ("WAL bytes", _of(WAL)),
        ("kept bytes", _of(STORED)),
        ("RSS after the drain MB", _of(RSS)),
        ("RSS idle MB", _of(IDLE_RSS)),
    ]


def _claims(levels: tuple[int, ...]) -> list[Column]:
    def flat(entry: Entry) -> str:
        ends = [entry.found.best(behind(level)) for level in (levels[0], levels[-1])]
        return f"{ends[1] / ends[0]:.2f}" if ends[0] and ends[1] else ""

    return [
        *((f"{level:,} behind /s", _of(behind(level))) for level in levels),
        ("last to first", flat),
    ]


def _snapshots() -> list[Column]:
    def share(entry: Entry) -> str:
        undisturbed, held = (entry.found.best(name) for name in (UNDISTURBED, HELD))
        return f"{held / undisturbed:.2f}" if undisturbed and held else ""

    return [("undisturbed /s", _of(UNDISTURBED)), ("beside it /s", _of(HELD)), ("share", share)]


def _recovery() -> list[Column]:
    return [("running again after s", _of(RECOVERY)), ("limits", lambda e: e.found.recovery)]


def _guarantees() -> list[Column]:
    return [
        ("an event per transition", lambda e: e.system.guarantees.events),
        ("refuses a zombie", lambda e: e.system.guarantees.zombies),
        ("what is kept of a job that ended", lambda e: e.system.guarantees.history),
        ("taken off before or after the run", lambda e: e.system.guarantees.acked),
        ("durable when the enqueue returns", lambda e: e.system.guarantees.durable),
        ("source", lambda e: e.system.guarantees.source),
    ]


def _limits(outcome: Outcome) -> list[str]:
    lines = ["| store | bulk /s | drain /s | drains in order | ours to the limit, drain |"]
    lines.append("|---|---|---|---|---|")
    for kind, found in outcome.limits.items():
        order = ", ".join(map(number, found.figures.get(DRAIN, []))) or "none"
        ours = [e.found for e in outcome.entries if e.system.ours and e.system.store == kind]
        reached, limit = ours[0].best(DRAIN) if ours else None, found.best(DRAIN)
        share = f"{reached / limit:.2f}" if reached and limit else "not measured"
        cells = (kind, figure(found, BULK), figure(found, DRAIN), order, share)
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _settings(entries: list[Entry]) -> list[str]:
    return [
        f"- {entry.system.title}: {' '.join((entry.found.settings or 'not known').split())}. "
        f"Packages: {', '.join(entry.system.packages) or 'this repository'}."
        for entry in entries
    ]


def _failures(outcome: Outcome) -> list[str]:
    told = [
        f"- {entry.system.title}: {' '.join(why.split())}"
        for entry in outcome.entries
        for why in entry.found.failures
    ]
    told += [f"- limit, {kind}: {why}" for kind, f in outcome.limits.items() for why in f.failures]
    told += [f"- soak, {soak.title}: {why}" for soak in outcome.soaks for why in soak.failures]
    return told or ["Nothing."]


def _times(outcome: Outcome) -> list[str]:
    return [f"- {name}: {seconds:.0f} s" for name, seconds in outcome.budget.spent.items()]
