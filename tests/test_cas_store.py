"""What is special about jobs as documents: lost answers, crashes between objects, many processes."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random
from typing import TypeVar

import pytest

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.errors import Conflict, HoldfastError, Unavailable
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.objects.memory import MemoryObjects
from holdfast.ports import Filter, Grant, Request, VersionedStore, VersionToken
from holdfast.registry.local import LocalRegistry
from holdfast.stores.cas.store import CasStore
from holdfast.testing.fakes import CountingIds, ManualClock

T = TypeVar("T")

ACTOR = "user:ana"
LIFE = ["job_queued", "job_claimed", "job_started", "job_succeeded"]


class EagerClock(ManualClock):
    """A clock that moves on when somebody sleeps, so that back-off needs nobody to advance it."""

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)


class Through:
    """Objects in front of other objects; `around` is asked for every call."""

    def __init__(self, objects: VersionedStore) -> None:
        self.objects = objects
        self.calls = 0

    async def around(self, call: Callable[[], Awaitable[T]], *, verb: str) -> T:
        self.calls += 1
        return await call()

    async def get(self, key: str) -> tuple[bytes, VersionToken] | None:
        return await self.around(lambda: self.objects.get(key), verb="get")

    async def put(self, key: str, value: bytes, version: VersionToken) -> bool:
        return await self.around(lambda: self.objects.put(key, value, version), verb="put")

    async def create_if_absent(self, key: str, value: bytes) -> bool:
        return await self.around(
            lambda: self.objects.create_if_absent(key, value), verb="create_if_absent"
        )

    async def delete(self, key: str, version: VersionToken) -> bool:
        return await self.around(lambda: self.objects.delete(key, version), verb="delete")

    async def list_keys(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[str]:
        return await self.around(
            lambda: self.objects.list_keys(prefix, after=after, limit=limit), verb="list_keys"
        )


class Jittery(Through):
    """Every request and every answer takes its own time."""

    def __init__(self, objects: VersionedStore, random: Random) -> None:
        super().__init__(objects)
        self.random = random

    async def around(self, call: Callable[[], Awaitable[T]], *, verb: str) -> T:
        for _ in range(self.random.randrange(4)):
            await asyncio.sleep(0)
        answer = await call()
        for _ in range(self.random.randrange(4)):
            await asyncio.sleep(0)
        return answer


class Forgetful(Through):
    """Does its n-th conditional write, and loses the answer: by a lie, or by an error."""

    def __init__(self, objects: VersionedStore, n: int, *, lie: bool) -> None:
        super().__init__(objects)
        self.n = n
        self.lie = lie

    async def around(self, call: Callable[[], Awaitable[T]], *, verb: str) -> T:
        answer = await call()
        if verb in ("put", "create_if_absent"):
            self.calls += 1
            if self.calls == self.n:
                if self.lie:
                    return False  # type: ignore[return-value]
                raise Unavailable("The answer was lost.", applied="unknown")
        return answer


class Crashed(Exception):
    """The process is dead: nothing that it asks for happens any more."""


class Mortal(Through):
    """The process dies with its n-th call, which may still be done (`late`), or not."""

    def __init__(self, objects: VersionedStore, n: int, *, late: bool) -> None:
        super().__init__(objects)
        self.n = n
        self.late = late

    async def around(self, call: Callable[[], Awaitable[T]], *, verb: str) -> T:
        self.calls += 1
        if self.calls == self.n and self.late:
            await call()
        if self.calls >= self.n:
            raise Crashed
        return await call()


class Site:
    """Some objects, and any number of processes that share them."""

    def __init__(self) -> None:
        self.objects = MemoryObjects()
        self.clock = EagerClock()
        self.ids = CountingIds()

    def store(self, objects: VersionedStore | None = None) -> CasStore:
        return CasStore(objects or self.objects, self.clock, self.ids)

    def registry(self, objects: VersionedStore | None = None) -> LocalRegistry:
        return LocalRegistry(self.store(objects), self.ids)


def request(job_id: str, **spec: object) -> Request:
    return Request(spec=Spec(**spec), job_id=job_id)  # type: ignore[arg-type]


def note(site: Site, event_id: str, job_id: str | None = None) -> Event:
    return Event(
        event_type="invoice_sent",
        event_class=EventClass.EXTERNAL,
        occurred_at=site.clock.now(),
        given_id=event_id,
        job_id=job_id,
    )


def output(site: Site, sequence: int, data: bytes = b"hello\n") -> Event:
    return Event(
        event_type=WorkerEventType.OUTPUT,
        event_class=EventClass.WORKER,
        occurred_at=site.clock.now(),
        sequence=sequence,
        stream="stdout",
        data=data,
    )


async def types(registry: LocalRegistry, job_id: str) -> list[str]:
    return [str(event.event_type) for event in await registry.history(job_id)]


async def read_feed(registry: LocalRegistry) -> list[str]:
    seen: list[str] = []
    cursor: str | None = None
    while (page := await registry.feed(after=cursor, limit=7)).events:
        seen += [event.event_id for event in page.events]
        cursor = page.cursor
    return seen


async def read_log(registry: LocalRegistry, job_id: str, limit: int = 1000) -> list[Event]:
    seen: list[Event] = []
    cursor: str | None = None
    while (page := await registry.log(job_id, after=cursor, limit=limit)).events:
        seen += page.events
        cursor = page.cursor
    return seen


async def check(registry: LocalRegistry) -> list[str]:
    """Every job is the fold of its log, the log has each number once, and the feed misses nothing.

    Answers the feed.
    """
    verification = await registry.verify()
    assert verification.equal, verification.mismatches
    feed = await read_feed(registry)
    first = list(dict.fromkeys(feed))
    for job in (await registry.list_jobs(Filter(), limit=1000)).jobs:
        log = await read_log(registry, job.job_id)
        numbers = [event.log_id for event in log]
        assert numbers == list(range(1, len(log) + 1))
        assert len({event.event_id for event in log}) == len(log)
        known = {event.event_id for event in log}
        assert [name for name in first if name in known] == [event.event_id for event in log]
    return feed


async def rewrite(objects: VersionedStore, key: str) -> None:
    """Write over a document, as somebody does who renews a lease."""
    found = await objects.get(key)
    assert found is not None
    document = json.loads(found[0])
    document.update(serial=document["serial"] + 1, nonce="somebody-else")
    assert await objects.put(key, json.dumps(document).encode(), found[1])


async def until_heard(verb: Callable[[], Awaitable[T]]) -> T:
    """Send the same request again for as long as no answer comes."""
    for _ in range(5):
        try:
            return await verb()
        except Unavailable:
            continue
    raise AssertionError("no answer")


# --- many claimers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_of_64_processes_that_acquire_one_job_one_gets_it(seed: int) -> None:
    async def main() -> None:
        site, random = Site(), Random(seed)
        await site.registry().enqueue(request("job-1"), actor=ACTOR)

        answers = await asyncio.gather(
            *(
                site.registry(Jittery(site.objects, random)).acquire("job-1", owner=f"w-{n}")
                for n in range(64)
            ),
            return_exceptions=True,
        )

        [grant] = [answer for answer in answers if isinstance(answer, Grant)]
        refused = [answer for answer in answers if isinstance(answer, Conflict)]
        assert len(refused) == 63
        assert all(f"owned by {grant.job.owner}" in str(answer) for answer in refused)
        assert grant.fencing_token == 1
        assert await types(site.registry(), "job-1") == ["job_queued", "job_claimed"]
        site.clock.advance(60)
        await check(site.registry())

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(3))
def test_processes_that_claim_together_get_every_job_once(seed: int) -> None:
    async def main() -> None:
        site, random = Site(), Random(seed)
        await site.registry().enqueue_many([request(f"j-{n}") for n in range(40)], actor=ACTOR)
        got: list[str] = []

        async def worker(name: str) -> None:
            registry = site.registry(Jittery(site.objects, random))
            while grants := await registry.claim(["default"], owner=name, limit=3):
                for grant in grants:
                    got.append(grant.job_id)
                    await registry.complete(grant, Success())

        await asyncio.gather(*(worker(f"w-{n}") for n in range(8)))

        assert sorted(got) == sorted(f"j-{n}" for n in range(40))
        site.clock.advance(60)
        await check(site.registry())
        assert await site.objects.list_keys("queues/") == []
        assert await site.objects.list_keys("due/") == []
        assert await site.objects.list_keys("pending/") == []

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(20))
def test_two_jobs_of_one_lock_are_never_leased_together(seed: int) -> None:
    async def main() -> None:
        site, random = Site(), Random(seed)
        jobs = ["one", "two"]
        for job_id in jobs:
            await site.registry().enqueue(request(job_id, lock="disk"), actor=ACTOR)
        inside: list[str] = []
        tokens: list[int] = []

        async def claimer(name: str) -> None:
            registry = site.registry(Jittery(site.objects, random))
            for _ in range(4):
                try:
                    if random.random() < 0.5:
                        grants = await registry.claim(["default"], owner=name)
                    else:
                        grants = [await registry.acquire(random.choice(jobs), owner=name)]
                except (Conflict, Unavailable):
                    continue
                for grant in grants:
                    inside.append(grant.job_id)
                    tokens.append(grant.fencing_token)
                    assert len(inside) == 1
                    for _ in range(random.randrange(40)):
                        await asyncio.sleep(0)
                    inside.remove(grant.job_id)
                    await registry.release(grant)

        await asyncio.gather(*(claimer(f"w-{n}") for n in range(32)))

        assert len(tokens) > 1
        assert tokens == sorted(set(tokens))
        site.clock.advance(120)
        await check(site.registry())

    asyncio.run(main())


class Paused(Through):
    """Stops before it writes a job's document over an older one, until it is let go."""

    def __init__(self, objects: VersionedStore) -> None:
        super().__init__(objects)
        self.waits, self.go = asyncio.Event(), asyncio.Event()

    async def put(self, key: str, value: bytes, version: VersionToken) -> bool:
        if key.endswith("/state.json") and not self.waits.is_set():
            self.waits.set()
            await self.go.wait()
        return await self.objects.put(key, value, version)


