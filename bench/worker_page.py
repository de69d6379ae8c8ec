"""The page of the worker benchmark: each figure beside what PERFORMANCE.md asks for."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

import verbs
from report import Figure, at_most
from worker_drain import Drain
from worker_load import Idle, Talk
from worker_stores import Store
from worker_waits import Recovery


@dataclass(frozen=True)
class Targets:
    """What is asked of one store: must and goal of each."""

    drain: tuple[float, float]
    share: float | None
    p50: tuple[float, float]
    p99: tuple[float, float]


TARGETS = {
    "SQLite": Targets((30_000, 50_000), None, (5, 1), (20, 3)),
    "PostgreSQL": Targets((28_000, 45_600), 0.6, (3, 2), (15, 5)),
}
CPU = (60, 25)
PROCESS_RATE = 500
IDLE_PERCENT, IDLE_MEGABYTES = 1, 60
QUERIES = (2, 0.5)
OUTPUT_RATE = 10
RECOVERY_SECONDS = (2, 0.5)
WAYS = {
    "elsewhere": "kill -9 of a whole worker → running in another",
    "neighbour": "kill -9 of a whole worker → running in a neighbour with the same spool",
    "restarted": "kill -9 of a whole worker → running in one started then, with the same spool",
    "runner": "kill -9 of the runner alone → running again",
}


@dataclass
class Limits:
    """What the bare script drained before and after the workers did, in jobs per second."""

    before: float
    after: float = 0.0

    @property
    def best(self) -> float:
        return max(self.before, self.after)


@dataclass
class Page:
    """All that was found, and all that could not be."""

    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def drain_figures(store: Store, drains: dict[int | None, Drain], limits: Limits) -> list[Figure]:
    """The default, and the best of all that was tried."""
    best = max(drains, key=lambda slots: drains[slots].rate)
    workers = f"{store.workers} worker{'s' * (store.workers > 1)}"
    tried = ", ".join(f"{slots}: {drain.rate:,.0f}" for slots, drain in drains.items() if slots)
    return [
        *_drain(f"{store.name}: drain, {workers}, by default", drains[None], store, limits),
        *_drain(f"{store.name}: drain, {workers}, -c {best or 'default'}", drains[best], store, limits),
        Figure("… by -c", drains[best].rate, f"/s at best ({tried})"),
    ]


def _drain(words: str, drain: Drain, store: Store, limits: Limits) -> Iterator[Figure]:
    targets = TARGETS[store.name]
    yield Figure(words, drain.rate, "/s", limits.best, *targets.drain)
    if targets.share is not None:
        yield Figure("… share of the limit", drain.rate / limits.best, "", goal=targets.share)
    split = ", ".join(f"{role} {used:.1f}" for role, used in sorted(drain.cpu.items()))
    yield at_most("… CPU per job, everything in", drain.whole, f"µs ({split})", *CPU)
    if drain.server:
        yield at_most("… CPU of the server per job", drain.server, "µs")


def other_figures(store: Store, found: dict[str, Drain], limits: Limits) -> list[Figure]:
    """Plain functions, in threads and in processes of their own."""
    threads, processes = found["threads"], found["processes"]
    name = store.name
    return [
        Figure(f"{name}: drain, sync handlers in threads", threads.rate, "/s", limits.best),
        at_most("… CPU per job", threads.whole, "µs"),
        Figure(
            f'{name}: drain, isolation="process", one worker',
            processes.rate,
            "/s",
            limits.best,
            PROCESS_RATE,
            gate=True,
        ),
        Figure("… after the first tenth", processes.settled, "/s", must=PROCESS_RATE),
        at_most("… CPU per job", processes.whole, "µs"),
    ]


def latency_figures(store: Store, found: verbs.Spread, limit: verbs.Spread | None) -> list[Figure]:
    """Beside them, where there is one: the bare script, from an enqueue to the claim elsewhere."""
    targets = TARGETS[store.name]
    words = f"{store.name}: idle, enqueue → handler begun, p50"
    rows: list[tuple[str, str, str, tuple[float | None, float | None]]] = [
        (words, "p50", "ms", targets.p50),
        ("… p95", "p95", "ms", (None, None)),
        ("… p99", "p99", f"ms (max {found.most:.1f})", targets.p99),
    ]
    return [
        Figure(
            words,
            getattr(found, name),
            unit,
            None if limit is None else getattr(limit, name),
            must,
            goal,
            at_least=False,
        )
        for words, name, unit, (must, goal) in rows
    ]


def idle_figures(store: Store, idle: Idle) -> Iterator[Figure]:
    words = f"{store.name}: idle worker, CPU of one core"
    yield at_most(words, idle.cpu_percent, "%", IDLE_PERCENT, gate=True)
    split = ", ".join(_sizes(idle))
    yield at_most("… RSS, all processes", idle.rss, f"MB ({split})", IDLE_MEGABYTES)
    yield at_most("… PSS, all processes", idle.pss, "MB", IDLE_MEGABYTES, gate=True)
    if idle.queries is not None:
        yield at_most("… queries", idle.queries, "/s", *QUERIES, gate=True)
    if idle.transactions is not None:
        yield at_most("… transactions", idle.transactions, "/s", *QUERIES)


def _sizes(idle: Idle) -> Iterator[str]:
    ranked = sorted(idle.memory, key=lambda process: process.role)
    for role, processes in groupby(ranked, key=lambda process: process.role):
        yield f"{role} {sum(process.rss for process in processes) / 1e6:.1f}"


def output_figures(store: Store, how: str, talk: Talk) -> list[Figure]:
    words = f"{store.name}: output of a {how}, until it has succeeded"
    lost = "… lines lost or changed"
    return [
        Figure(words, talk.rate, "MB/s", must=OUTPUT_RATE, gate=True),
        at_most(lost, talk.wrong, f"of {talk.lines:,}", 0, gate=True),
    ]


def recovery_figures(store: Store, how: str, found: Recovery, lease: float) -> list[Figure]:
    worst = max(found.aloud, found.silent)
    unit = f"s (with output {found.aloud:.2f}, without {found.silent:.2f})"
    words = f"{store.name}: {WAYS[how]}"
    if how == "runner":
        return [at_most(words, worst, unit)]
    must, goal = (lease + more for more in RECOVERY_SECONDS)
    return [at_most(f"{words}, lease {lease:g} s", worst, unit, must, goal, gate=True)]


def start_figures(store: Store, found: list[float]) -> list[Figure]:
    words = f"{store.name}: from `holdfast worker` to its first job"
    return [at_most(words, found[len(found) // 2], f"s (max {found[-1]:.2f})")]


EXPLANATION = """\
## What was measured

