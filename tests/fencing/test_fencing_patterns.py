"""What a guard knows of the registry: asked, remembered, or told by the feed. Scenario 17."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from conftest import cas_store, memory_store, sqlite_store
from holdfast.core.errors import Conflict, Fenced, HoldfastError, Invalid, Unavailable
from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.fencing import Authoritative, Authority, Cached, Fence, Guard, Subscribed
from holdfast.ports import Grant, Slice
from holdfast.registry.local import LocalRegistry
from holdfast.testing.world import Opener, World, play
from postgres_world import postgres_store

STORES = [memory_store, sqlite_store, cas_store, postgres_store]


class Asked(LocalRegistry):
    """A registry that counts what it is asked, and can be cut off."""

    def __init__(self, world: World) -> None:
        super().__init__(world.store, world.ids)
        self.asked: list[str] = []
        self.calls = 0
        self.cut = self.deaf = False

    async def get_many(self, job_ids: Sequence[str]) -> list[Job | None]:
        if self.cut:
            raise Unavailable("The store is away.")
        self.asked += job_ids
        self.calls += 1
        return await super().get_many(job_ids)

    async def feed(self, *, after: str | None = None, limit: int = 1000) -> Slice:
        if self.cut or self.deaf:
            raise Unavailable("The store is away.")
        return await super().feed(after=after, limit=limit)


Body = Callable[[World, Asked], Coroutine[Any, Any, None]]


def run(tmp_path: Path, body: Body, opener: Opener = memory_store) -> None:
    async def main(world: World) -> None:
        await body(world, Asked(world))

    play(opener, tmp_path, main)


async def to_token(world: World, token: int) -> Grant:
    """The job's grant with that token."""
    job = await world.registry.get("job-1")
    while True:
        if job.lease is not None:
            grant = Grant(
                job=job, fencing_token=job.fencing_token, attempt=job.attempt, lease_seconds=60
            )
            if grant.fencing_token >= token:
                return grant
            await world.registry.release(grant)
        job = (await world.claim()).job


def fence(token: int, lock: str | None = None) -> Fence:
    return Fence(resource="account-17", token=token, job_id="job-1", lock=lock)


async def verdicts(authority: Authority, *tokens: int) -> list[bool]:
    found = []
    for token in tokens:
        try:
            await authority.check(fence(token))
        except Fenced:
            found.append(False)
        else:
            found.append(True)
    return found


async def heard(world: World, authority: Subscribed) -> None:
    """Until the authority has heard the feed to its end, as it is now."""
    authority._heard = None
    deadline = asyncio.get_running_loop().time() + 30
    while authority.silent:
        assert asyncio.get_running_loop().time() < deadline
        world.store._signal.set()  # type: ignore[attr-defined]
        await asyncio.sleep(0.005)


def test_scenario_17_authoritative(tmp_path: Path) -> None:
    async def body(world: World, registry: Asked) -> None:
        await world.enqueue("job-1")
        await to_token(world, 43)

        assert await verdicts(Authoritative(registry), 30, 42, 43) == [False, False, True]
        assert registry.calls == 3

    run(tmp_path, body)


def test_scenario_17_cached(tmp_path: Path) -> None:
    async def body(world: World, registry: Asked) -> None:
        await world.enqueue("job-1")
        authority = Cached(registry, clock=world.clock)
        await to_token(world, 41)
        await authority.check(fence(41))
        await to_token(world, 43)
        registry.asked.clear()

        assert await verdicts(authority, 30) == [False]
        assert registry.asked == []  # far below: refused at once
        assert await verdicts(authority, 42) == [False]
        assert registry.asked == ["job-1"]  # close: asked, and refused by the registry
        assert await verdicts(authority, 43) == [True]
        assert registry.asked == ["job-1"]  # what was asked is known now

    run(tmp_path, body)


def test_scenario_17_cached_asks_about_a_token_above_what_it_knows(tmp_path: Path) -> None:
    async def body(world: World, registry: Asked) -> None:
        await world.enqueue("job-1")
        authority = Cached(registry, clock=world.clock)
        await to_token(world, 41)
        await authority.check(fence(41))
        await to_token(world, 43)

        assert await verdicts(authority, 43) == [True]
        assert registry.calls == 2

    run(tmp_path, body)