async def pause(site: Site, job_id: str, owner: str) -> tuple[Paused, asyncio.Task[Grant]]:
    """A claim that has its lock, and is about to write its job."""
    paused = Paused(site.objects)
    claim = asyncio.create_task(site.registry(paused).acquire(job_id, owner=owner))
    await paused.waits.wait()
    return paused, claim


def test_a_lock_that_is_taken_over_takes_the_claim_with_it() -> None:
    async def main() -> None:
        site = Site()
        for job_id in ("one", "two"):
            await site.registry().enqueue(request(job_id, lock="disk"), actor=ACTOR)
        slow, first = await pause(site, "one", "w-1")

        second = await site.registry().acquire("two", owner="w-2")
        slow.go.set()

        with pytest.raises(Conflict, match="locked by job two"):
            await first
        assert second.fencing_token == 2

    asyncio.run(main())


def test_a_lock_is_held_whichever_of_two_claims_of_its_job_has_landed() -> None:
    async def main() -> None:
        site = Site()
        for job_id in ("one", "two"):
            await site.registry().enqueue(request(job_id, lock="disk"), actor=ACTOR)
        slow, first = await pause(site, "one", "w-1")
        slower, second = await pause(site, "one", "w-2")
        slow.go.set()
        await first

        with pytest.raises(Conflict, match="locked by job one"):
            await site.registry().acquire("two", owner="w-3")

        slower.go.set()
        with pytest.raises(Conflict, match="owned by w-1"):
            await second

    asyncio.run(main())


