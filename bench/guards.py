"""What a fence costs: each pattern of asking, each resource that compares, and nobody refused in error.

python bench/guards.py [--quick]
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # verify/postgres_server.py

from guards_load import false_refusals
from guards_writes import WRITES, Cost
from holdfast.core.spec import Spec
from holdfast.fencing import (
    Authority,
    CachedAuthority,
    Fence,
    Guard,
    RegistryAuthority,
    SubscribedAuthority,
)
from holdfast.ports import JobRequest, Registry
from holdfast.sdk.open import open_registry
from postgres_setup import PostgresSetup
from report import Figure, Outcome, at_most, conclude

JOBS = 64
PATTERNS = ("marks only", "authoritative", "cached", "subscribed")


@asynccontextmanager
async def authority(pattern: str, registry: Registry) -> AsyncIterator[Authority | None]:
    """What is asked in this pattern."""
    match pattern:
        case "authoritative":
            yield RegistryAuthority(registry)
        case "cached":
            yield CachedAuthority(registry)
        case "subscribed":
            async with SubscribedAuthority(registry) as subscribed:
                for _ in range(500):
                    await asyncio.sleep(0.01)
                    if not subscribed.silent:
                        break
                yield subscribed
        case _:
            yield None


async def fences(registry: Registry) -> list[Fence]:
    """Fences of jobs that are all held."""
    for n in range(JOBS):
        spec = Spec(lock=f"account-{n}")
        await registry.enqueue(JobRequest(spec=spec, job_id=f"job-{n}"), actor="user:bench")
    grants = await registry.claim(["default"], owner="bench", limit=JOBS)
    return [
        Fence(
            resource=str(grant.job.spec.lock),
            token=grant.fencing_token,
            job_id=grant.job_id,
            lock=grant.job.spec.lock,
        )
        for grant in grants
    ]


async def microseconds(check: Callable[[Fence], Awaitable[None]], held: list[Fence]) -> float:
    """What one check takes, in the best of three rounds, one after the other."""
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        for fence in held:
            await check(fence)
        times.append(time.perf_counter() - begun)
    return min(times) / len(held) * 1e6


async def together(check: Callable[[Fence], Awaitable[None]], held: list[Fence]) -> float:
    """What one of many checks costs that come at once."""
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        for start in range(0, len(held), JOBS):
            await asyncio.gather(*map(check, held[start : start + JOBS]))
        times.append(time.perf_counter() - begun)
    return min(times) / len(held) * 1e6


async def patterns(name: str, url: str, rounds: int) -> list[Figure]:
    registry = await open_registry(url)
    try:
        held = await fences(registry) * rounds
        found = []
        for pattern in PATTERNS:
            async with authority(pattern, registry) as asked:
                guard = Guard(asked)
                for fence in held[:JOBS]:
                    await guard.check(fence)
                alone = await microseconds(guard.check, held)
                many = await together(guard.check, held)
            found.append(at_most(f"{name}: {pattern}, one check", alone, "µs"))
            found.append(at_most(f"… {JOBS} at once, each", many, "µs"))
        return found
    finally:
        await registry.close()


async def under_load(name: str, url: str, writes: int) -> list[Figure]:
    """No owner is refused while it holds its job, whoever else comes and goes."""
    found = []
    for pattern in PATTERNS:
        registry = await open_registry(url)
        try:
            async with authority(pattern, registry) as asked:
                load = await false_refusals(registry, Guard(asked), pattern, writes)
        finally:
            await registry.close()
        title = f"{name}: {pattern}, owners refused in {load.writes:,} writes"
        found.append(at_most(title, load.refused, "", must=0, gate=True))
        found.append(at_most(f"… meanwhile, grants of {load.jobs} jobs", load.grants, ""))
        passed = load.stale - load.stale_refused
        title = f"… and of {load.stale:,} stale tokens, let through"
        found.append(at_most(title, passed, "", must=0, gate=True))
    return found


def figures(cost: Cost) -> list[Figure]:
    return [
        at_most(f"{cost.name}: a write without a fence", cost.bare, "µs"),
        at_most("… with one, in the same step", cost.fenced, "µs"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    rounds, writes, count = (4, 2_000, 50) if quick else (200, 100_000, 2_000)
    with PostgresSetup() as setup, tempfile.TemporaryDirectory() as folder:
        found: list[Figure] = []
        for name, url in (
            ("SQLite", f"sqlite:///{Path(folder) / 'cost.db'}"),
            ("PostgreSQL", asyncio.run(setup.schema("cost"))),
        ):
            found += asyncio.run(patterns(name, url, rounds))
        for write in WRITES:
            found += figures(asyncio.run(write(Path(folder), setup, count)))
        for name, url in (
            ("SQLite", f"sqlite:///{Path(folder) / 'load.db'}"),
            ("PostgreSQL", asyncio.run(setup.schema("load"))),
        ):
            found += asyncio.run(under_load(name, url, writes))
        version = setup.server.sql("SHOW server_version;").strip()
    notes = [
        "a check asks what is known of the registry and compares with the resource's mark, in memory",
        "cached and subscribed: what they know already, which is nearly every write of a job",
    ]
    return conclude("guards", Outcome("Guards", version, found, notes), quick=quick)


if __name__ == "__main__":
    sys.exit(main())
