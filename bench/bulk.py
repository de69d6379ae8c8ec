"""How many jobs a second one command on many jobs cancels, replays, validates and resumes.

    python bench/bulk.py [--jobs 20000] [--url URL]

Without a URL: a new SQLite file, then a PostgreSQL server of its own in memory. Every verb runs by a plan, as
`holdfast cancel --all` does, so that reading the pages and recognising what was replayed count as well.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast.core.bulk import BulkEffect, BulkVerb, JobSelection
from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.core.outputs import File, OutputPromise
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.outputs.inspector import LocalInspector
from holdfast.ports import Completion, Inspector, JobRequest, Registry
from holdfast.registry.bulk import BulkReport, plan_bulk, run_bulk
from holdfast.sdk.open import open_registry
from holdfast.system import SystemIds, machine_name
from verify.postgres_server import PostgresServer

ACTOR = "user:bench"
CHUNK = 1000
INSPECTED_SHARE = 20
"""Of so many jobs one is validated and resumed: these look for files, and take longer."""


async def run(registry: Registry, verb: BulkVerb, *, again: bool = False, queue: str = "default") -> None:
    """Run one plan on the jobs of a queue, and print its rate."""

    async def inspect(job: Job) -> Inspector:
        return inspector

    inspector = LocalInspector(registry, None, machine=machine_name(), name="bench")
    report = BulkReport()
    began, cpu = time.perf_counter(), time.process_time()
    plan = await plan_bulk(
        registry,
        SystemIds(),
        verb,
        JobSelection(queue=queue, states=_ENDED if verb is BulkVerb.REPLAY else ()),
        again=again,
        force=verb is BulkVerb.VALIDATE,
    )
    async for results in run_bulk(registry, plan, actor=ACTOR, inspect=inspect):
        for one in results:
            report.add(one)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    many = report.done + report.already + report.refused
    parts = {effect: getattr(report, effect) for effect in BulkEffect if getattr(report, effect)}
    told = ", ".join(f"{count:,} {effect}" for effect, count in parts.items())
    name = f"{verb} {'again' if again else ''}"
    print(f"  {name:<14} {many / seconds:>9,.0f}/s  {1e6 * cpu / max(many, 1):>6.0f} us CPU here  ({told})")


_ENDED = (State.CANCELLED,)


async def enqueue(registry: Registry, specs: Sequence[Spec]) -> None:
    for start in range(0, len(specs), CHUNK):
        some = specs[start : start + CHUNK]
        await registry.enqueue_many([JobRequest(spec=spec) for spec in some], actor=ACTOR)


async def promised(registry: Registry, jobs: int, folder: Path) -> None:
    """Jobs that are done and left one of the two files they promised."""
    specs = []
    for n in range(jobs):
        (folder / f"{n}-a").write_text("x")
        files = (File(f"{n}-a"), File(f"{n}-b"))
        specs.append(Spec(queue="promised", outputs=OutputPromise(files=files)))
    await enqueue(registry, specs)
    outcome = Success(where=f"{machine_name()}:{folder}")
    while grants := await registry.claim(["promised"], owner="w1", limit=CHUNK):
        await registry.complete_many([Completion(grant, outcome) for grant in grants])


async def measure(url: str, jobs: int) -> None:
    registry = await open_registry(url, create=True)
    try:
        await enqueue(registry, [Spec(kind="echo")] * jobs)
        await run(registry, BulkVerb.CANCEL)
        await run(registry, BulkVerb.REPLAY)
        await run(registry, BulkVerb.REPLAY, again=True)
        with tempfile.TemporaryDirectory() as folder:
            await promised(registry, jobs // INSPECTED_SHARE, Path(folder))
            await run(registry, BulkVerb.VALIDATE, queue="promised")
            await run(registry, BulkVerb.RESUME, queue="promised")
    finally:
        await registry.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--url", help="a store; else a new SQLite file, and a PostgreSQL of its own")
    chosen = parser.parse_args()
    if chosen.url:
        asyncio.run(measure(chosen.url, chosen.jobs))
        return
    with tempfile.TemporaryDirectory() as folder:
        print("SQLite, a file on this disk")
        asyncio.run(measure(f"sqlite:///{folder}/jobs.db", chosen.jobs))
    with PostgresServer(15, fast=True) as server:
        print("PostgreSQL, in memory")
        asyncio.run(measure(server.url(), chosen.jobs))


if __name__ == "__main__":
    main()
