"""The document store, whose process dies at a failpoint. Its objects are in memory and outlive it.

A process is a registry over objects that fail every call once it is dead: as after a kill, nothing
that it would still do happens. The responses it got are in a log that outlives it, too.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import msgspec

from holdfast.core.catalogue import EventClass
from holdfast.core.errors import Unavailable
from holdfast.core.event import Event
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.core.state import ENDED
from holdfast.failpoint import arm
from holdfast.objects.memory import MemoryObjects
from holdfast.ports import JobFilter, JobRequest, VersionToken
from holdfast.registry.local import LocalRegistry
from holdfast.stores.cas.store import CasStore
from holdfast.testing.fakes import CountingIds
from tests.load.claimer_process import ACTOR, Task, output
from tests.load.response_log import ResponseLog, unlinked
from verify.environment import EagerClock

T = TypeVar("T")
LONG_SECONDS = 61


class Crashed(Exception):
    """The process is dead."""


class CrashingObjects:
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
            raise Crashed

    async def _do(self, work: Callable[[], Awaitable[T]]) -> T:
        if self.dead:
            raise Crashed
        return await work()

    async def get(self, key: str) -> tuple[bytes, VersionToken] | None:
        return await self._do(lambda: self._objects.get(key))

    async def put(self, key: str, value: bytes, version: VersionToken) -> bool:
        return await self._do(lambda: self._objects.put(key, value, version))

    async def create_if_absent(self, key: str, value: bytes) -> bool:
        return await self._do(lambda: self._objects.create_if_absent(key, value))

    async def delete(self, key: str, version: VersionToken) -> bool:
        return await self._do(lambda: self._objects.delete(key, version))

    async def list_keys(self, prefix: str, *, after: str = "", limit: int | None = None) -> list[str]:
        return await self._do(lambda: self._objects.list_keys(prefix, after=after, limit=limit))


class SharedObjects:
    """Objects, and the processes that share them one after the other."""

    def __init__(self) -> None:
        self.objects = MemoryObjects()
        self.clock = EagerClock()
        self.ids = CountingIds()
        self.responses = ResponseLog()

    def registry(self, objects: MemoryObjects | CrashingObjects) -> LocalRegistry:
        return LocalRegistry(CasStore(objects, self.clock, self.ids), self.ids)

    async def run_until_crash(
        self,
        crashing: CrashingObjects,
        life: Callable[[LocalRegistry], Coroutine[None, None, object]],
    ) -> None:
        """Let a process live until it is done or dead."""
        arm(crashing.passes)
        try:
            await life(self.registry(crashing))
        except (Crashed, Unavailable):
            assert crashing.dead
        finally:
            arm(None)


async def crash(name: str | None, passing: int) -> Counter[str]:
    """Play the whole story, kill its process there, and check that nothing acknowledged is lost."""
    shared = SharedObjects()
    await leave_unfinished_work(shared)
    crashing = CrashingObjects(shared.objects, name, passing)
    await shared.run_until_crash(crashing, lambda registry: story(shared, registry))
    shared.clock.advance(LONG_SECONDS)
    await check(shared, shared.registry(shared.objects))
    return crashing.passed


async def leave_unfinished_work(shared: SharedObjects) -> None:
    """Predecessors that died: with a lock but no claim, a job but no feed, a marker but no job, and a
    replay of which its original has not been told."""
    registry = shared.registry(shared.objects)
    await enqueue(shared, registry, "w")
    shared.responses.moved(await registry.cancel("w", actor=ACTOR))
    await enqueue(shared, registry, "x", lock="disk")
    for name, life in (
        ("cas.lock_taken", lambda registry: registry.acquire("x", owner="w-0")),
        ("cas.document_put", lambda registry: enqueue(shared, registry, "y")),
        ("cas.markers_written", lambda registry: enqueue(shared, registry, "z")),
        ("cas.document_put", lambda registry: replay(shared, registry, "w")),
    ):
        await shared.run_until_crash(CrashingObjects(shared.objects, name, 1), life)
    shared.clock.advance(LONG_SECONDS)


async def story(shared: SharedObjects, registry: LocalRegistry) -> None:
    await enqueue(shared, registry, "a", lock="disk")
    await enqueue(shared, registry, "b", "c", "d", "e")
    await record(shared, registry, note(shared, "on-a", "a"), note(shared, "alone"))
    shared.responses.moved(await registry.cancel("e", actor=ACTOR))
    await replay(shared, registry, "e")
    await work(shared, registry)
    await read_feed(registry)
    await prune(shared, registry)
    await record(shared, registry, note(shared, "on-b", "b"), note(shared, "still-alone"))
    await work(shared, registry)


async def work(shared: SharedObjects, registry: LocalRegistry) -> None:
    for grant in await registry.claim(["default"], owner="w-1", limit=9):
        shared.responses.moved(grant.job, await registry.heartbeat(grant))
        for first in (1, 41):
            events = [output(n, shared.clock.now()) for n in range(first, first + 40)]
            await registry.publish(grant, events)
            shared.responses.published(grant, events)
        if grant.job_id == "b" and grant.attempt == 1:
            shared.responses.moved(await registry.release(grant))
        else:
            shared.responses.moved(await registry.complete(grant, Success()))


async def enqueue(
    shared: SharedObjects, registry: LocalRegistry, *job_ids: str, lock: str | None = None
) -> None:
    requests = [JobRequest(spec=Spec(lock=lock), job_id=job_id) for job_id in job_ids]
    shared.responses.moved(*await registry.enqueue_many(requests, actor=ACTOR))


async def replay(shared: SharedObjects, registry: LocalRegistry, job_id: str) -> None:
    shared.responses.moved(await registry.replay(job_id, actor=ACTOR, replay_id=f"again-{job_id}"))


async def record(shared: SharedObjects, registry: LocalRegistry, *facts: Event) -> None:
    assert await registry.record(facts) == len(facts)
    shared.responses.recorded(facts)


async def prune(shared: SharedObjects, registry: LocalRegistry) -> None:
    shared.clock.advance(1)
    shared.responses.pruning()
    await registry.prune(older_than=timedelta())
    shared.responses.pruned()


def note(shared: SharedObjects, event_id: str, job_id: str | None = None) -> Event:
    return Event(
        event_type="invoice_sent",
        event_class=EventClass.EXTERNAL,
        occurred_at=shared.clock.now(),
        given_id=event_id,
        job_id=job_id,
    )


async def read_feed(registry: LocalRegistry) -> set[str]:
    seen: set[str] = set()
    cursor: str | None = None
    while (page := await registry.events(after=cursor, limit=100)).events:
        seen |= {event.event_id for event in page.events}
        cursor = page.cursor
    return seen


async def check(shared: SharedObjects, registry: LocalRegistry) -> None:
    """All that was answered is there, at once and after others have done what is left to do."""
    assert (verification := await registry.verify()).equal, verification.mismatches
    assert (lost := shared.responses.lacks(await logs(registry))) == [], lost
    while grants := await registry.claim(["default"], owner="w-2", limit=3):
        for grant in grants:
            await registry.complete(grant, Success())
    assert not set(await registry.counts()) - ENDED
    shared.clock.advance(LONG_SECONDS)
    feed = await read_feed(registry)
    after = await logs(registry)
    assert (lost := shared.responses.lacks(after)) == [], lost
    assert (lost := shared.responses.untold(feed)) == [], lost
    assert (lost := unlinked(await registry.status_many(list(after)), after)) == [], lost
    assert {event.event_id for log in after.values() for event in log} <= feed
    assert await shared.objects.list_keys("pending/") == []
    assert (await registry.verify()).equal


async def logs(registry: LocalRegistry) -> dict[str, Sequence[Event]]:
    jobs = (await registry.list_jobs(JobFilter(), limit=1000)).jobs
    return {job.job_id: (await registry.logs(job.job_id)).events for job in jobs}


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
