"""Run jobs through real workers on each store, beside the bare script, and print one table.

Exit 1 when a gate is missed or a figure could not be measured. `--quick` is smaller.
"""

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # verify/postgres_server.py

import worker_drain
import worker_load
import worker_page
import worker_waits
from postgres_setup import PostgresSetup
from report import Figure, Outcome, conclude
from worker_page import Limits, Page
from worker_stores import Postgres, Sqlite, Store

HERE = Path(__file__).parent
STORES = ("sqlite", "postgres")


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    jobs: int
    slots: tuple[int | None, ...]
    thread_jobs: int
    process_jobs: int
    latencies: int
    idle_seconds: float
    megabytes: int
    lease: float
    starts: int


QUICK = Size(10_000, (None, 500), 3_000, 1_500, 50, 5, 10, 10, 3)
FULL = Size(100_000, (None, 32, 200, 500, 1_000), 30_000, 10_000, 300, 20, 100, 10, 5)
SMOKE = Size(3_000, (None,), 0, 300, 0, 0, 2, 0, 0)


class Run:
    """One store, figure after figure. What cannot be measured is said, and the rest goes on."""

    def __init__(self, store: Store, size: Size, page: Page) -> None:
        self.store = store
        self.size = size
        self.page = page

    async def whole(self) -> None:
        name = self.store.name
        steps: dict[str, Callable[[], Awaitable[Iterable[Figure]]]] = {
            "drains": self.drains,
            "idle latency": self.latency,
            "an idle worker": self.idle,
            "output of a command": lambda: self.output("command"),
            "output of a function": lambda: self.output("function"),
            **{f"recovery, {how}": self._recovery(how) for how in worker_page.WAYS},
            "start-up": self.start,
        }
        for what, step in steps.items():
            try:
                self.page.figures += await step()
            except Exception as error:
                words = f"{name}: {what}: {type(error).__name__}: {error}"
                print(f"NOT MEASURED: {words}", file=sys.stderr)
                self.page.missing.append(words.splitlines()[0])

    async def drains(self) -> list[Figure]:
        store, size = self.store, self.size
        limits = Limits(await store.limit(size.jobs))
        work, many = worker_drain.JOBS, store.workers
        found = {
            slots: await worker_drain.measure(store, work["coroutines"], size.jobs, workers=many, slots=slots)
            for slots in size.slots
        }
        others = {
            "threads": await worker_drain.measure(store, work["threads"], size.thread_jobs, workers=many),
            "processes": await worker_drain.measure(store, work["processes"], size.process_jobs, workers=1),
        }
        limits.after = await store.limit(size.jobs)
        self.page.notes.append(
            f"{store.name}: the limit script drained {limits.before:,.0f}/s before and"
            f" {limits.after:,.0f}/s after the workers (drift of the machine:"
            f" {limits.after / limits.before:.2f})"
        )
        return [
            *worker_page.drain_figures(store, found, limits),
            *worker_page.other_figures(store, others, limits),
        ]

    async def latency(self) -> list[Figure]:
        found = await worker_waits.idle_latency(self.store, self.size.latencies)
        limit = await self.store.wake_limit(self.size.latencies)
        return worker_page.latency_figures(self.store, found, limit)

    async def idle(self) -> list[Figure]:
        found = await worker_load.idle(self.store, self.size.idle_seconds)
        return list(worker_page.idle_figures(self.store, found))

    async def output(self, how: str) -> list[Figure]:
        found = await worker_load.output(self.store, how, self.size.megabytes)
        return worker_page.output_figures(self.store, how, found)

    def _recovery(self, how: str) -> Callable[[], Awaitable[list[Figure]]]:
        async def recovery() -> list[Figure]:
            found = await worker_waits.recovery(self.store, how, self.size.lease)
            return worker_page.recovery_figures(self.store, how, found, self.size.lease)

        return recovery

    async def start(self) -> list[Figure]:
        found = await worker_waits.start_up(self.store, self.size.starts)
        return worker_page.start_figures(self.store, found)


async def main(stores: Iterable[str], size: Size) -> tuple[Outcome, list[str]]:
    page = Page(notes=["one run; ratio: ours / the bare script at batch 500, the better of its two runs"])
    versions = []
    for name in stores:
        with ExitStack() as stack:
            folder = _folder(stack)
            store: Store = (
                Sqlite(folder) if name == "sqlite" else Postgres(folder, stack.enter_context(PostgresSetup()))
            )
            versions.append(store.version)
            await Run(store, size, page).whole()
    notes = [*page.notes, *(f"**NOT MEASURED**: {words}" for words in page.missing)]
    outcome = Outcome("Worker", ", ".join(versions), page.figures, notes, [worker_page.EXPLANATION])
    return outcome, page.missing


async def smoke() -> dict[str, float]:
    """Three figures on SQLite within seconds, for the test suite."""
    with ExitStack() as stack:
        store, work = Sqlite(_folder(stack)), worker_drain.JOBS
        drain = await worker_drain.measure(store, work["coroutines"], SMOKE.jobs, workers=1)
        apart = await worker_drain.measure(store, work["processes"], SMOKE.process_jobs, workers=1)
        talks = {
            how: await worker_load.output(store, how, SMOKE.megabytes) for how in ("command", "function")
        }
    return {
        "jobs per second": drain.rate,
        "microseconds per job": drain.whole,
        "jobs per second in processes": apart.rate,
        **{f"megabytes per second by {how}": talk.rate for how, talk in talks.items()},
        **{f"wrong lines by {how}": talk.wrong for how, talk in talks.items()},
    }


def _folder(stack: ExitStack) -> Path:
    made = tempfile.TemporaryDirectory(prefix=".run-", dir=HERE, ignore_cleanup_errors=True)
    return Path(stack.enter_context(made))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=(*STORES, "both"), default="both")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="three figures as JSON, no page")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if asked.smoke:
        print(json.dumps(asyncio.run(smoke())))
        sys.exit()
    chosen = STORES if asked.store == "both" else (asked.store,)
    result, missing = asyncio.run(main(chosen, QUICK if asked.quick else FULL))
    sys.exit(max(conclude("worker", result, quick=asked.quick), bool(missing)))
