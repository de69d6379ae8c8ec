"""Our verbs on SQLite, doing what `limit.py` does, and what it cannot show: waiting, growth, memory.

Run as a script it is one of its own child processes: `verbs.py rss URL JOBS` or `verbs.py wake URL JOBS`.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import msgspec

from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import Request
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_registry

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


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def requests(start: int, many: int) -> list[Request]:
    return [
        Request(
            spec=Spec(kind="echo", payload=msgspec.Raw(b'{"n":%d,"argv":["echo","hello"]}' % n))
        )
        for n in range(start, start + many)
    ]


def spread(waits: list[float], seconds: float) -> Spread:
    ranked = sorted(waits)
    p50, p95, p99 = (ranked[int((len(ranked) - 1) * q)] * 1000 for q in (0.5, 0.95, 0.99))
    return Spread(len(waits) / seconds, p50, p95, p99)


async def bulk_enqueue(registry: LocalRegistry, jobs: int) -> float:
    """Jobs per second by enqueue_many in chunks; making the requests is the caller's time."""
    seconds = 0.0
    for start in range(0, jobs, CHUNK):
        chunk = requests(start, CHUNK)
        started = time.perf_counter()
        await registry.enqueue_many(chunk, actor=ACTOR)
        seconds += time.perf_counter() - started
    return jobs / seconds


async def drain(registry: LocalRegistry) -> float:
    """Jobs per second, claimed 500 at a time, each completed by a call of its own."""
    started, done = time.perf_counter(), 0
    while grants := await registry.claim(["default"], owner="w1", limit=CHUNK):
        await asyncio.gather(*(registry.complete(grant, Success()) for grant in grants))
        done += len(grants)
    return done / (time.perf_counter() - started)


async def awaited_enqueues(registry: LocalRegistry, jobs: int, clients: int) -> Spread:
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


async def single_claims(registry: LocalRegistry, jobs: int, clients: int = 64) -> Spread:
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
    """Milliseconds (p50) of a claim: by the clock on the wall, and of this process's CPU alone."""

    wall: float
    cpu: float


async def claim_costs(paths: list[Path], claims: int = 60) -> list[Cost]:
    """What a claim of 100 costs in each file; 100 new jobs follow, so that its level stays.

    The files take turns, so that whatever else the machine does meets all of them alike.
    """
    registries = [await open_registry(url_of(path)) for path in paths]
    waits: list[list[float]] = [[] for _ in paths]
    works: list[list[float]] = [[] for _ in paths]
    for _ in range(claims):
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
        Cost(spread(wait, 1).p50, spread(work, 1).p50)
        for wait, work in zip(waits, works, strict=True)
    ]


def child(role: str, path: Path, jobs: int) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, role, str(path), str(jobs)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> object:
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, f"the child exited with {process.returncode}"
    return json.loads(out.splitlines()[-1])


def rss_growth(path: Path, jobs: int) -> float:
    """Megabytes by which enqueueing `jobs` jobs raises the RSS of a fresh process."""
    grown = answer(child("rss", path, jobs))
    assert isinstance(grown, float)
    return grown


async def wake_up(path: Path, jobs: int) -> Spread:
    """From before an enqueue here to the grant in the hand of another process that waits."""
    registry = await open_registry(url_of(path))
    process = child("wake", path, jobs)
    assert process.stdout is not None
    await asyncio.to_thread(process.stdout.readline)
    for n in range(jobs):
        await asyncio.sleep(0.01 + n % 7 * 0.001)
        payload = msgspec.Raw(b"%d" % time.monotonic_ns())
        await registry.enqueue(Request(spec=Spec(payload=payload)), actor=ACTOR)
    waits = await asyncio.to_thread(answer, process)
    await registry.close()
    assert isinstance(waits, list)
    return spread(waits, 1)


async def _rss(path: Path, jobs: int) -> float:
    registry = await open_registry(url_of(path))
    before = _rss_bytes()
    for start in range(0, jobs, CHUNK):
        await registry.enqueue_many(requests(start, CHUNK), actor=ACTOR)
    grown = _rss_bytes() - before
    await registry.close()
    return grown / 1e6


def _rss_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def _wake(path: Path, jobs: int) -> list[float]:
    registry = await open_registry(url_of(path))
    waits: list[float] = []
    print("waiting", flush=True)
    while len(waits) < jobs:
        mark = registry.mark()
        for grant in await registry.claim(["default"], owner="w1", limit=10, lease=LEASE):
            sent = int(bytes(grant.job.spec.payload))
            waits.append((time.monotonic_ns() - sent) / 1e9)
        await registry.changed(since=mark, timeout=5)
    await registry.close()
    return waits


if __name__ == "__main__":
    role, where, many = sys.argv[1:]
    work = {"rss": _rss, "wake": _wake}[role]
    print(json.dumps(asyncio.run(work(Path(where), int(many)))))