def test_a_claim_that_died_holding_a_lock_object_does_not_hold_the_lock() -> None:
    async def main(n: int) -> int:
        site = Site()
        await site.registry().enqueue(request("one", lock="disk"), actor=ACTOR)
        await site.registry().enqueue(request("two", lock="disk"), actor=ACTOR)
        mortal = Mortal(site.objects, n, late=True)
        with pytest.raises((Unavailable, Crashed)):
            await site.registry(mortal).acquire("one", owner="w-1")
        [one] = await site.store().get(["one"])
        assert one is not None

        if one.leased:
            with pytest.raises(Conflict, match="locked by job one"):
                await site.registry().acquire("two", owner="w-2")
        else:
            grant = await site.registry().acquire("two", owner="w-2")
            resource = await site.store().resource("disk")
            assert (resource.token, resource.holder) == (grant.fencing_token, "two")
        return mortal.calls

    for n in range(1, 9):
        asyncio.run(main(n))


# --- lost answers ----------------------------------------------------------------------------------


async def live(registry: LocalRegistry, site: Site, job_id: str) -> None:
    """One job from enqueue to success, every verb sent until it is answered."""
    asked = request(job_id, lock="disk")
    await until_heard(lambda: registry.enqueue(asked, actor=ACTOR))
    [grant] = await until_heard(
        lambda: registry.claim(["default"], owner="w", op_id=f"claim-{job_id}")
    )
    assert grant.job_id == job_id
    await until_heard(lambda: registry.publish(grant, [output(site, 1), output(site, 2)]))
    await until_heard(lambda: registry.record([note(site, f"n-{job_id}", job_id)]))
    await until_heard(lambda: registry.record([note(site, f"m-{job_id}")]))
    done = await until_heard(lambda: registry.complete(grant, Success(), op_id=f"end-{job_id}"))
    assert done.state is State.SUCCEEDED


@pytest.mark.parametrize("lie", [True, False])
def test_a_lost_answer_never_doubles_or_loses_anything(lie: bool) -> None:
    async def main(n: int) -> int:
        site = Site()
        forgetful = Forgetful(site.objects, n, lie=lie)
        registry = site.registry(forgetful)

        await live(registry, site, "job-1")
        await live(registry, site, "job-2")
        site.clock.advance(60)

        for reader in (registry, site.registry()):
            feed = await check(reader)
            for job_id in ("job-1", "job-2"):
                assert await types(reader, job_id) == LIFE
                log = await read_log(reader, job_id)
                assert sum(event.event_class is EventClass.WORKER for event in log) == 2
                assert f"n-{job_id}" in [event.event_id for event in log]
                assert f"m-{job_id}" in feed
        if lie:
            assert len(feed) == len(set(feed))
        return forgetful.calls

    writes = asyncio.run(main(0))
    assert writes > 20
    for n in range(1, writes + 1):
        asyncio.run(main(n))