@pytest.mark.parametrize("opener", STORES)
def test_scenario_17_subscribed(tmp_path: Path, opener: Opener) -> None:
    async def body(world: World, registry: Asked) -> None:
        await world.enqueue("job-1")
        await to_token(world, 41)
        async with Subscribed(registry, clock=world.clock, beat=0.02, silence=3) as authority:
            await heard(world, authority)
            await authority.check(fence(41))
            await to_token(world, 43)
            await heard(world, authority)
            registry.asked.clear()

            assert await verdicts(authority, 30, 42, 43) == [False, False, True]
            assert registry.asked == []  # all of it was told

            registry.deaf = True
            await asyncio.sleep(0.1)
            world.clock.advance(4)
            assert authority.silent
            assert await verdicts(authority, 30, 42, 43) == [False, False, True]
            assert registry.asked == ["job-1"] * 3  # silent: every write is asked about

            registry.deaf = False
            world.clock.advance(1)  # whoever listens tries again
            await heard(world, authority)
            assert await verdicts(authority, 43, 43, 42) == [True, True, False]
            assert len(registry.asked) == 4  # once: what happened meanwhile was not told
        assert authority.silent

    run(tmp_path, body, opener)


@pytest.mark.parametrize("opener", STORES)
def test_a_subscriber_knows_of_claims_and_ends_without_asking(
    tmp_path: Path, opener: Opener
) -> None:
    async def body(world: World, registry: Asked) -> None:
        async with Subscribed(registry, clock=world.clock, beat=0.02) as authority:
            await heard(world, authority)
            await world.enqueue("job-1", lock="account-17")
            grant = await world.claim()
            await heard(world, authority)
            await authority.check(fence(1, "account-17"))
            await world.registry.complete(grant, Success())
            await heard(world, authority)
            with pytest.raises(Fenced):
                await authority.check(fence(1, "account-17"))
            assert registry.asked == []

    run(tmp_path, body, opener)


@pytest.mark.parametrize("opener", STORES)
@pytest.mark.parametrize("pattern", [Authoritative, Cached])
def test_a_token_counts_while_it_holds_its_job_and_no_longer(
    tmp_path: Path, opener: Opener, pattern: Callable[[LocalRegistry], Authority]
) -> None:
    async def body(world: World, registry: Asked) -> None:
        async def allowed(token: int) -> bool:
            return (await verdicts(pattern(registry), token))[0]

        assert not await allowed(1)  # there is no such job
        await world.enqueue("job-1")
        assert not await allowed(1)  # nobody has claimed it
        grant = await world.claim()
        assert await allowed(1)
        assert not await allowed(2)  # never granted
        await world.registry.release(grant)
        assert not await allowed(1)  # released, and not claimed again yet
        second = await world.claim()
        assert await allowed(2)
        assert not await allowed(1)
        await world.registry.complete(second, Success())
        assert not await allowed(2)  # ended

    run(tmp_path, body, opener)


def test_a_fence_that_names_another_lock_than_its_job_is_refused(tmp_path: Path) -> None:
    async def body(world: World, registry: Asked) -> None:
        await world.enqueue("job-1", lock="account-17")
        await world.claim()
        for authority in (Authoritative(registry), Cached(registry)):
            await authority.check(fence(1, "account-17"))
            for lock in ("account-18", None):
                with pytest.raises(Fenced, match="lock account-17"):
                    await authority.check(fence(1, lock))

    run(tmp_path, body)


def test_what_is_remembered_gets_old(tmp_path: Path) -> None:
    async def body(world: World, registry: Asked) -> None:
        await world.enqueue("job-1")
        authority = Cached(registry, max_age=5, clock=world.clock)
        first = await world.claim()
        await authority.check(fence(1))
        await world.registry.release(first)
        await world.claim()

        world.clock.advance(5)
        assert await verdicts(authority, 1) == [True]  # stale, but not for longer than max_age
        world.clock.advance(0.001)
        assert await verdicts(authority, 1) == [False]
        assert registry.calls == 2

    run(tmp_path, body)


def test_marks_refuse_what_a_cache_lets_through(tmp_path: Path) -> None:
    """The successor has written, the cache does not know it yet: the resource does."""

    async def body(world: World, registry: Asked) -> None:
        await world.enqueue("job-1")
        guard = Guard(Cached(registry, clock=world.clock))
        first = await world.claim()
        await guard.check(fence(1))
        await world.registry.release(first)
        await world.claim()
        behind = Guard(Cached(registry, clock=world.clock), guard._marks)
        await behind.check(fence(2))

        assert await verdicts(guard._authority, 2, 1) == [True, False]  # type: ignore[arg-type]
        with pytest.raises(Fenced, match="has seen token 2"):
            await Guard(None, guard._marks).check(fence(1))

    run(tmp_path, body)


def test_a_mark_is_not_raised_by_what_the_registry_refuses(tmp_path: Path) -> None:
    """Somebody's made-up token must not lock the owner out."""

    async def body(world: World, registry: Asked) -> None:
        await world.enqueue("job-1")
        await world.claim()
        for authority in (Authoritative(registry), Cached(registry)):
            guard = Guard(authority)
            with pytest.raises(Fenced, match="not granted"):
                await guard.check(fence(2**62))
            await guard.check(fence(1))

    run(tmp_path, body)


