"""The table of issue 21: what must be reached and what is the goal, beside what a run measured of it."""

from collections.abc import Iterator
from dataclasses import dataclass

from peers.before import BEFORE
from peers.figures import (
    BULK,
    DEFAULT_DRAIN,
    DRAIN,
    HELD,
    LONG_DRAIN,
    P50,
    P99,
    SERVER_CPU,
    SINGLE,
    STORED,
    UNDISTURBED,
    WAL,
    WORKER_CPU,
    Found,
)
from peers.outcome import Entry
from peers.systems import OURS
from servers import Kind

STORES: tuple[Kind, ...] = ("PostgreSQL", "SQLite")
NAMES = (OURS, BEFORE, "PgQueuer", "pg-boss", "Graphile Worker", "River", "DBOS", "huey")
"""The systems that the table speaks of."""
LEFT_OUT = ("no local queue", "sync off")
"""Variants of theirs of which it does not speak."""


@dataclass(frozen=True)
class Bound:
    """What a value is held against; `least` says which side is good. Without a value there is nothing to
    hold."""

    words: str
    value: float | None
    limit: float | None
    least: bool = True

    @property
    def held(self) -> bool | None:
        if self.value is None or self.limit is None:
            return None
        return self.value >= self.limit if self.least else self.value <= self.limit


@dataclass(frozen=True)
class Row:
    """One line; each column of bounds is held when all of its bounds are."""

    what: str
    measured: str
    musts: tuple[Bound, ...] = ()
    goals: tuple[Bound, ...] = ()


def held(bounds: tuple[Bound, ...]) -> str:
    """`not measured` unless it is known: one that is missed is enough to say no."""
    if not bounds:
        return ""
    each = [bound.held for bound in bounds]
    return "no" if False in each else "not measured" if None in each else "yes"


@dataclass(frozen=True)
class Compared:
    """The figures of a run, by system and store."""

    entries: list[Entry]
    limits: dict[Kind, Found]

    def of(self, name: str, store: Kind, figure: str) -> float | None:
        for entry in self.entries:
            system = entry.system
            if (system.name, system.store) == (name, store) and system.variant not in LEFT_OUT:
                return entry.found.best(figure)
        return None

    def ratio(self, store: Kind, figure: str, to: str = BEFORE, *, whose: str | None = None) -> float | None:
        """Ours to another's, which may have a figure of another name."""
        return over(self.of(OURS, store, figure), self.of(to, store, whose or figure))

    def best_peer(self, figure: str, *, most: bool) -> float | None:
        """The best on PostgreSQL of whoever is not us."""
        found = [
            value
            for entry in self.entries
            if entry.system.store == "PostgreSQL" and entry.system.name not in (OURS, BEFORE)
            if (value := entry.found.best(figure)) is not None
        ]
        return (max(found) if most else min(found)) if found else None