def test_a_write_that_landed_and_was_overwritten_before_its_answer_is_known() -> None:
    """The answer is lost, and when we look, somebody else has already written over it."""

    class Overtaken(Through):
        lost = 0

        async def put(self, key: str, value: bytes, version: VersionToken) -> bool:
            landed = await self.objects.put(key, value, version)
            if landed and key == "jobs/job-1/state.json" and not self.lost:
                self.lost += 1
                await rewrite(self.objects, key)
                return False
            return landed

    site = Site()

    async def main() -> None:
        await site.registry().enqueue(request("job-1"), actor=ACTOR)
        overtaken = Overtaken(site.objects)

        grant = await site.registry(overtaken).acquire("job-1", owner="w-1")

        assert overtaken.lost == 1
        assert grant.fencing_token == 1
        assert await types(site.registry(), "job-1") == ["job_queued", "job_claimed"]
        assert await check(site.registry()) == ["job-1/1", "job-1/2"]

    asyncio.run(main())


# --- crashes ---------------------------------------------------------------------------------------


class Story:
    """A process that works until it dies, and what it was told was done."""

    def __init__(self, site: Site, objects: VersionedStore) -> None:
        self.site = site
        self.registry = site.registry(objects)
        self.made: set[str] = set()
        self.ended: set[str] = set()
        self.noted: set[str] = set()

    async def play(self) -> None:
        await self.registry.enqueue(request("a", lock="disk"), actor=ACTOR)
        self.made.add("a")
        many = [request(name, lock="disk" if name == "c" else None) for name in "bcd"]
        await self.registry.enqueue_many(many, actor=ACTOR)
        self.made |= set("bcd")
        await self.registry.record([note(self.site, "on-a", "a"), note(self.site, "alone")])
        self.noted |= {"on-a", "alone"}
        for grant in await self.registry.claim(["default"], owner="w-1", limit=3):
            await self.registry.heartbeat(grant)
            await self.registry.publish(grant, [output(self.site, 1)])
            if grant.job_id == "b":
                await self.registry.release(grant)
            else:
                await self.registry.complete(grant, Success())
                self.ended.add(grant.job_id)


@pytest.mark.parametrize("late", [True, False])
def test_a_crash_between_any_two_objects_loses_nothing_that_was_acknowledged(late: bool) -> None:
    async def main(n: int) -> int:
        site = Site()
        mortal = Mortal(site.objects, n, late=late)
        story = Story(site, mortal)
        try:
            await story.play()
        except (Crashed, Unavailable):
            assert mortal.calls >= n
        registry = site.registry()

        site.clock.advance(61)
        await check(registry)
        before = {job.job_id: job for job in (await registry.list_jobs()).jobs}
        assert story.made <= before.keys()
        assert all(before[job_id].state is State.SUCCEEDED for job_id in story.ended)
        while grants := await registry.claim(["default"], owner="w-2", limit=2):
            for grant in grants:
                await registry.complete(grant, Success())
        await registry.record([note(site, "on-a", "a"), note(site, "alone")])

        after = {job.job_id: job for job in (await registry.list_jobs()).jobs}
        assert after.keys() == before.keys()
        assert all(job.state is State.SUCCEEDED for job in after.values())
        site.clock.advance(61)
        feed = await check(registry)
        assert {"on-a", "alone"} <= set(feed)
        assert await site.objects.list_keys("pending/") == []
        return mortal.calls

    calls = asyncio.run(main(100_000))
    assert calls > 50
    for n in range(1, calls + 1):
        asyncio.run(main(n))


def test_what_a_dead_writer_committed_is_in_its_log_at_once_and_in_the_feed_soon() -> None:
    async def main() -> None:
        site = Site()

        class NoFeed(Through):
            async def create_if_absent(self, key: str, value: bytes) -> bool:
                if key.startswith("feed/"):
                    raise Crashed
                return await self.objects.create_if_absent(key, value)

        with pytest.raises(Unavailable) as caught:
            await site.registry(NoFeed(site.objects)).enqueue(request("job-1"), actor=ACTOR)
        registry = site.registry()

        assert caught.value.applied == "unknown"
        assert await types(registry, "job-1") == ["job_queued"]
        assert await read_feed(registry) == []
        site.clock.advance(10)
        assert await read_feed(registry) == ["job-1/1"]
        assert await read_feed(registry) == ["job-1/1"]

    asyncio.run(main())