def test_questions_that_come_together_are_asked_together(tmp_path: Path) -> None:
    async def body(world: World, registry: Asked) -> None:
        for n in range(40):
            await world.enqueue(f"job-{n}")
        for _ in range(40):
            await world.claim()
        authority = Authoritative(registry)
        fences = [Fence(resource="r", token=1, job_id=f"job-{n % 40}") for n in range(200)]

        await asyncio.gather(*(authority.check(one) for one in fences))
        assert registry.calls <= 2
        assert len(registry.asked) <= 80

    run(tmp_path, body)


def test_an_answer_is_never_older_than_its_question(tmp_path: Path) -> None:
    """A question about the job that is under way does not answer one that comes later."""

    async def body(world: World, registry: Asked) -> None:
        await world.enqueue("job-1")
        first = await world.claim()
        authority = Authoritative(registry)
        reading, go_on = asyncio.Event(), asyncio.Event()
        real = registry.get_many

        async def slow(job_ids: Sequence[str]) -> list[Job | None]:
            found = await real(job_ids)
            reading.set()
            await go_on.wait()
            return found

        registry.get_many = slow  # type: ignore[method-assign]
        early = asyncio.create_task(authority.check(fence(1)))
        await reading.wait()
        await world.registry.release(first)
        late = asyncio.create_task(authority.check(fence(1)))
        await asyncio.sleep(0)
        go_on.set()

        await early
        with pytest.raises(Fenced):
            await late

    run(tmp_path, body)


@pytest.mark.parametrize("pattern", [Authoritative, Cached])
def test_a_guard_that_cannot_ask_lets_nothing_through(
    tmp_path: Path, pattern: Callable[[LocalRegistry], Authority]
) -> None:
    async def body(world: World, registry: Asked) -> None:
        await world.enqueue("job-1")
        await world.claim()
        authority = pattern(registry)
        registry.cut = True
        for _ in range(2):
            with pytest.raises(Unavailable):
                await authority.check(fence(1))
        registry.cut = False
        await authority.check(fence(1))

    run(tmp_path, body)


def test_who_stops_waiting_for_an_answer_takes_it_from_nobody_else(tmp_path: Path) -> None:
    async def body(world: World, registry: Asked) -> None:
        await world.enqueue("job-1")
        await world.claim()
        authority = Authoritative(registry)
        leaver, stayer = (asyncio.create_task(authority.check(fence(1))) for _ in range(2))
        await asyncio.sleep(0)
        leaver.cancel()

        await stayer
        with pytest.raises(asyncio.CancelledError):
            await leaver
        await authority.check(fence(1))

    run(tmp_path, body)


def test_a_subscriber_that_is_cut_off_begins_again(tmp_path: Path) -> None:
    async def body(world: World, registry: Asked) -> None:
        await world.enqueue("job-1")
        first = await world.claim()
        async with Subscribed(registry, clock=world.clock, beat=0.02, silence=3) as authority:
            await heard(world, authority)
            await authority.check(fence(1))
            registry.cut = True
            world.store._signal.set()  # type: ignore[attr-defined]
            await asyncio.sleep(0.05)
            assert authority.silent
            with pytest.raises(Unavailable):
                await authority.check(fence(1))
            await world.registry.release(first)
            await world.claim()
            registry.cut = False
            assert await verdicts(authority, 1, 2) == [False, True]
            world.clock.advance(1)
            await heard(world, authority)
            assert await verdicts(authority, 1, 2) == [False, True]

    run(tmp_path, body)


def test_a_cache_has_an_end(tmp_path: Path) -> None:
    async def body(world: World, registry: Asked) -> None:
        authority = Cached(registry, limit=2, clock=world.clock)
        for n in range(3):
            await world.enqueue(f"job-{n}")
            await world.claim()
        for n in (0, 1, 2, 2, 1, 0):
            await authority.check(Fence(resource="r", token=1, job_id=f"job-{n}"))
        assert registry.asked == ["job-0", "job-1", "job-2", "job-0"]

    run(tmp_path, body)


@pytest.mark.parametrize("options", [{"max_age": 0}, {"threshold": -1}, {"limit": 0}])
def test_a_cache_without_sense_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    async def body(world: World, registry: Asked) -> None:
        with pytest.raises(Invalid):
            Cached(registry, **options)

    run(tmp_path, body)


def test_a_subscriber_that_reads_too_seldom_is_refused(tmp_path: Path) -> None:
    async def body(world: World, registry: Asked) -> None:
        for beat, silence in ((0.0, 1.0), (2.0, 1.0)):
            with pytest.raises(Invalid):
                Subscribed(registry, beat=beat, silence=silence)

    run(tmp_path, body)


def test_refusals_have_the_job_and_say_what_to_do() -> None:
    for error in (Fenced("x", job_id="job-1"), Conflict("x", job_id="job-1")):
        assert isinstance(error, HoldfastError)
        assert error.advice
