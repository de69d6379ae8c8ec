"""Objects that many processes share, and calls that tests make on registries there."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import ParamSpec

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.spec import Spec
from holdfast.objects.memory import MemoryObjects
from holdfast.ports import Grant, JobFilter, JobRequest, VersionedStore
from holdfast.registry.local import LocalRegistry
from holdfast.stores.cas.store import CasStore
from holdfast.testing.fakes import CountingIds
from tests.stores.cas.faulty_objects import SlowObjects
from verify.environment import EagerClock

P = ParamSpec("P")

ACTOR = "user:ana"
NEVER = 100_000  # a step that no run comes to


def at_each_step(main: Callable[[int], Coroutine[None, None, int]], *, more_than: int) -> None:
    """Count the steps of an undisturbed run, then run again for each, disturbed at that step."""
    steps = asyncio.run(main(NEVER))
    assert steps > more_than
    for n in range(1, steps + 1):
        asyncio.run(main(n))


class SharedObjects:
    """Objects in memory, and any number of registries that share them, each a process of its own."""

    def __init__(self) -> None:
        self.objects = MemoryObjects()
        self.clock = EagerClock()
        self.ids = CountingIds()

    def store(self, objects: VersionedStore | None = None) -> CasStore:
        return CasStore(objects or self.objects, self.clock, self.ids)

    def registry(self, objects: VersionedStore | None = None) -> LocalRegistry:
        return LocalRegistry(self.store(objects), self.ids)

    def slow_registry(self, random: Random) -> LocalRegistry:
        return self.registry(SlowObjects(self.objects, random))

    async def hints(self) -> list[str]:
        """The markers that say where there is something to do."""
        prefixes = ("queues/", "due/", "pending/")
        return [key for prefix in prefixes for key in await self.objects.list_keys(prefix)]


def request(job_id: str, **spec: object) -> JobRequest:
    return JobRequest(spec=Spec(**spec), job_id=job_id)  # type: ignore[arg-type]


def external_event(shared: SharedObjects, event_id: str, job_id: str | None = None) -> Event:
    return Event(
        event_type="invoice_sent",
        event_class=EventClass.EXTERNAL,
        occurred_at=shared.clock.now(),
        given_id=event_id,
        job_id=job_id,
    )


def output(shared: SharedObjects, sequence: int, data: bytes = b"hello\n") -> Event:
    return Event(
        event_type=WorkerEventType.OUTPUT,
        event_class=EventClass.WORKER,
        occurred_at=shared.clock.now(),
        sequence=sequence,
        stream="stdout",
        data=data,
    )


async def enqueue(registry: LocalRegistry, job_id: str, **spec: object) -> Job:
    return await registry.enqueue(request(job_id, **spec), actor=ACTOR)


async def enqueue_many(registry: LocalRegistry, job_ids: list[str]) -> None:
    await registry.enqueue_many([request(job_id) for job_id in job_ids], actor=ACTOR)


async def claim(registry: LocalRegistry, op_id: str | None = None) -> Grant:
    """Claim the one job that is there to be had."""
    [grant] = await registry.claim(["default"], owner="w", op_id=op_id)
    return grant


async def lease(registry: LocalRegistry, job_id: str, **spec: object) -> Grant:
    await enqueue(registry, job_id, **spec)
    return await claim(registry)


async def claimed(registry: LocalRegistry) -> list[str]:
    return [grant.job_id for grant in await registry.claim(["default"], owner="w")]


async def listed(registry: LocalRegistry) -> list[str]:
    return [job.job_id for job in (await registry.list_jobs()).jobs]


async def types(registry: LocalRegistry, job_id: str) -> list[str]:
    return [str(event.event_type) for event in await registry.history(job_id)]


async def read_feed(registry: LocalRegistry) -> list[str]:
    seen: list[str] = []
    cursor: str | None = None
    while (page := await registry.events(after=cursor, limit=7)).events:
        seen += [event.event_id for event in page.events]
        cursor = page.cursor
    return seen


async def read_log(registry: LocalRegistry, job_id: str, limit: int = 1000) -> list[Event]:
    seen: list[Event] = []
    cursor: str | None = None
    while (page := await registry.logs(job_id, after=cursor, limit=limit)).events:
        seen += page.events
        cursor = page.cursor
    return seen


async def check(registry: LocalRegistry) -> list[str]:
    """Every job is the fold of its log, the log has each number once, and the feed misses nothing.

    Return the feed.
    """
    verification = await registry.verify()
    assert verification.equal, verification.mismatches
    feed = await read_feed(registry)
    first = list(dict.fromkeys(feed))
    for job in (await registry.list_jobs(JobFilter(), limit=1000)).jobs:
        log = await read_log(registry, job.job_id)
        numbers = [event.log_id for event in log]
        assert numbers == list(range(1, len(log) + 1))
        assert len({event.event_id for event in log}) == len(log)
        known = {event.event_id for event in log}
        assert [name for name in first if name in known] == [event.event_id for event in log]
    return feed
