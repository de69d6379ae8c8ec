"""Run the limit script and our verbs in turn, and print one table. `--quick` takes under a minute.

Exit 1 when a *must* of PERFORMANCE.md that needs no worker is missed.
"""

import argparse
import asyncio
import sys
import tempfile
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import limit
import verbs
from holdfast.sdk.open import open_registry
from report import Figure, write

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    rounds: int
    jobs: int
    single_jobs: int
    claims: int
    levels: tuple[int, ...]
    ended: int
    wakes: int


QUICK = Size(2, 15_000, 400, 4_000, (1_000, 100_000), 100_000, 200)
FULL = Size(3, 50_000, 1_500, 10_000, (1_000, 100_000, 1_000_000), 1_000_000, 1_000)


@dataclass
class Measured:
    """Everything every round has found."""

    limits: dict[int, list[limit.Rates]] = field(default_factory=dict)
    bulk: list[float] = field(default_factory=list)
    drain: list[float] = field(default_factory=list)
    one: list[verbs.Spread] = field(default_factory=list)
    many: list[verbs.Spread] = field(default_factory=list)
    claims: list[verbs.Spread] = field(default_factory=list)

    def limit_of(self, batch: int) -> limit.Rates:
        found = self.limits[batch]
        return limit.Rates(max(r.enqueue for r in found), max(r.drain for r in found))


async def equal_rows(folder: Path) -> None:
    """The bare script writes what the verbs would: every job equals the fold of its log."""
    path = folder / "equal.db"
    limit.fill(path, queued=1_000, ended=5_000)
    registry = await open_registry(verbs.url_of(path))
    verification = await registry.verify()
    await registry.close()
    assert verification.equal, verification.mismatches[:3]


