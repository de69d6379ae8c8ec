"""The document store, whose process dies at a failpoint. Its objects are in memory and outlive it.

A process is a registry over objects that fail every call once it is dead: as after a kill, nothing
that it would still do happens.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import msgspec
from claimer_process import ACTOR, Task, output

from holdfast.core.catalogue import EventClass
from holdfast.core.errors import Unavailable
from holdfast.core.event import Event
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.core.state import ENDED, State
from holdfast.failpoint import arm
from holdfast.objects.memory import MemoryObjects
from holdfast.ports import Filter, Grant, Request, VersionToken
from holdfast.registry.local import LocalRegistry
from holdfast.stores.cas.store import CasStore
from holdfast.testing.fakes import CountingIds, ManualClock

T = TypeVar("T")
LONG_SECONDS = 61


class Dead(Exception):
    """The process is dead."""


class Clock(ManualClock):
    """It moves on when somebody sleeps."""

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)


class Mortal:
    """The objects as one process sees them, until it dies at the n-th passing of a failpoint."""

    def __init__(self, objects: MemoryObjects, name: str | None = None, passing: int = 0) -> None:
        self._objects = objects
        self._name = name
        self._passing = passing
        self.passed: Counter[str] = Counter()
        self.dead = False

    def passes(self, name: str) -> None:
        if self.dead:
            return
        self.passed[name] += 1
        if name == self._name and self.passed[name] == self._passing:
            self.dead = True
            raise Dead

    async def _do(self, work: Callable[[], Awaitable[T]]) -> T:
        if self.dead:
            raise Dead
        return await work()

    async def get(self, key: str) -> tuple[bytes, VersionToken] | None:
        return await self._do(lambda: self._objects.get(key))

    async def put(self, key: str, value: bytes, version: VersionToken) -> bool:
        return await self._do(lambda: self._objects.put(key, value, version))

    async def create_if_absent(self, key: str, value: bytes) -> bool:
        return await self._do(lambda: self._objects.create_if_absent(key, value))

    async def delete(self, key: str, version: VersionToken) -> bool:
        return await self._do(lambda: self._objects.delete(key, version))

    async def list_keys(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[str]:
        return await self._do(lambda: self._objects.list_keys(prefix, after=after, limit=limit))


class Site:
    """Objects, and the processes that share them one after the other."""

    def __init__(self) -> None:
        self.objects = MemoryObjects()
        self.clock = Clock()
        self.ids = CountingIds()
        self.made: set[str] = set()
        self.ended: set[str] = set()
        self.pruning = False

    def registry(self, objects: MemoryObjects | Mortal) -> LocalRegistry:
        return LocalRegistry(CasStore(objects, self.clock, self.ids), self.ids)

    async def lives(
        self, mortal: Mortal, life: Callable[[LocalRegistry], Coroutine[None, None, object]]
    ) -> None:
        """Let a process live until it is done or dead."""
        arm(mortal.passes)
        try:
            await life(self.registry(mortal))
        except (Dead, Unavailable):
            assert mortal.dead
        finally:
            arm(None)


async def crash(name: str | None, passing: int) -> Counter[str]:
    """Play the whole story, kill its process there, and check that nothing acknowledged is lost."""
    site = Site()
    await leave_a_mess(site)
    mortal = Mortal(site.objects, name, passing)
    await site.lives(mortal, lambda registry: story(site, registry))
    site.clock.advance(LONG_SECONDS)
    await check(site, site.registry(site.objects))
    return mortal.passed


async def leave_a_mess(site: Site) -> None:
    """Predecessors that died: with a lock but no claim, a job but no feed, a marker but no job."""
    await enqueue(site, site.registry(site.objects), "x", lock="disk")
    for name, life in (
        ("cas.lock_taken", lambda registry: registry.acquire("x", owner="w-0")),
        ("cas.document_put", lambda registry: enqueue(site, registry, "y")),
        ("cas.markers_written", lambda registry: enqueue(site, registry, "z")),
    ):
        await site.lives(Mortal(site.objects, name, 1), life)
    site.clock.advance(LONG_SECONDS)


async def story(site: Site, registry: LocalRegistry) -> None:
    await enqueue(site, registry, "a", lock="disk")
    await enqueue(site, registry, "b", "c", "d")
    await registry.record([note(site, "on-a", "a"), note(site, "alone")])
    for grant in await registry.claim(["default"], owner="w-1", limit=5):
        await attempt(site, registry, grant)
    await read_feed(registry)
    site.pruning = True
    site.clock.advance(1)
    await registry.prune(older_than=timedelta())


async def attempt(site: Site, registry: LocalRegistry, grant: Grant) -> None:
    await registry.heartbeat(grant)
    for first in (1, 41):
        events = [output(n, site.clock.now()) for n in range(first, first + 40)]
        await registry.publish(grant, events)
    if grant.job_id == "b":
        await registry.release(grant)
    else:
        await registry.complete(grant, Success())
        site.ended.add(grant.job_id)


async def enqueue(
    site: Site, registry: LocalRegistry, *job_ids: str, lock: str | None = None
) -> None:
    requests = [Request(spec=Spec(lock=lock), job_id=job_id) for job_id in job_ids]
    await registry.enqueue_many(requests, actor=ACTOR)
    site.made.update(job_ids)


def note(site: Site, event_id: str, job_id: str | None = None) -> Event:
    return Event(
        event_type="invoice_sent",
        event_class=EventClass.EXTERNAL,
        occurred_at=site.clock.now(),
        given_id=event_id,
        job_id=job_id,
    )


async def read_feed(registry: LocalRegistry) -> set[str]:
    seen: set[str] = set()
    cursor: str | None = None
    while (page := await registry.feed(after=cursor, limit=100)).events:
        seen |= {event.event_id for event in page.events}
        cursor = page.cursor
    return seen


async def check(site: Site, registry: LocalRegistry) -> None:
    verification = await registry.verify()
    assert verification.equal, verification.mismatches
    jobs = {job.job_id: job for job in (await registry.list_jobs(Filter(), limit=1000)).jobs}
    gone = (site.made | site.ended) - jobs.keys()
    assert gone <= (site.ended if site.pruning else set()), gone
    assert all(jobs[job_id].state is State.SUCCEEDED for job_id in site.ended - gone)
    while grants := await registry.claim(["default"], owner="w-2", limit=3):
        for grant in grants:
            await registry.complete(grant, Success())
    assert not set(await registry.counts()) - ENDED
    site.clock.advance(LONG_SECONDS)
    feed = await read_feed(registry)
    for job_id in jobs:
        events = (await registry.log(job_id)).events
        assert {event.event_id for event in events} <= feed
    assert await site.objects.list_keys("pending/") == []
    assert (await registry.verify()).equal


async def crash_at_each(*, short: bool) -> Counter[str]:
    """Die at every passing of every failpoint of the store, or at some of each; how often at which."""
    deaths: Counter[str] = Counter()
    passed = await crash(None, 0)
    for name, most in passed.items():
        if name.startswith("cas."):
            passings = {1, (most + 1) // 2, most} if short else set(range(1, most + 1))
            for passing in sorted(passings):
                assert (await crash(name, passing))[name] == passing
                deaths[name] += 1
    return deaths


async def documents(task: Task, *, short: bool) -> None:
    """Be a process that does all of this, and writes down what it did."""
    deaths = await crash_at_each(short=short)
    (Path(task.folder) / "deaths").write_bytes(msgspec.json.encode(deaths))
