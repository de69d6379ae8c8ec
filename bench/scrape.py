"""A scrape of /metrics: how long it takes with 200 queues and 200 kinds, at rest and under load.

python bench/scrape.py [--jobs N] [--save]
"""

import argparse
import asyncio
import re
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import uvloop

from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import Completion, JobRequest
from holdfast.sdk.open import open_local, open_registry
from report import HERE, Figure, Outcome, at_most, machine, row
from wire import server
from wire_load import enqueues

QUEUES = 200
BATCH = 500
CLIENTS = 64
SCRAPES = 100


async def fill(url: str, jobs: int) -> None:
    """So many jobs that wait, all over the queues."""
    registry = await open_local(url)
    specs = [Spec(queue=f"queue-{n}", kind=f"kind-{n}") for n in range(QUEUES)]
    for start in range(0, jobs, BATCH):
        requests = [JobRequest(spec=specs[n % QUEUES]) for n in range(start, min(start + BATCH, jobs))]
        await registry.enqueue_many(requests, actor="user:bench")
    await registry.close()


async def work(url: str) -> None:
    """Let the server count some of every kind, so that each has all its lines."""
    registry = await open_registry(url)
    for n in range(QUEUES):
        grants = await registry.claim([f"queue-{n}"], owner=f"worker-{n}", limit=2)
        await registry.complete_many([Completion(grant, Success()) for grant in grants[:1]])
    await registry.close()


def scrape(url: str) -> tuple[float, str]:
    """Seconds, and the page."""
    began = time.perf_counter()
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read()
    return time.perf_counter() - began, text.decode()


def used(url: str) -> float:
    """Milliseconds of a processor that the server has used."""
    [seconds] = re.findall(r"^process_cpu_seconds_total (\S+)", scrape(url)[1], re.MULTILINE)
    return float(seconds) * 1e3


def scrapes(url: str) -> list[float]:
    """Milliseconds of many scrapes, from the shortest to the longest."""
    found = []
    for _ in range(SCRAPES):
        found.append(scrape(url)[0] * 1e3)
        time.sleep(0.02)
    return sorted(found)


async def busy(url: str, seconds: float) -> tuple[float, list[float]]:
    """Jobs enqueued in a second while somebody scrapes, and how long that took."""
    loading = asyncio.create_task(enqueues(url, seconds, CLIENTS))
    times = await asyncio.to_thread(scrapes, url)
    return await loading, times


def waits(name: str, times: list[float]) -> list[Figure]:
    return [
        at_most(f"{name}: p50", times[len(times) // 2], must=50, gate=True),
        at_most("… p99", times[int(len(times) * 0.99)]),
    ]


def measure(jobs: int) -> tuple[list[Figure], int]:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'jobs.db'}"
        uvloop.run(fill(url, jobs))
        with server(url) as (address, _):
            uvloop.run(work(address))
            lines = scrape(address)[1].count("\n")
            before = used(address)
            found = waits(f"{jobs:,} jobs in {QUEUES} queues, at rest", scrapes(address))
            each = (used(address) - before) / (SCRAPES + 1)
            found.append(at_most("… of the processor, on average", each, must=50, gate=True))
            alone = uvloop.run(enqueues(address, 6, CLIENTS))
            beside, times = uvloop.run(busy(address, 6))
            found += waits(f"the same while {CLIENTS} clients enqueue", times)
            found.append(Figure("jobs enqueued while scraped all the time", beside, "/s", alone))
    return found, lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--save", action="store_true")
    asked = parser.parse_args()
    found, lines = measure(asked.jobs)
    outcome = Outcome("SQLite", "in a file", found, [f"the page has {lines:,} lines"])
    text = "\n".join(
        [
            "# Scrapes of /metrics",
            "",
            *(f"- {name}: {value}" for name, value in machine(outcome).items()),
            *(f"- {note}" for note in outcome.notes),
            "",
            "| figure | ours | limit | ratio | must | goal |",
            "|---|---|---|---|---|---|",
            *map(row, found),
            "",
        ]
    )
    print(text)
    if asked.save:
        (HERE / "results" / "scrape.md").write_text(text, encoding="utf-8")
    return int(any(figure.missed for figure in found))


if __name__ == "__main__":
    sys.exit(main())