def over(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


COLUMNS = ("what", "must", "goal", "measured", "must held", "goal held")


def table(entries: list[Entry], limits: dict[Kind, Found]) -> list[str]:
    """Its lines; empty where this run had nothing of ours."""
    told = cells(entries, limits)
    lines = ["| " + " | ".join(row) + " |" for row in (COLUMNS, *told)]
    return [lines[0], "|" + "---|" * len(COLUMNS), *lines[1:]] if told else []


def cells(entries: list[Entry], limits: dict[Kind, Found]) -> list[tuple[str, ...]]:
    """By the columns of the table."""
    if not any(entry.system.ours and entry.found.figures for entry in entries):
        return []
    told: list[tuple[str, ...]] = []
    for row in rows(Compared(entries, limits)):
        must, goal = (" · ".join(bound.words for bound in bounds) for bounds in (row.musts, row.goals))
        told.append((row.what, must, goal, row.measured, held(row.musts), held(row.goals)))
    return told


def steadiness(limits: dict[Kind, Found]) -> str:
    """How far the bare scripts moved, which did the same each time."""
    moved = [
        f"{number(spread[1] / spread[0])} times on {kind}"
        for kind, found in limits.items()
        if (spread := found.spread(DRAIN)) and spread[0] > 0
    ]
    return (
        "The bare scripts, which did the same each time, were at their best "
        f"{' and '.join(moved) or 'unknown'} as fast as at their worst: a rate nearer to its bound than "
        "that is not decided by this run."
    )


def rows(run: Compared) -> Iterator[Row]:
    yield from _drains(run)
    yield from _costs(run)
    yield from _enqueues(run)
    yield from _waits(run)
    yield from _besides(run)


def _drains(run: Compared) -> Iterator[Row]:
    kinds = (
        (DEFAULT_DRAIN, DRAIN, "no options"),
        (DRAIN, DRAIN, "`-c 1000`"),
        (LONG_DRAIN, LONG_DRAIN, "`-c 1000`, many more"),
    )
    for figure, theirs, words in kinds:
        ours = run.of(OURS, "PostgreSQL", figure)
        ahead = [over(ours, run.of(name, "PostgreSQL", theirs)) for name in ("PgQueuer", "pg-boss")]
        times = run.ratio("PostgreSQL", figure)
        yield Row(
            f"PostgreSQL drain, two workers, {words}",
            f"{_beside_before(run, 'PostgreSQL', figure)}, {number(ahead[0])} x PgQueuer, "
            f"{number(ahead[1])} x pg-boss",
            (Bound("≥ 2.0 x before", times, 2.0), Bound("ahead of PgQueuer", ahead[0], 1.0)),
            (Bound("ahead of pg-boss 12", ahead[1], 1.0),),
        )
    limit = run.limits.get("SQLite")
    bare = limit.best(DRAIN) if limit else None
    for figure, _, words in kinds:
        share = over(run.of(OURS, "SQLite", figure), bare)
        huey = number(run.ratio("SQLite", figure, "huey", whose=DRAIN))
        yield Row(
            f"SQLite drain, one worker, {words}",
            f"{_beside_before(run, 'SQLite', figure)}, {number(share)} of the bare script, {huey} x huey",
            (Bound("≥ 2.0 x before", run.ratio("SQLite", figure), 2.0),),
            (Bound("≥ 0.7 of the bare script", share, 0.7),),
        )


def _costs(run: Compared) -> Iterator[Row]:
    costs = (
        ("server CPU per job, PostgreSQL", SERVER_CPU, "µs", 20.0, 18.0),
        ("WAL per job, PostgreSQL", WAL, "B", 900.0, 463.0),
        ("tables and indexes per ended job, PostgreSQL", STORED, "B", 900.0, 699.0),
    )
    for what, figure, unit, must, goal in costs:
        ours = run.of(OURS, "PostgreSQL", figure)
        yield Row(
            what,
            f"{_beside_before(run, 'PostgreSQL', figure)} {unit}",
            (Bound(f"≤ {must:.0f} {unit}", ours, must, least=False),),
            (Bound(f"≤ {goal:.0f} {unit}", ours, goal, least=False),),
        )
    ours, share = run.of(OURS, "SQLite", STORED), run.ratio("SQLite", STORED)
    yield Row(
        "file bytes per ended job, SQLite",
        f"{number(ours)} B: {number(share)} of before",
        (Bound("≤ 0.5 x before", share, 0.5, least=False),),
    )
    for store in STORES:
        cpu = run.of(OURS, store, WORKER_CPU)
        yield Row(
            f"workers' CPU per job, {store}",
            f"{_beside_before(run, store, WORKER_CPU)} µs",
            (Bound("≤ 30 µs", cpu, 30.0, least=False),),
            (Bound("≤ 20 µs", cpu, 20.0, least=False),),
        )


def _enqueues(run: Compared) -> Iterator[Row]:
    best = over(run.of(OURS, "PostgreSQL", BULK), run.best_peer(BULK, most=True))
    for store in STORES:
        goals = (Bound("ahead of every PostgreSQL peer", best, 1.0),) if store == "PostgreSQL" else ()
        told = f", {number(best)} x the best peer" if goals else ""
        must = Bound("≥ 1.5 x before", run.ratio(store, BULK), 1.5)
        yield Row(f"bulk enqueue, {store}", _beside_before(run, store, BULK) + told, (must,), goals)
    for store, other, least in (("PostgreSQL", "PgQueuer", 1.0), ("SQLite", "huey", 0.9)):
        assert store in STORES
        share = run.ratio(store, SINGLE, other)
        yield Row(
            f"one awaited enqueue, {store}",
            f"{_beside_before(run, store, SINGLE)}, {number(share)} x {other}",
            (Bound(f"≥ {least:.1f} x {other}", share, least),),
            (Bound(f"ahead of {other}", share, 1.0),),
        )


def _waits(run: Compared) -> Iterator[Row]:
    for words, figure in (("p50", P50), ("p99", P99)):
        share = over(run.of(OURS, "PostgreSQL", figure), run.best_peer(figure, most=False))
        yield Row(
            f"idle {words}, PostgreSQL",
            f"{_beside_before(run, 'PostgreSQL', figure)} ms, {number(share)} x the best peer",
            (Bound("≤ 1.2 x the best PostgreSQL peer", share, 1.2, least=False),),
            (Bound("ahead", share, 1.0, least=False),),
        )
        yield Row(f"idle {words}, SQLite", f"{_beside_before(run, 'SQLite', figure)} ms")


def _besides(run: Compared) -> Iterator[Row]:
    for store in STORES:
        share, before = (
            over(run.of(name, store, HELD), run.of(name, store, UNDISTURBED)) for name in (OURS, BEFORE)
        )
        yield Row(
            f"drain while another session holds a snapshot, {store}",
            f"{number(share)} of undisturbed (before: {number(before)})",
            (Bound("≥ 0.9 of undisturbed", share, 0.9),),
            (Bound("≥ 0.95", share, 0.95),),
        )
    claims = [
        (f"claim behind many {words} rows", f"claim_{words}_ms", few, 1.2)
        for words, few in (("queued", "claim_few_ms"), ("dead", "claim_few_again_ms"))
    ]
    for name in ("kind", "executor", "lock"):
        names = (f"claim_{name}_beside_ms", f"claim_{name}_alone_ms")
        claims.append((f"claim by {name} beside many that do not fit", *names, 2.0))
    for store in STORES:
        for what, figure, alone, most in claims:
            times = over(run.of(OURS, store, figure), run.of(OURS, store, alone))
            before = over(run.of(BEFORE, store, figure), run.of(BEFORE, store, alone))
            yield Row(
                f"{what}, {store}",
                f"{number(run.of(OURS, store, figure))} ms: {number(times)} x (before: {number(before)} x)",
                (Bound(f"within {most:.1f} x", times, most, least=False),),
            )
        for name in ("state", "owner", "label", "kind", "queue"):
            figure = f"page_{name}_p99_ms"
            must = Bound("≤ 50 ms", run.of(OURS, store, figure), 50.0, least=False)
            yield Row(f"a page by {name}, p99, {store}", f"{_beside_before(run, store, figure)} ms", (must,))


def _beside_before(run: Compared, store: Kind, figure: str) -> str:
    ours, before = (run.of(name, store, figure) for name in (OURS, BEFORE))
    return f"{number(ours)} (before: {number(before)}, {number(over(ours, before))} x)"
