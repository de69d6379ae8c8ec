"""Growth: what a claim of 100 costs beside ever more jobs, and beside rows that are dead or ended.

The jobs that ended lie in a database of their own: how long PostgreSQL must keep dead rows is decided by
the oldest transaction of the same database, and the one that is held open here must not touch the rest.
"""

import sys
import time
from dataclasses import dataclass

import asyncpg

import verbs
from holdfast.sdk.open import open_registry
from postgres_limit import Bare, enqueue
from postgres_setup import PostgresSetup
from process_group import run_together

BATCH = 500
WAITING = 1_000
PASSED = "ended"


@dataclass(frozen=True)
class Situation:
    """What a claim of 100 costs somewhere: on the wall, in the server, and how often the base's."""

    name: str
    wall: verbs.Spread
    server: float
    first: float
    times: float


@dataclass(frozen=True)
class Growth:
    """All situations, and how long `counts` takes after a drain, in milliseconds."""

    situations: list[Situation]
    counts: float


async def measure(setup: PostgresSetup, levels: tuple[int, ...], ended: int, claims: int) -> Growth:
    setup.configure("autovacuum", "off")
    urls = {f"level_{level}": await _filled(setup, level) for level in levels}
    names = [f"{level:,} queued" for level in levels]
    found = await _costs(setup, dict(zip(names, urls.items(), strict=True)), claims)
    base = next(iter(urls.items()))
    growth = await _among_the_ended(setup, base, ended, claims)
    setup.configure("autovacuum", "on")
    setup.drop(*urls)
    setup.server.drop_database(PASSED)
    return Growth(found + growth.situations, growth.counts)


async def _filled(setup: PostgresSetup, queued: int) -> str:
    url = await setup.schema(f"level_{queued}")
    bare = await Bare.open(url)
    await enqueue(bare, queued, min(queued, BATCH))
    await bare.close()
    return url


async def _costs(setup: PostgresSetup, stores: dict[str, tuple[str, str]], claims: int) -> list[Situation]:
    """The cost in each store, which are named by what surrounds their jobs; the first is the base."""
    schemas = [schema for schema, _ in stores.values()]
    before = [setup.statement_seconds(schema) for schema in schemas]
    costs = await verbs.claim_costs([url for _, url in stores.values()], claims)
    spent = [setup.statement_seconds(s) - b for s, b in zip(schemas, before, strict=True)]
    found = []
    for name, cost, seconds in zip(stores, costs, spent, strict=True):
        server = seconds / (claims + 1) * 1000
        times = cost.wall.p50 / costs[0].wall.p50
        found.append(Situation(name, cost.wall, server, cost.first, times))
        print(f"claim of 100, {name}: p50 {cost.wall.p50:.2f} ms", file=sys.stderr)
    return found


async def _among_the_ended(setup: PostgresSetup, base: tuple[str, str], ended: int, claims: int) -> Growth:
    """1,000 jobs that wait behind many that have just ended: while a transaction from before keeps every
    dead row, when it has gone, and after a vacuum."""
    setup.server.create_database(PASSED)
    url = await setup.schema(PASSED, PASSED)
    half = {"url": url, "jobs": ended // 2, "batch": BATCH}
    run_together([("bare_enqueue", half)] * 2)
    holder = await asyncpg.connect(setup.server.url(PASSED))
    await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
    run_together([("bare_retire", {**half, "first": first}) for first in (1, ended // 2 + 1)])
    counts = await _counts(url)
    bare = await Bare.open(url)
    await enqueue(bare, WAITING, BATCH)
    await bare.close()
    situations = []
    for name in ("dead, transaction open", "dead, not vacuumed", "ended, vacuumed"):
        if name == "dead, not vacuumed":
            await holder.close()
        if name == "ended, vacuumed":
            setup.server.sql("VACUUM;", PASSED)
        stores = {"base": base, f"{ended:,} {name}": (PASSED, url)}
        situations += (await _costs(setup, stores, claims))[1:]
    return Growth(situations, counts)


async def _counts(url: str) -> float:
    """Milliseconds of the first `counts` on tables that nobody has ever analysed."""
    registry = await open_registry(url)
    await registry.now()
    started = time.perf_counter()
    counts = await registry.counts()
    seconds = time.perf_counter() - started
    await registry.close()
    assert sum(counts.values()) > 0
    return seconds * 1000