def test_what_no_feed_has_yet_never_leaves_its_document() -> None:
    async def main() -> None:
        site = Site()

        class NoFeed(Through):
            async def create_if_absent(self, key: str, value: bytes) -> bool:
                if key.startswith("feed/"):
                    raise Crashed
                return await self.objects.create_if_absent(key, value)

        registry = site.registry()
        await registry.enqueue(request("job-1"), actor=ACTOR)
        [grant] = await registry.claim(["default"], owner="w")
        for first, last in ((1, 90), (91, 91)):
            events = [output(site, n) for n in range(first, last + 1)]
            with pytest.raises(Unavailable):
                await site.registry(NoFeed(site.objects)).publish(grant, events)

        site.clock.advance(10)

        assert len(await check(registry)) == 3 + 91

    asyncio.run(main())


def test_an_error_after_a_commit_says_that_it_may_have_been_applied() -> None:
    async def main() -> None:
        site = Site()

        class Down(Through):
            async def create_if_absent(self, key: str, value: bytes) -> bool:
                if key.startswith("feed/"):
                    raise Unavailable("The bucket is down.", applied="no")
                return await self.objects.create_if_absent(key, value)

        with pytest.raises(Unavailable) as caught:
            await site.registry(Down(site.objects)).enqueue(request("job-1"), actor=ACTOR)

        assert caught.value.applied == "unknown"

    asyncio.run(main())


def test_too_many_conflicts_are_unavailable_and_not_applied() -> None:
    class Contended(Through):
        async def put(self, key: str, value: bytes, version: VersionToken) -> bool:
            return False

    async def main() -> None:
        site = Site()
        await site.registry().enqueue(request("job-1"), actor=ACTOR)
        before = site.clock.now()

        with pytest.raises(Unavailable) as caught:
            await site.registry(Contended(site.objects)).acquire("job-1", owner="w-1")

        assert caught.value.applied == "no"
        assert timedelta(seconds=25.5) <= site.clock.now() - before <= timedelta(seconds=51)
        assert (await site.registry().get("job-1")).state is State.QUEUED

    asyncio.run(main())


def test_a_writer_that_was_given_up_and_wakes_up_is_not_lost_to_the_feed() -> None:
    """A repair closes its parcel while it sleeps; it commits under another one, and dies then."""

    async def main() -> None:
        site = Site()
        asleep, awake = asyncio.Event(), asyncio.Event()

        class Slow(Through):
            async def put(self, key: str, value: bytes, version: VersionToken) -> bool:
                if key.endswith("/state.json") and not asleep.is_set():
                    asleep.set()
                    await awake.wait()
                return await self.objects.put(key, value, version)

            async def create_if_absent(self, key: str, value: bytes) -> bool:
                if key.startswith("feed/"):
                    raise Crashed
                return await self.objects.create_if_absent(key, value)

        registry = site.registry()
        await registry.enqueue(request("job-1"), actor=ACTOR)
        claiming = asyncio.create_task(
            site.registry(Slow(site.objects)).acquire("job-1", owner="w-1")
        )
        await asleep.wait()
        site.clock.advance(10)
        assert await read_feed(registry) == ["job-1/1"]
        assert await site.objects.list_keys("pending/") == []
        awake.set()
        with pytest.raises(Unavailable):
            await claiming

        assert await types(registry, "job-1") == ["job_queued", "job_claimed"]
        site.clock.advance(10)
        assert await check(registry) == ["job-1/1", "job-1/2"]

    asyncio.run(main())


def test_a_moved_marker_whose_answer_was_lost_still_brings_the_job_back() -> None:
    class Overtaken(Through):
        lost = 0

        async def put(self, key: str, value: bytes, version: VersionToken) -> bool:
            landed = await self.objects.put(key, value, version)
            if landed and key.endswith("/state.json") and not self.lost:
                self.lost += 1
                await registry.heartbeat(grants[0])
                site.clock.advance(61)
                return False
            return landed

    site = Site()
    registry = site.registry()
    grants: list[Grant] = []

    async def main() -> None:
        await registry.enqueue(request("job-1"), actor=ACTOR)
        grants.extend(await registry.claim(["default"], owner="w"))
        await registry.heartbeat(grants[0])
        site.clock.advance(50)
        await registry.heartbeat(grants[0])
        site.clock.advance(20)
        overtaken = Overtaken(site.objects)

        assert await site.registry(overtaken).expire() == 0

        assert overtaken.lost == 1
        assert await registry.expire() == 1

    asyncio.run(main())


class Perilous(Jittery):
    """Everything at once: its own time for every call, lost answers, and death."""

    def __init__(self, objects: VersionedStore, random: Random) -> None:
        super().__init__(objects, random)
        self.life = random.randrange(20, 400)

    async def around(self, call: Callable[[], Awaitable[T]], *, verb: str) -> T:
        self.calls += 1
        if self.calls >= self.life:
            if self.calls == self.life and self.random.random() < 0.5:
                await call()
            raise Crashed
        answer = await super().around(call, verb=verb)
        if verb in ("put", "create_if_absent") and self.random.random() < 0.03:
            if self.random.random() < 0.5:
                return False  # type: ignore[return-value]
            raise Unavailable("The answer was lost.", applied="unknown")
        return answer


