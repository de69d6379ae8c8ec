"""Drains: jobs that wait already, and how fast workers run them all."""

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import worker_app
from holdfast import AsyncClient, State
from holdfast.runner.call import Call
from worker_fleet import Fleet, NotMeasured, fleet
from worker_stores import Store

CHUNK = 1_000
SAMPLE_SECONDS = 0.02
COUNT_EVERY = 10
PATIENCE_SECONDS = 300.0
SETTLED = 0.1

Make = Callable[[int], Call[None]]


@dataclass(frozen=True)
class Drain:
    """Jobs per second from the first claim to the last end, and after the first tenth had ended; and
    microseconds of CPU per job, by role and of the store's server."""

    rate: float
    settled: float
    cpu: dict[str, float]
    server: float

    @property
    def whole(self) -> float:
        return sum(self.cpu.values())


@dataclass(frozen=True)
class Sample:
    at: float
    workers: dict[str, float]
    server: float


async def measure(store: Store, make: Make, jobs: int, *, workers: int, slots: int | None = None) -> Drain:
    """Enqueue them all, start the workers, and let them run dry."""
    url = await store.fresh()
    async with fleet(url, store.folder / "drain") as (workshop, client):
        for start in range(0, jobs, CHUNK):
            await client.enqueue_many(make(n) for n in range(start, min(start + CHUNK, jobs)))
        for _ in range(workers):
            workshop.start(*(["-c", str(slots)] if slots else []))
        samples = await _sampled(store, workshop, client, jobs)
        first, ends = await _moments(client, jobs)
    drain = _reckoned(first, ends, samples)
    words = f"{store.name}: {jobs:,} x {make(0).kind}, -c {slots or 'default'}, {workers} workers"
    print(f"{words}: {drain.rate:,.0f}/s, {drain.whole:.0f} µs CPU per job", file=sys.stderr)
    return drain


async def _sampled(store: Store, workshop: Fleet, client: AsyncClient, jobs: int) -> list[Sample]:
    """What has been used, again and again, until every job has succeeded."""
    samples: list[Sample] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        samples.append(Sample(time.time(), workshop.cpu_seconds(), store.server_cpu_seconds()))
        if len(samples) % COUNT_EVERY == 0:
            for worker in workshop.workers:
                worker.check()
            if (await client.counts("default")).get(State.SUCCEEDED, 0) == jobs:
                return samples
        await asyncio.sleep(SAMPLE_SECONDS)
    raise NotMeasured(f"{jobs} jobs are not done after {PATIENCE_SECONDS:.0f} s")


async def _moments(client: AsyncClient, jobs: int) -> tuple[datetime, list[datetime]]:
    """When the first job was claimed, and when each ended, by the store."""
    ends: list[datetime] = []
    first = ""
    async for page in client.pages({"queue": "default"}):
        first = first or page[0].job_id
        ends += [job.ended_at for job in page if job.ended_at and job.attempt == 1]
    if len(ends) != jobs:
        raise NotMeasured(f"{len(ends)} of {jobs} jobs have ended in their first attempt")
    history = await client.registry.history(first)
    claimed = next(event.occurred_at for event in history if event.event_type == "job_claimed")
    return claimed, sorted(ends)


def _reckoned(first: datetime, ends: list[datetime], samples: list[Sample]) -> Drain:
    began, last = first.timestamp(), ends[-1].timestamp()
    skipped = int(len(ends) * SETTLED)
    base = next((s for s in reversed(samples) if s.at <= began), samples[0])
    each = 1e6 / len(ends)
    used = {role: now - base.workers[role] for role, now in samples[-1].workers.items()}
    return Drain(
        len(ends) / (last - began),
        (len(ends) - skipped) / max(last - ends[skipped].timestamp(), 0.001),
        {role: seconds * each for role, seconds in used.items()},
        (samples[-1].server - base.server) * each,
    )


JOBS: dict[str, Make] = {
    "coroutines": worker_app.nothing.call,
    "threads": worker_app.nothing_in_a_thread.call,
    "processes": worker_app.nothing_apart.call,
}
