"""The document store, whose process dies at a failpoint. Its objects are in memory and outlive it.

A process is a registry over objects that fail every call once it is dead: as after a kill, nothing
that it would still do happens. What it was answered is in a book that outlives it, too.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import msgspec
from claimer_process import ACTOR, Task, output
from documents_book import Book, unlinked

from holdfast.core.catalogue import EventClass
from holdfast.core.errors import Unavailable
from holdfast.core.event import Event
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.core.state import ENDED
from holdfast.failpoint import arm
from holdfast.objects.memory import MemoryObjects
from holdfast.ports import Filter, Request, VersionToken
from holdfast.registry.local import LocalRegistry
from holdfast.stores.cas.store import CasStore
from holdfast.testing.fakes import CountingIds
from verify.ground import EagerClock

T = TypeVar("T")
LONG_SECONDS = 61


class Dead(Exception):
    """The process is dead."""


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
        self.clock = EagerClock()
        self.ids = CountingIds()
        self.book = Book()

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
    """Predecessors that died: with a lock but no claim, a job but no feed, a marker but no job, and a
    replay of which its original has not been told."""
    registry = site.registry(site.objects)
    await enqueue(site, registry, "w")
    site.book.moved(await registry.cancel("w", actor=ACTOR))
    await enqueue(site, registry, "x", lock="disk")
    for name, life in (
        ("cas.lock_taken", lambda registry: registry.acquire("x", owner="w-0")),
        ("cas.document_put", lambda registry: enqueue(site, registry, "y")),
        ("cas.markers_written", lambda registry: enqueue(site, registry, "z")),
        ("cas.document_put", lambda registry: replay(site, registry, "w")),
    ):
        await site.lives(Mortal(site.objects, name, 1), life)
    site.clock.advance(LONG_SECONDS)


async def story(site: Site, registry: LocalRegistry) -> None:
    await enqueue(site, registry, "a", lock="disk")
    await enqueue(site, registry, "b", "c", "d", "e")
    await record(site, registry, note(site, "on-a", "a"), note(site, "alone"))
    site.book.moved(await registry.cancel("e", actor=ACTOR))
    await replay(site, registry, "e")
    await work(site, registry)
    await read_feed(registry)
    await prune(site, registry)
    await record(site, registry, note(site, "on-b", "b"), note(site, "still-alone"))
    await work(site, registry)


async def work(site: Site, registry: LocalRegistry) -> None:
    for grant in await registry.claim(["default"], owner="w-1", limit=9):
        site.book.moved(grant.job, await registry.heartbeat(grant))
        for first in (1, 41):
            events = [output(n, site.clock.now()) for n in range(first, first + 40)]
            await registry.publish(grant, events)
            site.book.published(grant, events)
        if grant.job_id == "b" and grant.attempt == 1:
            site.book.moved(await registry.release(grant))
        else:
            site.book.moved(await registry.complete(grant, Success()))


async def enqueue(
    site: Site, registry: LocalRegistry, *job_ids: str, lock: str | None = None
) -> None:
    requests = [Request(spec=Spec(lock=lock), job_id=job_id) for job_id in job_ids]
    site.book.moved(*await registry.enqueue_many(requests, actor=ACTOR))


async def replay(site: Site, registry: LocalRegistry, job_id: str) -> None:
    site.book.moved(await registry.replay(job_id, actor=ACTOR, replay_id=f"again-{job_id}"))


async def record(site: Site, registry: LocalRegistry, *facts: Event) -> None:
    assert await registry.record(facts) == len(facts)
    site.book.recorded(facts)


async def prune(site: Site, registry: LocalRegistry) -> None:
    site.clock.advance(1)
    site.book.pruning()
    await registry.prune(older_than=timedelta())
    site.book.pruned()


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
    """All that was answered is there, at once and after others have done what is left to do."""
    assert (verification := await registry.verify()).equal, verification.mismatches
    assert (lost := site.book.lacks(await logs(registry))) == [], lost
    while grants := await registry.claim(["default"], owner="w-2", limit=3):
        for grant in grants:
            await registry.complete(grant, Success())
    assert not set(await registry.counts()) - ENDED
    site.clock.advance(LONG_SECONDS)
    feed = await read_feed(registry)
    after = await logs(registry)
    assert (lost := site.book.lacks(after)) == [], lost
    assert (lost := site.book.untold(feed)) == [], lost
    assert (lost := unlinked(await registry.get_many(list(after)), after)) == [], lost
    assert {event.event_id for log in after.values() for event in log} <= feed
    assert await site.objects.list_keys("pending/") == []
    assert (await registry.verify()).equal


async def logs(registry: LocalRegistry) -> dict[str, Sequence[Event]]:
    jobs = (await registry.list_jobs(Filter(), limit=1000)).jobs
    return {job.job_id: (await registry.log(job.job_id)).events for job in jobs}


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
