"""Our verbs on whatever store a URL names, doing what the limit scripts do, and what those cannot show:
waiting, the cost of one call, and how both spread."""

import asyncio
import time
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest, Registry
from holdfast.ports.registry import Completion
from holdfast.sdk.open import open_registry
from process_group import Group

ACTOR = "user:bench"
CHUNK = 500
LEASE = timedelta(hours=1)


@dataclass(frozen=True)
class Spread:
    """Rate per second, and the waits of single calls in milliseconds."""

    rate: float
    p50: float
    p95: float
    p99: float
    most: float


def requests(start: int, many: int) -> list[JobRequest]:
    return [
        JobRequest(spec=Spec(kind="echo", payload=msgspec.Raw(b'{"n":%d,"argv":["echo","hello"]}' % n)))
        for n in range(start, start + many)
    ]


def spread(waits: list[float], seconds: float = 1.0) -> Spread:
    ranked = sorted(waits)
    parts = (ranked[int((len(ranked) - 1) * q)] * 1000 for q in (0.5, 0.95, 0.99, 1.0))
    return Spread(len(waits) / seconds, *parts)


async def bulk_enqueue(registry: Registry, jobs: int) -> float:
    """Jobs per second by enqueue_many in chunks; making the requests is the caller's time."""
    seconds = 0.0
    for start in range(0, jobs, CHUNK):
        chunk = requests(start, CHUNK)
        started = time.perf_counter()
        await registry.enqueue_many(chunk, actor=ACTOR)
        seconds += time.perf_counter() - started
    return jobs / seconds


async def drain_all(registry: Registry) -> int:
    """Claim 500 at a time and complete them in one call; answers how many there were."""
    done = 0
    while grants := await registry.claim(["default"], owner="w1", limit=CHUNK):
        await registry.complete_many([Completion(grant, Success()) for grant in grants])
        done += len(grants)
    return done


async def drain(registry: Registry) -> float:
    """Jobs per second."""
    started = time.perf_counter()
    return await drain_all(registry) / (time.perf_counter() - started)


async def awaited_enqueues(registry: Registry, jobs: int, clients: int) -> Spread:
    """Each client enqueues one job, waits for the answer, and goes on."""
    waits: list[float] = []

    async def client() -> None:
        for request in requests(0, jobs // clients):
            started = time.perf_counter()
            await registry.enqueue(request, actor=ACTOR)
            waits.append(time.perf_counter() - started)

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return spread(waits, time.perf_counter() - started)


async def single_claims(registry: Registry, jobs: int, clients: int = 64) -> Spread:
    """Clients that claim one job at a time until none is left."""
    await bulk_enqueue(registry, jobs)
    waits: list[float] = []

    async def client(owner: str) -> None:
        while True:
            started = time.perf_counter()
            grants = await registry.claim(["default"], owner=owner, lease=LEASE)
            if not grants:
                return
            waits.append(time.perf_counter() - started)

    started = time.perf_counter()
    await asyncio.gather(*(client(f"w{n}") for n in range(clients)))
    return spread(waits, time.perf_counter() - started)


@dataclass(frozen=True)
class Cost:
    """Milliseconds of a claim: by the clock on the wall, and of this process's CPU alone."""

    wall: Spread
    cpu: float
    first: float


async def claim_costs(urls: list[str], claims: int = 60) -> list[Cost]:
    """What a claim of 100 costs in each store; 100 new jobs follow, so that its level stays.

    The stores take turns, so that whatever else the machine does meets all of them alike. The first claim
    of each, which may have to clear up, is told apart.
    """
    registries = [await open_registry(url) for url in urls]
    waits: list[list[float]] = [[] for _ in urls]
    works: list[list[float]] = [[] for _ in urls]
    for _ in range(claims + 1):
        for registry, wait, work in zip(registries, waits, works, strict=True):
            started, worked = time.perf_counter(), time.process_time()
            grants = await registry.claim(["default"], owner="w1", limit=100, lease=LEASE)
            wait.append(time.perf_counter() - started)
            work.append(time.process_time() - worked)
            assert len(grants) == 100
            await registry.enqueue_many(requests(0, 100), actor=ACTOR)
    for registry in registries:
        await registry.close()
    return [
        Cost(spread(wait[1:]), spread(work[1:]).p50, wait[0] * 1000)
        for wait, work in zip(waits, works, strict=True)
    ]


async def wake_up(url: str, jobs: int) -> Spread:
    """From before an enqueue here to the grant in the hand of another process that waits."""
    registry = await open_registry(url)
    with Group([("wake", {"url": url, "jobs": jobs})]) as group:
        group.go()
        await asyncio.sleep(0.5)
        for n in range(jobs):
            await asyncio.sleep(0.01 + n % 7 * 0.001)
            payload = msgspec.Raw(b"%d" % time.monotonic_ns())
            await registry.enqueue(JobRequest(spec=Spec(payload=payload)), actor=ACTOR)
        [answer] = await asyncio.to_thread(group.answers)
    await registry.close()
    return spread(answer.found)


async def awaken(registry: Registry, jobs: int) -> list[float]:
    """The other process: seconds from each job's enqueue to its grant."""
    waits: list[float] = []
    while len(waits) < jobs:
        mark = registry.change_mark()
        for grant in await registry.claim(["default"], owner="w1", limit=10, lease=LEASE):
            sent = int(bytes(grant.job.spec.payload))
            waits.append((time.monotonic_ns() - sent) / 1e9)
        await registry.changes(since=mark, timeout=5)
    return waits