class Rush:
    """Six processes that do anything, and die, and are started again."""

    def __init__(self, seed: int) -> None:
        self.site = Site()
        self.random = Random(seed)
        self.steps = 300
        self.made: set[str] = set()
        self.ended: set[str] = set()
        self.tokens: dict[str, set[int]] = {}

    async def process(self, name: str) -> None:
        while self.steps > 0:
            objects = Perilous(self.site.objects, self.random)
            registry = self.site.registry(objects)
            while self.steps > 0 and objects.calls < objects.life:
                self.steps -= 1
                if self.random.random() < 0.1:
                    self.site.clock.advance(self.random.choice([1, 20, 70]))
                try:
                    await self.step(registry, name)
                except (HoldfastError, Crashed):
                    continue

    async def step(self, registry: LocalRegistry, name: str) -> None:
        number = self.random.randrange(30)
        job_id = f"job-{number}"
        match self.random.choices(
            ["enqueue", "claim", "record", "cancel", "expire", "feed"], [30, 40, 10, 5, 5, 10]
        ):
            case ["enqueue"]:
                lock = f"lock-{number % 3}" if number % 2 else None
                await registry.enqueue(request(job_id, lock=lock), actor=ACTOR)
                self.made.add(job_id)
            case ["claim"]:
                limit = self.random.randrange(1, 4)
                for grant in await registry.claim(["default"], owner=name, limit=limit):
                    await self.work(registry, grant)
            case ["record"]:
                about = self.random.choice([None, "job-1", "job-2"])
                await registry.record([note(self.site, f"e-{number}-{about}", about)])
            case ["cancel"]:
                await registry.cancel(job_id, actor=ACTOR)
            case ["expire"]:
                await registry.expire()
            case _:
                await registry.feed(limit=50)

    async def work(self, registry: LocalRegistry, grant: Grant) -> None:
        if grant.job.spec.lock:
            tokens = self.tokens.setdefault(grant.job.spec.lock, set())
            assert grant.fencing_token not in tokens
            tokens.add(grant.fencing_token)
        if self.random.random() < 0.6:
            await registry.heartbeat(grant)
            await registry.publish(grant, [output(self.site, 1), output(self.site, 2)])
        match self.random.randrange(4):
            case 0 | 1:
                await registry.complete(grant, Success())
                self.ended.add(grant.job_id)
            case 2:
                await registry.release(grant)
            case _:
                """It forgets the job."""


@pytest.mark.parametrize("seed", range(20))
def test_processes_that_die_and_lose_answers_at_random_lose_no_job_and_no_event(seed: int) -> None:
    async def main() -> None:
        rush = Rush(seed)
        await asyncio.gather(*(rush.process(f"p-{n}") for n in range(6)))
        site, registry = rush.site, rush.site.registry()

        jobs: tuple[Job, ...] = ()
        for _ in range(50):
            site.clock.advance(100)
            for grant in await registry.claim(["default"], owner="last", limit=10):
                await registry.complete(grant, Success())
            jobs = (await registry.list_jobs(limit=1000)).jobs
            if all(job.ended for job in jobs):
                break

        states = {job.job_id: job.state for job in jobs}
        assert all(job.ended for job in jobs)
        assert rush.made <= states.keys()
        assert all(states[job_id] is State.SUCCEEDED for job_id in rush.ended)
        await check(registry)
        await registry.expire()
        for hint in ("queues/", "due/", "pending/"):
            assert await site.objects.list_keys(hint) == []

    asyncio.run(main())


# --- hints -----------------------------------------------------------------------------------------


def test_a_marker_without_its_job_is_passed_by_and_cleared_away() -> None:
    class NoState(Through):
        async def create_if_absent(self, key: str, value: bytes) -> bool:
            if key.endswith("/state.json"):
                raise Crashed
            return await self.objects.create_if_absent(key, value)

    async def main() -> None:
        site = Site()
        with pytest.raises(Unavailable):
            await site.registry(NoState(site.objects)).enqueue(request("ghost"), actor=ACTOR)
        await site.registry().enqueue(request("job-1"), actor=ACTOR)
        registry = site.registry()

        assert [g.job_id for g in await registry.claim(["default"], owner="w")] == ["job-1"]
        assert [job.job_id for job in (await registry.list_jobs()).jobs] == ["job-1"]
        assert len(await site.objects.list_keys("queues/")) == 1
        site.clock.advance(61)
        await registry.claim(["default"], owner="w")
        assert await site.objects.list_keys("queues/") == []
        await registry.enqueue(request("ghost"), actor=ACTOR)
        assert [g.job_id for g in await registry.claim(["default"], owner="w")] == ["ghost"]

    asyncio.run(main())


