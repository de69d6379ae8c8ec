"""The page of /metrics, parsed as Prometheus parses it; and jobs with every ending."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta

from prometheus_client.parser import text_string_to_metric_families

from holdfast.core.errors import Conflict, Fenced
from holdfast.core.job import Failure
from holdfast.core.lifecycle import Success
from holdfast.core.outputs import ValidationResult
from holdfast.core.retry import OnExhausted, Retry
from holdfast.core.spec import Spec
from holdfast.ports import Grant, JobRequest, Registry
from holdfast.registry.local import LocalRegistry
from holdfast.testing.fakes import ManualClock
from holdfast.testing.world import PERMANENT, TRANSIENT
from tests.server.raw_http_client import ThreadedServer

LEASE = timedelta(seconds=60)
ONCE = Retry(max_failures=1)
FAILS = Retry(max_failures=1, on_exhausted=OnExhausted.FAIL)


class Scrape:
    """One reading of /metrics."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        self.families: dict[str, str] = {}
        for family in text_string_to_metric_families(text):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            self.families[name] = family.type
            for sample in family.samples:
                self.samples.setdefault(sample.name, []).append((sample.labels, sample.value))

    def all(self, name: str, **labels: str) -> float:
        """Return the sum of the samples with these labels."""
        return sum(
            value
            for own, value in self.samples.get(name, [])
            if all(own.get(k) == v for k, v in labels.items())
        )

    def by(self, name: str, *labels: str) -> Counter[tuple[str, ...]]:
        """Return the values above zero, by these labels."""
        found: Counter[tuple[str, ...]] = Counter()
        for own, value in self.samples.get(name, []):
            if value:
                found[tuple(own[label] for label in labels)] += int(value)
        return found

    def values(self, name: str, label: str) -> set[str]:
        return {own[label] for own, _ in self.samples.get(name, [])}


def scrape(server: ThreadedServer, headers: Mapping[str, str] | None = None) -> Scrape:
    answer = server.send("/metrics", headers=headers, method="GET")
    assert answer.status == 200, answer
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return Scrape(answer.body.decode())


async def enqueue(registry: Registry, kind: str, **spec: object) -> str:
    request = JobRequest(spec=Spec(kind=kind, **spec))  # type: ignore[arg-type]
    return (await registry.enqueue(request, actor="user:ana")).job_id


async def begin(registry: Registry, kind: str, owner: str = "w", **spec: object) -> Grant:
    """A new job of this kind, claimed."""
    job_id = await enqueue(registry, kind, **spec)
    return await registry.acquire(job_id, owner=owner)


async def every_ending(registry: LocalRegistry, clock: ManualClock) -> None:
    """Bring jobs to every ending, each in a kind of its own, with what may happen on the way."""
    grant = await begin(registry, "good")
    clock.advance(3)
    await registry.heartbeat(grant)
    await registry.complete(grant, Success())
    with suppress(Fenced):
        await registry.heartbeat(grant)
    await registry.complete(await begin(registry, "bad", retry=FAILS), PERMANENT)
    await registry.complete(await begin(registry, "dead", retry=ONCE), TRANSIENT)
    await registry.complete(await begin(registry, "again"), TRANSIENT)
    await registry.release(await begin(registry, "released"))
    await registry.cancel(await enqueue(registry, "cancelled"), actor="user:ana")
    await registry.complete(await begin(registry, "checked", promised_outputs=1), Success())
    judged = await begin(registry, "judged", promised_outputs=2)
    await registry.complete(judged, Success())
    await registry.complete_validation(
        judged.job_id, ValidationResult(verified=1, missing=1), actor="validator:v"
    )
    taken = await begin(registry, "taken")
    with suppress(Conflict):
        await registry.acquire(taken.job_id, owner="other")
    late = Retry(on_exhausted=OnExhausted.TIMEOUT)
    await enqueue(registry, "late", ttl=timedelta(seconds=30), retry=late)
    await enqueue(registry, "late-parked", ttl=timedelta(seconds=30))
    await begin(registry, "lapsed", lease=LEASE)
    clock.advance(61)
    await registry.expire()
    await begin(registry, "running", owner="w-2", queue="other-queue")
    await enqueue(registry, "waiting", queue="other-queue")
    clock.advance(10)


async def many_jobs(registry: Registry, jobs: int) -> None:
    """Make many jobs at once, in three kinds and two queues: some succeed, some fail, some wait."""

    async def one(n: int) -> None:
        kind, queue = f"kind-{n % 3}", f"queue-{n % 2}"
        if n % 7 == 0:
            await enqueue(registry, kind, queue=queue)
            return
        grant = await begin(registry, kind, queue=queue, retry=ONCE)
        if n % 5:
            await registry.complete(grant, Success())
        else:
            await registry.complete(grant, Failure(message="no", retryable=n % 2 == 0))

    await asyncio.gather(*(one(n) for n in range(jobs)))