async def one_round(folder: Path, size: Size, found: Measured) -> None:
    names = (folder / f"{n}.db" for n in count())

    def bare(batch: int, jobs: int) -> None:
        found.limits.setdefault(batch, []).append(
            limit.measure(next(names), jobs=jobs, batch=batch)
        )

    bare(500, size.jobs)
    registry = await open_registry(verbs.url_of(next(names)))
    found.bulk.append(await verbs.bulk_enqueue(registry, size.jobs))
    found.drain.append(await verbs.drain(registry))
    bare(500, size.jobs)
    bare(100, size.jobs // 2)
    bare(1, size.single_jobs)
    found.one.append(await verbs.awaited_enqueues(registry, size.single_jobs, 1))
    found.many.append(await verbs.awaited_enqueues(registry, size.claims, 64))
    await verbs.drain(registry)
    found.claims.append(await verbs.single_claims(registry, size.claims))
    await registry.close()


async def growth(folder: Path, size: Size) -> tuple[dict[int, verbs.Cost], verbs.Cost]:
    """The cost of a claim by the number of jobs that wait, and with many that have ended."""
    paths = [folder / f"level-{level}.db" for level in size.levels]
    for level, path in zip(size.levels, paths, strict=True):
        limit.fill(path, queued=level)
    limit.fill(folder / "ended.db", queued=1_000, ended=size.ended)
    *costs, ended = await verbs.claim_costs([*paths, folder / "ended.db"])
    return dict(zip(size.levels, costs, strict=True)), ended


def figures_of(
    size: Size,
    found: Measured,
    costs: dict[int, verbs.Cost],
    ended: verbs.Cost,
    rss: float,
    wake: verbs.Spread,
) -> list[Figure]:
    whole, hundred, single = (found.limit_of(batch) for batch in (500, 100, 1))
    claims = min(found.claims, key=lambda spread: spread.p99)
    one = max(found.one, key=lambda spread: spread.rate)
    many = max(found.many, key=lambda spread: spread.rate)
    low = {"unit": "ms", "at_least": False}
    bulk, drained = max(found.bulk), max(found.drain)
    return [
        Figure(
            "bulk enqueue, 500 at a time", bulk, "/s", whole.enqueue, 60_000, 120_000, floor=0.22
        ),
        Figure(
            "drain: claim 500, complete 500 at once",
            drained,
            "/s",
            whole.drain,
            30_000,
            50_000,
            floor=0.15,
        ),
        Figure("limit: enqueue / drain, batch 100", hundred.enqueue, f"/s, {hundred.drain:,.0f}/s"),
        Figure("one awaited enqueue at a time", one.rate, "/s", single.enqueue),
        Figure("64 concurrent awaiting enqueue clients", many.rate, "/s", single.enqueue),
        Figure(
            "64 concurrent single claims",
            max(c.rate for c in found.claims),
            "/s",
            None,
            None,
            29_000,
        ),
        Figure("… p50", claims.p50, **low),
        Figure("… p95", claims.p95, **low),
        Figure("… p99", claims.p99, limit=None, must=20, goal=9, gate=True, **low),
        *growth_figures(size, costs, ended),
        Figure("RSS growth by 100,000 enqueued jobs", rss, "MB", None, 20, None, True, False),
        Figure("enqueue → claimed in another process, p50", wake.p50, must=5, goal=1, **low),
        Figure("… p99", wake.p99, must=20, goal=3, **low),
    ]


def growth_figures(size: Size, costs: dict[int, verbs.Cost], ended: verbs.Cost) -> list[Figure]:
    """The gate is on the wall clock; the CPU beside it says whether a miss is ours or the disk's."""
    first, last = size.levels[0], size.levels[-1]
    base, top = costs[first], costs[last]
    levels = {f"{level:,} queued": cost for level, cost in costs.items()}
    levels[f"{first:,} queued, {size.ended:,} ended"] = ended
    flat = {"unit": "times", "must": 2, "goal": 1.2, "at_least": False}
    return [
        *(
            Figure(f"claim of 100, {level}, p50", cost.wall, f"ms ({cost.cpu:.2f} ms CPU)")
            for level, cost in levels.items()
        ),
        Figure(f"claim cost, {first:,} → {last:,} queued", top.wall / base.wall, gate=True, **flat),
        Figure("… CPU", top.cpu / base.cpu, **flat),
        Figure(f"claim cost, {size.ended:,} ended rows", ended.wall / base.wall, gate=True, **flat),
        Figure("… CPU", ended.cpu / base.cpu, **flat),
    ]


def notes_of(found: Measured) -> list[str]:
    before, after = found.limits[500][0::2], found.limits[500][1::2]
    drift = [f"{a.enqueue / b.enqueue:.2f}" for b, a in zip(before, after, strict=True)]
    return [
        f"best of {len(found.bulk)} rounds; each ran the limit script before and after the verbs",
        f"limit after / before, per round (drift of the machine): {', '.join(drift)}",
        "ratio: ours / limit at the same batch; awaited enqueues against the limit at batch 1",
    ]


async def main(size: Size, title: str) -> int:
    found = Measured()
    with tempfile.TemporaryDirectory(prefix=".run-", dir=HERE) as name:
        folder = Path(name)
        await equal_rows(folder)
        for _ in range(size.rounds):
            with tempfile.TemporaryDirectory(dir=folder) as inner:
                await one_round(Path(inner), size, found)
        costs, ended = await growth(folder, size)
        rss = verbs.rss_growth(folder / "rss.db", 100_000)
        wake = await verbs.wake_up(folder / "wake.db", size.wakes)
    figures = figures_of(size, found, costs, ended, rss, wake)
    print(write(HERE / "results", title, figures, notes_of(found)))
    for figure in figures:
        if figure.missed:
            print(f"missed: {figure.name}: {figure.ours:,.2f} {figure.unit}", file=sys.stderr)
    return int(any(figure.missed for figure in figures))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller, without 1,000,000 rows")
    quick = parser.parse_args().quick
    sys.exit(asyncio.run(main(QUICK if quick else FULL, "SQLite" + " (quick)" * quick)))
