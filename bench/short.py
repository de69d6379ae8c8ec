"""The short form: what share of the bare script we reach, on both stores, in under two minutes.

Exit 1 when any share has lost more than a third of what `results/short.json` has kept. `--keep` puts this
run's shares there instead: for whoever has made it faster, on a machine at rest.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # verify/postgres_server.py

import postgres_run
import sqlite_limit
import verbs
import worker_drain
from holdfast.sdk.open import open_registry
from postgres_setup import PostgresSetup
from worker_stores import Postgres, Sqlite, Store

KEPT = Path(__file__).parent / "results" / "short.json"
LOSS_MAX = 1 / 3
ROUNDS = 2
SLOTS = 1_000
ENQUEUE, DRAIN, WORKER = "bulk enqueue", "claim and complete 500", "drain by workers"


@dataclass
class Rates:
    """The best of all rounds, in jobs per second: of the bare script, and ours."""

    limit: dict[str, float] = field(default_factory=dict)
    ours: dict[str, float] = field(default_factory=dict)

    def shares(self) -> dict[str, float]:
        return {name: rate / self.limit[name] for name, rate in self.ours.items()}


def better(best: dict[str, float], name: str, rate: float) -> None:
    best[name] = max(best.get(name, 0.0), rate)


async def sqlite_verbs(store: Sqlite, jobs: int, rates: Rates) -> None:
    bare = sqlite_limit.measure(
        store.folder / f"bare-{len(list(store.folder.iterdir()))}.db", jobs=jobs, batch=verbs.CHUNK
    )
    better(rates.limit, ENQUEUE, bare.enqueue)
    better(rates.limit, DRAIN, bare.drain)
    registry = await open_registry(await store.fresh())
    better(rates.ours, ENQUEUE, await verbs.bulk_enqueue(registry, jobs))
    better(rates.ours, DRAIN, await verbs.drain(registry))
    await registry.close()


async def postgres_verbs(store: Postgres, jobs: int, rates: Rates) -> None:
    share = jobs // postgres_run.PROCESSES
    bare, ours = await store.fresh(), await store.fresh()
    steps: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {
        (ENQUEUE, "limit"): ("bare_enqueue", {"url": bare, "jobs": share, "batch": verbs.CHUNK}),
        (ENQUEUE, "ours"): ("enqueue", {"url": ours, "jobs": share}),
        (DRAIN, "limit"): ("bare_drain", {"url": bare, "batch": verbs.CHUNK}),
        (DRAIN, "ours"): ("drain", {"url": ours}),
    }
    for (name, whose), (role, order) in steps.items():
        better(getattr(rates, whose), name, postgres_run.measure_step(store.setup, role, order).rate)


async def measure(store: Store, jobs: int, by_verbs: Callable[[], Awaitable[None]], rates: Rates) -> None:
    """The bare script, the verbs and the workers take turns, so that noise meets all of them alike."""
    for _ in range(ROUNDS):
        await by_verbs()
        drain = await worker_drain.measure(
            store, worker_drain.JOBS["coroutines"], jobs, workers=store.workers, slots=SLOTS
        )
        better(rates.ours, WORKER, drain.rate)
    rates.limit[WORKER] = rates.limit[DRAIN]


async def main(jobs: int) -> dict[str, Rates]:
    found = {"SQLite": Rates(), "PostgreSQL": Rates()}
    with tempfile.TemporaryDirectory(
        prefix=".run-", dir=Path(__file__).parent, ignore_cleanup_errors=True
    ) as folder:
        sqlite = Sqlite(Path(folder))
        await measure(sqlite, jobs, lambda: sqlite_verbs(sqlite, jobs, found["SQLite"]), found["SQLite"])
        with PostgresSetup() as setup:
            postgres = Postgres(Path(folder), setup)
            rates = found["PostgreSQL"]
            await measure(postgres, jobs, lambda: postgres_verbs(postgres, jobs, rates), rates)
    return found


def shares_of(found: dict[str, Rates]) -> dict[str, float]:
    return {
        f"{store}, {name}": share for store, rates in found.items() for name, share in rates.shares().items()
    }


def lost(now: dict[str, float], kept: dict[str, float]) -> list[str]:
    """What has lost more than a third, or was not measured at all."""
    return [name for name, share in kept.items() if now.get(name, 0.0) < share * (1 - LOSS_MAX)]


def table(found: dict[str, Rates], kept: dict[str, float]) -> str:
    lines = ["| | ours /s | bare script /s | share | kept |", "|---|---|---|---|---|"]
    for store, rates in found.items():
        for name, share in rates.shares().items():
            before = kept.get(f"{store}, {name}")
            words = "" if before is None else f"{before:.2f}"
            cells = f"{rates.ours[name]:,.0f} | {rates.limit[name]:,.0f} | {share:.2f} | {words}"
            lines.append(f"| {store}, {name} | {cells} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="keep this run's shares")
    parser.add_argument("--jobs", type=int, default=30_000)
    asked = parser.parse_args()
    remembered: dict[str, float] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    measured = asyncio.run(main(asked.jobs))
    print(table(measured, remembered))
    if asked.keep:
        shares = {name: round(share, 3) for name, share in shares_of(measured).items()}
        KEPT.write_text(json.dumps(shares, indent=2) + "\n")
    elif losses := lost(shares_of(measured), remembered):
        print(f"\nLost more than a third: {'; '.join(losses)}.")
        sys.exit(1)
