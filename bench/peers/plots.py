"""Which plots there are, and what is in them."""

from peers.charts import COLOURS, LIMIT, OTHERS, OURS, OURS_TOO, Bar, Line, bars, lines, ranges
from peers.figures import DRAIN, LONG_DRAIN, P50, P99, Found, behind
from peers.outcome import Entry, Outcome


def plots(outcome: Outcome) -> dict[str, str]:
    """SVG by file name; one that would show nothing is not drawn."""
    found = {
        "drain": _drains(outcome),
        "latency": _latency(outcome),
        "claims": _claims(outcome),
        "soak": _soak(outcome),
    }
    return {f"{outcome.page}-{name}.svg": picture for name, picture in found.items() if picture}


def _drains(outcome: Outcome) -> str:
    groups: dict[str, list[Bar]] = {}
    for kind, found in outcome.limits.items():
        if (best := found.best(DRAIN)) is not None:
            groups[kind] = [Bar("limit: bare script", best, f"{best:,.0f}", LIMIT)]
    for entry in sorted(outcome.entries, key=lambda e: -(_drain(e.found) or 0.0)):
        if (rate := _drain(entry.found)) is not None:
            stopped = " (stopped before the end)" * (DRAIN in entry.found.remarks)
            bar = Bar(_label(entry), rate, f"{rate:,.0f}{stopped}", _colour(entry))
            groups.setdefault(entry.system.store, []).append(bar)
    size = outcome.size
    unit = f"no-op jobs per second; of {size.long_jobs:,} where quick, else of {size.jobs:,}"
    return bars("Drain", unit, groups) if groups else ""


def _drain(found: Found) -> float | None:
    """The long one says more."""
    long = found.best(LONG_DRAIN)
    return found.best(DRAIN) if long is None else long


def _latency(outcome: Outcome) -> str:
    rows = []
    for entry in sorted(outcome.entries, key=lambda e: e.found.best(P50) or float("inf")):
        p50, p99 = entry.found.best(P50), entry.found.best(P99)
        if p50 is not None and p99 is not None:
            label = f"{_label(entry)}, {entry.system.store}"
            rows.append(Bar(label, p50, f"{p50:.1f} / {p99:.1f}", _colour(entry), max(p50, p99)))
    unit = "milliseconds from an enqueue to the handler in an idle worker, p50 to p99"
    return ranges("Idle latency", unit, rows) if rows else ""


def _claims(outcome: Outcome) -> str:
    """Each as a share of its own rate at the first level, since the rates themselves differ by far."""
    levels, drawn = outcome.size.levels, []
    others = 0
    for entry in outcome.entries:
        rates = [entry.found.best(behind(level)) for level in levels]
        if not rates[0] or not any(rates[1:]):
            continue
        points = [(float(n), 100 * r / rates[0]) for n, r in enumerate(rates) if r is not None]
        colour = COLOURS[others % len(COLOURS)]
        if entry.system.ours:
            colour = OURS if entry.system.store == "SQLite" else OURS_TOO
        others += not entry.system.ours
        drawn.append(Line(f"{_label(entry)}, {entry.system.store}", points, colour))
    names = [f"{level:,} behind" for level in levels]
    unit = f"jobs per second, in per cent of the rate with {levels[0]:,} behind"
    return lines("Claims beside many others", unit, names, drawn) if drawn else ""


def _soak(outcome: Outcome) -> str:
    drawn: list[Line] = []
    names: list[str] = []
    for told in outcome.soaks:
        names = max(names, [f"{mark.seconds / 60:.1f}" for mark in told.marks], key=len)
        colours = (OURS, OTHERS) if "SQLite" in told.title else (OURS_TOO, COLOURS[0])
        sizes = [mark.sizes for mark in told.marks]
        tables = [(float(n), one.tables / 1e6) for n, one in enumerate(sizes)]
        indexes = [(float(n), one.indexes / 1e6) for n, one in enumerate(sizes)]
        drawn.append(Line(f"{told.title}: tables", tables, colours[0]))
        drawn.append(Line(f"{told.title}: indexes", indexes, colours[1]))
    rate = outcome.soaks[0].rate if outcome.soaks else 0
    unit = f"megabytes by minute, {rate} jobs per second in each store, history kept"
    return lines("Soak", unit, names, drawn) if names else ""


def _label(entry: Entry) -> str:
    variant = f" ({entry.system.variant})" if entry.system.variant else ""
    return entry.system.name + variant


def _colour(entry: Entry) -> str:
    return OURS if entry.system.ours else OTHERS