def test_a_maker_that_wakes_up_after_its_marker_was_cleared_loses_nothing() -> None:
    async def main() -> None:
        site = Site()
        asleep, awake = asyncio.Event(), asyncio.Event()

        class Slow(Through):
            async def create_if_absent(self, key: str, value: bytes) -> bool:
                if key.endswith("/state.json"):
                    asleep.set()
                    await awake.wait()
                return await self.objects.create_if_absent(key, value)

        making = asyncio.create_task(
            site.registry(Slow(site.objects)).enqueue(request("slow"), actor=ACTOR)
        )
        await asleep.wait()
        site.clock.advance(61)
        registry = site.registry()
        assert await registry.claim(["default"], owner="w") == []
        assert await site.objects.list_keys("queues/") == []
        awake.set()

        job = await making

        assert job.state is State.QUEUED
        assert [g.job_id for g in await registry.claim(["default"], owner="w")] == ["slow"]

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(3))
def test_jobs_made_by_one_call_keep_its_order(seed: int) -> None:
    async def main() -> None:
        site = Site()
        registry = site.registry(Jittery(site.objects, Random(seed)))
        names = [f"job-{n}" for n in range(30)]
        await registry.enqueue_many([request(name) for name in names], actor=ACTOR)

        listed = [job.job_id for job in (await registry.list_jobs()).jobs]
        grants = await registry.claim(["default"], owner="w", limit=30)

        assert listed == names
        assert [grant.job_id for grant in grants] == names

    asyncio.run(main())


def test_a_job_that_processes_make_at_once_is_listed_once() -> None:
    async def main() -> None:
        site, random = Site(), Random(0)

        async def process(n: int) -> None:
            registry = site.registry(Jittery(site.objects, random))
            names = [*(f"own-{n}-{k}" for k in range(n)), "shared"]
            await registry.enqueue_many([request(name) for name in names], actor=ACTOR)

        await asyncio.gather(*(process(n) for n in range(4)))

        registry = site.registry()
        markers = await site.objects.list_keys("index/")
        assert sum(key.endswith("/shared") for key in markers) > 1
        listed = [job.job_id for job in (await registry.list_jobs()).jobs]
        assert listed.count("shared") == 1
        assert await registry.counts() == {State.QUEUED: 7}

    asyncio.run(main())


def test_a_lease_is_due_before_the_deadline_that_was_known_first() -> None:
    async def main() -> None:
        site = Site()
        registry = site.registry()
        await registry.enqueue(request("job-1", ttl=timedelta(hours=1)), actor=ACTOR)
        await registry.claim(["default"], owner="w")
        site.clock.advance(61)

        assert await registry.expire() == 1

        assert (await registry.get("job-1")).state is State.QUEUED
        site.clock.advance(3600)
        assert await registry.expire() == 1
        assert (await registry.get("job-1")).ended

    asyncio.run(main())


def test_heartbeats_write_one_object_and_no_marker() -> None:
    async def main() -> None:
        site = Site()
        objects = Through(site.objects)
        registry = site.registry(objects)
        await registry.enqueue(request("job-1", lock="disk"), actor=ACTOR)
        [grant] = await registry.claim(["default"], owner="w")
        await registry.heartbeat(grant)
        site.clock.advance(30)
        before, keys = objects.calls, await site.objects.list_keys("")

        await registry.heartbeat(grant)

        assert objects.calls - before == 2
        assert await site.objects.list_keys("") == keys

    asyncio.run(main())


def test_a_marker_that_comes_too_early_is_moved_to_when_the_job_is_due() -> None:
    async def main() -> None:
        site = Site()
        registry = site.registry()
        await registry.enqueue(request("job-1"), actor=ACTOR)
        [grant] = await registry.claim(["default"], owner="w")
        [early] = await site.objects.list_keys("due/")
        site.clock.advance(50)
        await registry.heartbeat(grant)
        assert await site.objects.list_keys("due/") == [early]
        site.clock.advance(20)

        assert await registry.expire() == 0

        [moved] = await site.objects.list_keys("due/")
        assert moved > early
        site.clock.advance(40)
        assert await registry.expire() == 1
        assert await site.objects.list_keys("due/") == []

    asyncio.run(main())


