"""The PostgreSQL run: the limit script and the verbs, two processes each, on one server on the disk."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import growth
import open_loop
import postgres_limit
import verbs
from holdfast.sdk.open import open_registry
from plot import Point, draw
from postgres_limit import Bare
from postgres_setup import PostgresSetup
from process_group import Group, run_together, wall_seconds
from report import Figure, Outcome, at_most, flat

PLOT = Path(__file__).parent / "results" / "postgres.svg"
PROCESSES = 2
RATE = 200


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    rounds: int
    jobs: int
    single_jobs: int
    clients_jobs: int
    levels: tuple[int, ...]
    ended: int
    claims: int
    wakes: int
    stream_seconds: int


QUICK = Size(2, 10_000, 300, 3_000, (1_000, 10_000, 100_000), 100_000, 20, 100, 15)
FULL = Size(4, 50_000, 1_500, 10_000, (1_000, 10_000, 100_000, 1_000_000), 1_000_000, 60, 1_000, 60)


@dataclass(frozen=True)
class Step:
    """What one step of a drain or an enqueue reached, and what each job of it cost."""

    rate: float
    wal_bytes: float
    client: float
    server: float


@dataclass
class Measured:
    """Everything every round has found."""

    steps: dict[str, list[Step]] = field(default_factory=dict)
    single: list[float] = field(default_factory=list)
    one: list[verbs.Spread] = field(default_factory=list)
    many: list[verbs.Spread] = field(default_factory=list)

    def best(self, name: str) -> float:
        return max(step.rate for step in self.steps[name])

    def middle(self, name: str, of: Callable[[Step], float]) -> float:
        return median(of(step) for step in self.steps[name])


def measure_step(setup: PostgresSetup, role: str, order: dict[str, Any]) -> Step:
    """Let two processes do it at the same time."""
    with Group([(role, order)] * PROCESSES) as group:
        written, used = setup.wal_bytes(), setup.cpu_seconds()
        group.go()
        answers = group.answers()
        used = setup.cpu_seconds() - used
    jobs = sum(answer.found for answer in answers)
    client = sum(answer.cpu_seconds for answer in answers)
    written = setup.wal_bytes() - written
    each = 1e6 / jobs
    return Step(jobs / wall_seconds(answers), written / jobs, client * each, used * each)


async def equal_rows(setup: PostgresSetup) -> None:
    """The bare script writes what the verbs would: every job equals the fold of its log, and the counts
    are right."""
    url = await setup.schema("equal")
    bare = await Bare.open(url)
    for _ in range(3):
        await bare.enqueue(1_000)
    await bare.complete(await bare.claim(1_000))
    await bare.claim(500)
    await bare.close()
    registry = await open_registry(url)
    verification, counts = await registry.verify(), await registry.counts()
    await registry.close()
    assert verification.equal, verification.mismatches[:3]
    assert verification.events == 1_000 * 4 + 500 * 2 + 1_500
    assert counts == {"queued": 1_500, "assigned": 500, "succeeded": 1_000}
    setup.drop("equal")


async def one_round(setup: PostgresSetup, size: Size, found: Measured) -> None:
    share = size.jobs // PROCESSES
    bare, ours = await setup.schema("bare"), await setup.schema("ours")
    steps: dict[str, tuple[str, dict[str, Any]]] = {
        "limit enqueue": ("bare_enqueue", {"url": bare, "jobs": share, "batch": verbs.CHUNK}),
        "enqueue": ("enqueue", {"url": ours, "jobs": share}),
        "limit drain": ("bare_drain", {"url": bare, "batch": verbs.CHUNK}),
        "drain": ("drain", {"url": ours}),
    }
    for name, (role, order) in steps.items():
        step = measure_step(setup, role, order)
        print(f"{name}: {step.rate:,.0f}/s", file=sys.stderr)
        found.steps.setdefault(name, []).append(step)
    [alone] = run_together([("bare_enqueue", {"url": bare, "jobs": size.single_jobs, "batch": 1})])
    found.single.append(alone.found / wall_seconds([alone]))
    registry = await open_registry(ours)
    found.one.append(await verbs.awaited_enqueues(registry, size.single_jobs, 1))
    found.many.append(await verbs.awaited_enqueues(registry, size.clients_jobs, 64))
    await registry.close()
    setup.drop("bare", "ours")


async def profiles(setup: PostgresSetup, jobs: int) -> dict[str, dict[str, float]]:
    """Microseconds per job by step, of one process alone."""
    url = await setup.schema("profiled")
    found = {}
    for role, order in {"enqueue": {"jobs": jobs}, "drain": {}}.items():
        used = setup.cpu_seconds()
        [answer] = run_together([(f"profile_{role}", {"url": url, **order})])
        server = (setup.cpu_seconds() - used) / jobs * 1e6
        found[role] = {**answer.found, "CPU of the server meanwhile": server}
    setup.drop("profiled")
    return found


async def bare_wake_up(setup: PostgresSetup, jobs: int) -> verbs.Spread:
    """From before an enqueue here to the claim in another process that listens, with nothing of ours."""
    url = await setup.schema("told")
    bare = await Bare.open(url)
    with Group([("bare_wake", {"url": url, "jobs": jobs})]) as group:
        group.go()
        await asyncio.sleep(0.5)
        sent = await postgres_limit.wake_up(bare, jobs)
        [answer] = await asyncio.to_thread(group.answers)
    await bare.close()
    return verbs.spread([got - at for got, at in zip(answer.found, sent, strict=True)])


def rate_figures(found: Measured) -> list[Figure]:
    one = max(found.one, key=lambda spread: spread.rate)
    many = max(found.many, key=lambda spread: spread.rate)
    single = max(found.single)
    figures = []
    targets = {
        "enqueue": ("bulk enqueue, 500 at a time, 2 processes", 60_000, 100_000),
        "drain": ("drain: claim 500, complete 500 in one call, 2 processes", 28_000, 45_600),
    }
    for name, (words, must, goal) in targets.items():
        limit = f"limit {name}"
        best = found.best(limit)
        figures += [
            Figure(words, found.best(name), "/s", best, must, goal, floor=0.5),
            Figure(
                "… median of the rounds",
                found.middle(name, lambda step: step.rate),
                "/s",
                found.middle(limit, lambda step: step.rate),
            ),
        ]
        for unit, of in {
            "bytes of WAL per job": lambda step: step.wal_bytes,
            "µs of client CPU per job": lambda step: step.client,
            "µs of server CPU per job": lambda step: step.server,
        }.items():
            figures.append(Figure("…", found.middle(name, of), unit, found.middle(limit, of)))
    return [
        *figures,
        Figure("one awaited enqueue at a time", one.rate, "/s", single, 2_400, 3_000),
        Figure("… p99", one.p99, "ms"),
        Figure("64 concurrent awaiting enqueue clients", many.rate, "/s", single, 8_000, 20_000),
        Figure("… p99", many.p99, "ms"),
    ]


def growth_figures(found: growth.Growth, ended: int) -> list[Figure]:
    figures = []
    for situation in found.situations:
        words = f"ms (p95 {situation.wall.p95:.2f}, server {situation.server:.2f})"
        figures.append(Figure(f"claim of 100, {situation.name}, p50", situation.wall.p50, words))
    for situation in found.situations[1:]:
        figures.append(flat(f"claim cost, {situation.name}", situation.times, gate=True))
    words = f"counts after {ended:,} jobs, never analysed"
    return [*figures, at_most(words, found.counts)]


def stream_figures(stream: open_loop.Stream) -> list[Figure]:
    figures = []
    for name, waits in stream.waits.items():
        words = f"ms (p50 {waits.p50:.2f}, max {waits.most:.1f})"
        gate = name in open_loop.OPERATIONS
        must = 100 if gate else None
        title = f"open loop, {RATE} jobs/s: {name}, p99"
        figures.append(at_most(title, waits.p99, words, must, gate=gate))
    share = stream.retries / stream.commits * 100
    words = f"% ({stream.retries:,} of {stream.commits:,})"
    return [*figures, at_most("… commits retried", share, words, 5, gate=True)]


def profile_section(found: dict[str, dict[str, float]]) -> str:
    lines = [
        "## Where a job's time goes",
        "",
        "Microseconds per job, one process alone, batches of 500.",
        "",
        "| step | enqueue | claim and complete |",
        "|---|---|---|",
    ]
    for step in found["drain"]:
        lines.append(f"| {step} | {found['enqueue'][step]:.1f} | {found['drain'][step]:.1f} |")
    return "\n".join([*lines, ""])


def plot(found: growth.Growth) -> None:
    base = found.situations[0].wall.p50
    points = [
        Point(
            s.name.replace(" ", "\n", 1).replace(", ", ",\n"),
            {"wall, p50": s.wall.p50, "wall, p95": s.wall.p95, "server": s.server},
        )
        for s in found.situations
    ]
    levels = {"must: p50 below this": 2 * base}
    draw(PLOT, "A claim of 100 jobs, by what lies beside them", points, levels)


async def main(size: Size) -> Outcome:
    found = Measured()
    with PostgresSetup() as setup:
        version = setup.server.sql("SHOW server_version;")
        await equal_rows(setup)
        grown = await growth.measure(setup, size.levels, size.ended, size.claims)
        plot(grown)
        setup.server.sql("CHECKPOINT;")  # the next rounds write into WAL files that exist already
        for _ in range(size.rounds):
            await one_round(setup, size, found)
        profiled = await profiles(setup, size.jobs)
        told = await bare_wake_up(setup, size.wakes)
        wake = await verbs.wake_up(await setup.schema("wake"), size.wakes)
        stream = open_loop.measure(await setup.schema("stream"), rate=RATE, seconds=size.stream_seconds)
    figures = [
        *rate_figures(found),
        *(
            Figure(words, ours, "ms", limit, must, goal, at_least=False)
            for words, ours, limit, must, goal in (
                ("enqueue → claimed in another process, p50", wake.p50, told.p50, 3, 2),
                ("… p99", wake.p99, told.p99, 15, 5),
            )
        ),
        *growth_figures(grown, size.ended),
        *stream_figures(stream),
    ]
    sections = [profile_section(profiled), f"![claim cost]({PLOT.name})\n"]
    return Outcome("PostgreSQL", version, figures, notes_of(found, stream), sections)


def notes_of(found: Measured, stream: open_loop.Stream) -> list[str]:
    limits = ", ".join(f"{step.rate:,.0f}" for step in found.steps["limit drain"])
    return [
        f"best of {len(found.one)} rounds; each ran the limit script and the verbs in turn",
        f"limit drain per round (drift of the machine): {limits}",
        "ratio: ours / limit at the same batch; awaited enqueues against the limit at batch 1 and one"
        " connection; CPU and WAL are medians",
        f"open loop: {stream.jobs:,} jobs, {open_loop.WORKERS} workers in {open_loop.PROCESSES}"
        " processes, counted from the moment each was due",
    ]
