"""The SQLite run: the limit script and the verbs, each alone on a file of its own."""

import tempfile
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import apsw

import sqlite_limit
import verbs
from holdfast.sdk.open import open_registry
from process_group import run_together
from report import Figure, Outcome, at_most, flat

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

    limits: dict[int, list[sqlite_limit.Rates]] = field(default_factory=dict)
    bulk: list[float] = field(default_factory=list)
    drain: list[float] = field(default_factory=list)
    one: list[verbs.Spread] = field(default_factory=list)
    many: list[verbs.Spread] = field(default_factory=list)
    claims: list[verbs.Spread] = field(default_factory=list)

    def limit_of(self, batch: int) -> sqlite_limit.Rates:
        found = self.limits[batch]
        return sqlite_limit.Rates(max(r.enqueue for r in found), max(r.drain for r in found))


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


async def equal_rows(folder: Path) -> None:
    """The bare script writes what the verbs would: every job equals the fold of its log."""
    path = folder / "equal.db"
    sqlite_limit.fill(path, queued=1_000, ended=5_000)
    registry = await open_registry(url_of(path))
    verification = await registry.verify()
    await registry.close()
    assert verification.equal, verification.mismatches[:3]


async def one_round(folder: Path, size: Size, found: Measured) -> None:
    names = (folder / f"{n}.db" for n in count())

    def bare(batch: int, jobs: int) -> None:
        found.limits.setdefault(batch, []).append(sqlite_limit.measure(next(names), jobs=jobs, batch=batch))

    bare(500, size.jobs)
    registry = await open_registry(url_of(next(names)))
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
        sqlite_limit.fill(path, queued=level)
    sqlite_limit.fill(folder / "ended.db", queued=1_000, ended=size.ended)
    urls = [url_of(path) for path in (*paths, folder / "ended.db")]
    *costs, ended = await verbs.claim_costs(urls)
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
    claim_rate = max(c.rate for c in found.claims)
    bulk, drained = max(found.bulk), max(found.drain)
    return [
        Figure("bulk enqueue, 500 at a time", bulk, "/s", whole.enqueue, 60_000, 120_000, floor=0.22),
        Figure(
            "drain: claim 500, complete 500 in one call",
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
        Figure("64 concurrent single claims", claim_rate, "/s", goal=29_000),
        at_most("… p50", claims.p50),
        at_most("… p95", claims.p95),
        at_most("… p99", claims.p99, must=20, goal=9, gate=True),
        *growth_figures(size, costs, ended),
        at_most("RSS growth by 100,000 enqueued jobs", rss, "MB", 20, gate=True),
        at_most("enqueue → claimed in another process, p50", wake.p50, must=5, goal=1),
        at_most("… p99", wake.p99, must=20, goal=3),
    ]


def growth_figures(size: Size, costs: dict[int, verbs.Cost], ended: verbs.Cost) -> list[Figure]:
    """The gate is on the wall clock; the CPU beside it says whether a miss is ours or the disk's."""
    first, last = size.levels[0], size.levels[-1]
    base, top = costs[first], costs[last]
    levels = {f"{level:,} queued": cost for level, cost in costs.items()}
    levels[f"{first:,} queued, {size.ended:,} ended"] = ended

    def wall(cost: verbs.Cost) -> float:
        return cost.wall.p50 / base.wall.p50

    return [
        *(
            Figure(f"claim of 100, {level}, p50", cost.wall.p50, f"ms ({cost.cpu:.2f} ms CPU)")
            for level, cost in levels.items()
        ),
        flat(f"claim cost, {first:,} → {last:,} queued", wall(top), gate=True),
        flat("… CPU", top.cpu / base.cpu),
        flat(f"claim cost, {size.ended:,} ended rows", wall(ended), gate=True),
        flat("… CPU", ended.cpu / base.cpu),
    ]


def notes_of(found: Measured) -> list[str]:
    before, after = found.limits[500][0::2], found.limits[500][1::2]
    drift = [f"{a.enqueue / b.enqueue:.2f}" for b, a in zip(before, after, strict=True)]
    return [
        f"best of {len(found.bulk)} rounds; each ran the limit script before and after the verbs",
        f"limit after / before, per round (drift of the machine): {', '.join(drift)}",
        "ratio: ours / limit at the same batch; awaited enqueues against the limit at batch 1",
    ]


async def main(size: Size) -> Outcome:
    found = Measured()
    with tempfile.TemporaryDirectory(prefix=".run-", dir=HERE) as name:
        folder = Path(name)
        await equal_rows(folder)
        for _ in range(size.rounds):
            with tempfile.TemporaryDirectory(dir=folder) as inner:
                await one_round(Path(inner), size, found)
        costs, ended = await growth(folder, size)
        [rss] = run_together([("rss", {"url": url_of(folder / "rss.db"), "jobs": 100_000})])
        wake = await verbs.wake_up(url_of(folder / "wake.db"), size.wakes)
    figures = figures_of(size, found, costs, ended, rss.found, wake)
    return Outcome("SQLite", apsw.sqlite_lib_version(), figures, notes_of(found))