# --- logs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 20_000])
def test_a_long_log_is_spilled_out_of_the_document_and_read_back_whole(size: int) -> None:
    async def main() -> None:
        site = Site()
        registry = site.registry()
        await registry.enqueue(request("job-1"), actor=ACTOR)
        [grant] = await registry.claim(["default"], owner="w", op_id="op-1")
        await registry.record([note(site, "early", "job-1")])
        for n in range(1, 201):
            await registry.publish(grant, [output(site, n, b"x" * size)])

        found = await site.objects.get("jobs/job-1/state.json")

        assert found is not None
        assert len(found[0]) < 100_000
        for limit in (1000, 7):
            log = await read_log(registry, "job-1", limit)
            assert [event.log_id for event in log] == list(range(1, 205))
            assert [e.sequence for e in log if e.sequence] == list(range(1, 201))
        assert await registry.record([note(site, "early", "job-1")]) == 0
        other = site.registry()
        [again] = await other.claim(["default"], owner="w", op_id="op-1")
        assert again.fencing_token == grant.fencing_token
        await check(other)

    asyncio.run(main())


def test_two_processes_on_one_job_feed_its_events_in_order() -> None:
    async def main(seed: int) -> None:
        site, random = Site(), Random(seed)
        await site.registry().enqueue(request("job-1"), actor=ACTOR)

        async def process(name: str) -> None:
            registry = site.registry(Jittery(site.objects, random))
            for n in range(10):
                await registry.record([note(site, f"{name}-{n}", "job-1")])

        await asyncio.gather(*(process(f"p{n}") for n in range(4)))

        site.clock.advance(60)
        assert len(await read_log(site.registry(), "job-1")) == 41
        await check(site.registry())

    for seed in range(5):
        asyncio.run(main(seed))


@pytest.mark.parametrize("seed", range(5))
def test_one_process_feeds_every_event_once(seed: int) -> None:
    async def main() -> None:
        site = Site()
        store = site.store(Jittery(site.objects, Random(seed)))
        await LocalRegistry(store, site.ids).enqueue(request("job-1"), actor=ACTOR)

        await asyncio.gather(*(store.record([note(site, f"e-{n}", "job-1")]) for n in range(12)))

        feed = await check(LocalRegistry(store, site.ids))
        assert len(feed) == len(set(feed)) == 13

    asyncio.run(main())


def test_events_of_a_job_that_is_not_there_are_kept_for_it() -> None:
    async def main() -> None:
        site = Site()
        registry = site.registry()
        assert await registry.record([note(site, "first", "job-1")]) == 1
        assert await site.store().get(["job-1"]) == [None]

        await registry.enqueue(request("job-1"), actor=ACTOR)

        log = await read_log(registry, "job-1")
        assert [event.event_id for event in log] == ["first", "job-1/1"]
        await check(registry)

    asyncio.run(main())


def test_one_event_id_is_one_event_however_many_record_it() -> None:
    async def main() -> None:
        site, random = Site(), Random(1)
        events = [note(site, f"evt-{n}", "job-1" if n % 2 else None) for n in range(6)]

        counted = await asyncio.gather(
            *(site.registry(Jittery(site.objects, random)).record(events) for _ in range(8))
        )

        assert sum(counted) == 6
        site.clock.advance(60)
        feed = await read_feed(site.registry())
        assert sorted(set(feed)) == [f"evt-{n}" for n in range(6)]
        log = await site.store().log("job-1", after=None, limit=100)
        assert sorted(event.event_id for event in log.events) == ["evt-1", "evt-3", "evt-5"]

    asyncio.run(main())


def test_a_pruned_job_leaves_no_object_behind() -> None:
    async def main() -> None:
        site = Site()
        registry = site.registry()
        before = await site.objects.list_keys("")
        await registry.enqueue(request("job-1", lock="disk", ttl=timedelta(hours=1)), actor=ACTOR)
        [grant] = await registry.claim(["default"], owner="w")
        for n in range(1, 100):
            await registry.publish(grant, [output(site, n)])
        await registry.record([note(site, "on-it", "job-1")])
        await registry.complete(grant, Success())
        site.clock.advance(days=2)

        pruned = await registry.prune(older_than=timedelta(days=1))

        assert pruned.jobs == 1
        left = [key for key in await site.objects.list_keys("") if key not in before]
        assert [key.partition("/")[0] for key in left] == ["feed", "locks"]
        assert await read_feed(registry) == []
        await registry.enqueue(request("job-2", lock="disk"), actor=ACTOR)
        [again] = await registry.claim(["default"], owner="w")
        assert again.fencing_token > grant.fencing_token
        assert await site.objects.list_keys("jobs/job-1/") == []
        await check(registry)

    asyncio.run(main())


def test_the_end_of_a_long_feed_is_found_by_a_new_process() -> None:
    async def main() -> None:
        for count in (0, 1, 2, 3, 7, 8, 9, 33):
            site = Site()
            registry = site.registry()
            for n in range(count):
                await registry.enqueue(request(f"job-{n}"), actor=ACTOR)

            await site.registry().enqueue(request("last"), actor=ACTOR)

            assert await read_feed(registry) == [*(f"job-{n}/1" for n in range(count)), "last/1"]
            assert len(await site.objects.list_keys("feed/")) == count + 1

    asyncio.run(main())
