"""What one call of holdfast costs beside a crowd, through the registry's own verbs, in any of its versions:
claims beside jobs that wait, that do not fit and that have ended, and pages of a listing."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import apsw
import asyncpg
import msgspec

from holdfast import State, ports
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.sdk.open import open_registry

JobRequest = getattr(ports, "JobRequest", None) or ports.Request
JobFilter = getattr(ports, "JobFilter", None) or ports.Filter
ACTOR = "user:bench"
CHUNK, CLAIM, FEW = 1000, 100, 1000
LEASE = timedelta(hours=1)
PAGES_LEAST, PAGES_MOST = 10, 200
RARE = 1000  # one in so many


def small_url(url: str) -> str:
    """A second store beside this one."""
    return f"{url}-small" if url.startswith("sqlite") else f"{url}?schema=small"


async def crowd(url: str, waiting: int, unfit: int, claims: int, page_seconds: float) -> dict[str, float]:
    """Milliseconds, by name."""
    small, big = await open_registry(small_url(url)), await open_registry(url)
    found: dict[str, float] = {}
    try:
        await enqueue(small, FEW, queue="few")
        for name, fits, misfits, asked in FITS:
            await hold_lock(big, name)
            await enqueue(big, unfit, queue=name, **misfits)
            for registry in (small, big):
                await enqueue(registry, FEW, queue=name, **fits)
            alone, beside = await claim_costs([small, big], [name, name], claims, fits, asked)
            found |= {f"claim_{name}_alone_ms": alone, f"claim_{name}_beside_ms": beside}
        await fill(big, waiting)
        found["claim_few_ms"], found["claim_queued_ms"] = await claim_costs(
            [small, big], ["few", "many"], claims
        )
        found |= await pages(big, page_seconds)
        async with snapshot(url):
            await drain(big, "many")
            await enqueue(big, FEW, queue="many")
            alone, dead = await claim_costs([small, big], ["few", "many"], claims)
        found |= {"claim_few_again_ms": alone, "claim_dead_ms": dead}
    finally:
        await small.close()
        await big.close()
    return found


# Name of the queue; jobs that fit, jobs before them that do not; what the claim asks for.
FITS = (
    ("kind", {"kind": "fits"}, {"kind": "other"}, {"kinds": ["fits"]}),
    ("executor", {"executor": "fits"}, {"executor": "other"}, {"executor": "fits"}),
    ("lock", {}, {"lock": "taken"}, {}),
)


async def hold_lock(registry, queue: str) -> None:
    """Somebody runs a job with the lock that others wait for."""
    if queue == "lock":
        await enqueue(registry, 1, queue="holder", lock="taken")
        [_] = await registry.claim(["holder"], owner="holder", lease=LEASE)


async def enqueue(registry, jobs: int, **spec) -> None:
    for start in range(0, jobs, CHUNK):
        made = [JobRequest(spec=Spec(**{"kind": "echo", **spec})) for _ in range(min(CHUNK, jobs - start))]
        await registry.enqueue_many(made, actor=ACTOR)


async def fill(registry, jobs: int) -> None:
    """Jobs of which one in a thousand has a kind and a label of its own."""
    for start in range(0, jobs, CHUNK):
        made = []
        for n in range(start, min(start + CHUNK, jobs)):
            kind, label = ("rare", "rare") if n % RARE == RARE // 2 else ("echo", f"batch-{n % 100}")
            payload = msgspec.Raw(b'{"n":%d}' % n)
            spec = Spec(kind=kind, queue="many", payload=payload, labels={"batch": label})
            made.append(JobRequest(spec=spec))
        await registry.enqueue_many(made, actor=ACTOR)


async def claim_costs(registries, queues, claims: int, fits=None, asked=None) -> list[float]:
    """The median of so many claims of 100 in each, in turns; as many jobs follow each, so that its level
    stays. The first, which may have to clear up, is left out."""
    waits = [[] for _ in registries]
    for _ in range(claims + 1):
        for registry, queue, spent in zip(registries, queues, waits, strict=True):
            began = time.perf_counter()
            grants = await registry.claim([queue], owner="w1", limit=CLAIM, lease=LEASE, **(asked or {}))
            spent.append(time.perf_counter() - began)
            assert len(grants) == CLAIM, f"{len(grants)} claimed from {queue}"
            await enqueue(registry, CLAIM, queue=queue, **(fits or {}))
    return [1000 * quantile(spent[1:], 0.5) for spent in waits]


async def pages(registry, seconds: float) -> dict[str, float]:
    """The p99 of pages of 100 by each filter: what is rare, and what nobody has."""
    [_] = await registry.claim(["many"], owner="rare", limit=1, lease=LEASE)
    asked = {
        "state": [{"states": (State.ASSIGNED,)}, {"states": (State.FAILED,)}],
        "owner": [{"owner": "rare"}, {"owner": "nobody"}],
        "label": [{"labels": {"batch": "rare"}}, {"labels": {"batch": "none"}}],
        "kind": [{"kind": "rare"}, {"kind": "none"}],
        "queue": [{"queue": "holder"}, {"queue": "none"}],
    }
    found = {}
    for name, filters in asked.items():
        each = [await page_p99(registry, JobFilter(**words), seconds / len(filters)) for words in filters]
        found[f"page_{name}_p99_ms"] = max(each)
    return found


async def page_p99(registry, which, seconds: float) -> float:
    waits, ends = [], time.perf_counter() + seconds
    while len(waits) < PAGES_LEAST or (len(waits) < PAGES_MOST and time.perf_counter() < ends):
        began = time.perf_counter()
        await registry.list_jobs(which, newest=bool(len(waits) % 2))
        waits.append(time.perf_counter() - began)
    return 1000 * quantile(waits, 0.99)


async def drain(registry, queue: str) -> None:
    """All of them succeed."""
    while grants := await registry.claim([queue], owner="w1", limit=CHUNK, lease=LEASE):
        await registry.complete_many([ports.registry.Completion(grant, Success()) for grant in grants])


@asynccontextmanager
async def snapshot(url: str) -> AsyncIterator[None]:
    """A session that holds one, so that what it sees must be kept."""
    if url.startswith("sqlite"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        connection.execute("BEGIN; SELECT count(*) FROM sqlite_schema").fetchall()
        yield
        connection.close()
    else:
        session = await asyncpg.connect(url)
        await session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
        yield
        await session.close()


def quantile(waits: list[float], q: float) -> float:
    ranked = sorted(waits)
    return ranked[round((len(ranked) - 1) * q)]