Everything goes through the public SDK and real `holdfast worker` processes; nothing is made less durable.

- Drain: all jobs wait before a worker is started. The rate counts from the first claim to the last end, as
  the store recorded them, so that the start of a worker is not in it. Its limit is the bare script of the
  same store, which claims and completes 500 at a time and runs nothing; it ran before and after.
- CPU per job is that of the worker, its process supervisor and all runners between those moments.
- With `isolation="process"` the runners are started when the first jobs are there: their start is part of
  the rate, and not of the one after the first tenth.
- Idle latency: one process enqueues after irregular pauses, the handler answers when it began, by the
  clock that all processes of a machine share. Its limit on PostgreSQL is the bare script's, from an enqueue
  with NOTIFY to the claim in another process.
- An idle worker has loaded an app, run one job, and has had three seconds of rest. RSS counts the pages that
  its processes share once for each of them, PSS once. Queries are the statements of
  `pg_stat_statements` without BEGIN and COMMIT, transactions those of `pg_stat_database`, which lags by some
  seconds.
- Output: numbered lines of 100 bytes, at full speed, from the enqueue until the client heard that the job
  had succeeded; then every line was read back and compared.
- Recovery: eight jobs run in a worker whose processes are killed with signal 9; half of them have said
  something, so that the spool knows of them. The wait is that of the last one, and includes the back-off of
  a crash, up to half a second.
"""
