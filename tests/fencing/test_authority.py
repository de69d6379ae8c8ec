"""What a guard knows of the registry: asked, or remembered. Scenario 17."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import Fenced, Invalid, Unavailable
from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.fencing import Authority, CachedAuthority, Fence, Guard, RegistryAuthority
from holdfast.fencing.authority import Ownership
from holdfast.registry.local import LocalRegistry
from holdfast.testing.world import Opener
from tests.fencing.counting_registry import STORES, counting_world, fence, to_token, verdicts


async def test_scenario_17_authoritative(tmp_path: Path) -> None:
    async with counting_world(tmp_path) as (world, registry):
        await world.enqueue("job-1")
        await to_token(world, 43)

        assert await verdicts(RegistryAuthority(registry), 30, 42, 43) == [False, False, True]
        assert registry.calls == 3


async def test_scenario_17_cached(tmp_path: Path) -> None:
    async with counting_world(tmp_path) as (world, registry):
        await world.enqueue("job-1")
        authority = CachedAuthority(registry, clock=world.clock)
        await to_token(world, 41)
        await authority.check(fence(41))
        await to_token(world, 43)
        registry.read_ids.clear()

        assert await verdicts(authority, 30) == [False]
        assert registry.read_ids == []  # far below: refused at once
        assert await verdicts(authority, 42) == [False]
        assert registry.read_ids == ["job-1"]  # close: asked, and refused by the registry
        assert await verdicts(authority, 43) == [True]
        assert registry.read_ids == ["job-1"]  # what was asked is known now


async def test_scenario_17_cached_asks_about_a_token_above_what_it_knows(tmp_path: Path) -> None:
    async with counting_world(tmp_path) as (world, registry):
        await world.enqueue("job-1")
        authority = CachedAuthority(registry, clock=world.clock)
        await to_token(world, 41)
        await authority.check(fence(41))
        await to_token(world, 43)

        assert await verdicts(authority, 43) == [True]
        assert registry.calls == 2


@pytest.mark.parametrize("opener", STORES)
@pytest.mark.parametrize("pattern", [RegistryAuthority, CachedAuthority])
async def test_a_token_counts_while_it_holds_its_job_and_no_longer(
    tmp_path: Path, opener: Opener, pattern: Callable[[LocalRegistry], Authority]
) -> None:
    async with counting_world(tmp_path, opener) as (world, registry):

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


async def test_a_fence_that_names_another_lock_than_its_job_is_refused(tmp_path: Path) -> None:
    async with counting_world(tmp_path) as (world, registry):
        await world.enqueue("job-1", lock="account-17")
        await world.claim()
        for authority in (RegistryAuthority(registry), CachedAuthority(registry)):
            await authority.check(fence(1, "account-17"))
            for lock in ("account-18", None):
                with pytest.raises(Fenced, match="lock account-17"):
                    await authority.check(fence(1, lock))


async def test_what_is_remembered_gets_old(tmp_path: Path) -> None:
    async with counting_world(tmp_path) as (world, registry):
        await world.enqueue("job-1")
        authority = CachedAuthority(registry, max_age=5, clock=world.clock)
        first = await world.claim()
        await authority.check(fence(1))
        await world.registry.release(first)
        await world.claim()

        world.clock.advance(5)
        assert await verdicts(authority, 1) == [True]  # stale, but not for longer than max_age
        world.clock.advance(0.001)
        assert await verdicts(authority, 1) == [False]
        assert registry.calls == 2


async def test_marks_refuse_what_a_cache_lets_through(tmp_path: Path) -> None:
    """The successor has written, the cache does not know it yet: the resource does."""

    async with counting_world(tmp_path) as (world, registry):
        await world.enqueue("job-1")
        guard = Guard(CachedAuthority(registry, clock=world.clock))
        first = await world.claim()
        await guard.check(fence(1))
        await world.registry.release(first)
        await world.claim()
        behind = Guard(CachedAuthority(registry, clock=world.clock), guard._marks)
        await behind.check(fence(2))

        assert await verdicts(guard._authority, 2, 1) == [True, False]  # type: ignore[arg-type]
        with pytest.raises(Fenced, match="has seen token 2"):
            await Guard(None, guard._marks).check(fence(1))


async def test_a_mark_is_not_raised_by_what_the_registry_refuses(tmp_path: Path) -> None:
    """Somebody's made-up token must not lock the owner out."""

    async with counting_world(tmp_path) as (world, registry):
        await world.enqueue("job-1")
        await world.claim()
        for authority in (RegistryAuthority(registry), CachedAuthority(registry)):
            guard = Guard(authority)
            with pytest.raises(Fenced, match="not granted"):
                await guard.check(fence(2**62))
            await guard.check(fence(1))


async def test_questions_that_come_together_are_asked_together(tmp_path: Path) -> None:
    async with counting_world(tmp_path) as (world, registry):
        for n in range(40):
            await world.enqueue(f"job-{n}")
        for _ in range(40):
            await world.claim()
        authority = RegistryAuthority(registry)
        fences = [Fence(resource="r", token=1, job_id=f"job-{n % 40}") for n in range(200)]

        await asyncio.gather(*(authority.check(one) for one in fences))
        assert registry.calls <= 2
        assert len(registry.read_ids) <= 80


async def test_an_answer_is_never_older_than_its_question(tmp_path: Path) -> None:
    """A question about the job that is under way does not answer one that comes later."""

    async with counting_world(tmp_path) as (world, registry):
        await world.enqueue("job-1")
        first = await world.claim()
        authority = RegistryAuthority(registry)
        reading, go_on = asyncio.Event(), asyncio.Event()
        real = registry.status_many

        async def slow(job_ids: Sequence[str]) -> list[Job | None]:
            found = await real(job_ids)
            reading.set()
            await go_on.wait()
            return found

        registry.status_many = slow  # type: ignore[method-assign]
        early = asyncio.create_task(authority.check(fence(1)))
        await reading.wait()
        await world.registry.release(first)
        late = asyncio.create_task(authority.check(fence(1)))
        await asyncio.sleep(0)
        go_on.set()

        await early
        with pytest.raises(Fenced):
            await late


@pytest.mark.parametrize("pattern", [RegistryAuthority, CachedAuthority])
async def test_a_guard_that_cannot_ask_lets_nothing_through(
    tmp_path: Path, pattern: Callable[[LocalRegistry], Authority]
) -> None:
    async with counting_world(tmp_path) as (world, registry):
        await world.enqueue("job-1")
        await world.claim()
        authority = pattern(registry)
        registry.cut = True
        for _ in range(2):
            with pytest.raises(Unavailable):
                await authority.check(fence(1))
        registry.cut = False
        await authority.check(fence(1))


async def test_who_stops_waiting_for_an_answer_takes_it_from_nobody_else(tmp_path: Path) -> None:
    async with counting_world(tmp_path) as (world, registry):
        await world.enqueue("job-1")
        await world.claim()
        authority = RegistryAuthority(registry)
        leaver, stayer = (asyncio.create_task(authority.check(fence(1))) for _ in range(2))
        await asyncio.sleep(0)
        leaver.cancel()

        await stayer
        with pytest.raises(asyncio.CancelledError):
            await leaver
        await authority.check(fence(1))


async def test_a_cache_has_an_end(tmp_path: Path) -> None:
    async with counting_world(tmp_path) as (world, registry):
        authority = CachedAuthority(registry, limit=2, clock=world.clock)
        for n in range(3):
            await world.enqueue(f"job-{n}")
            await world.claim()
        for n in (0, 1, 2, 2, 1, 0):
            await authority.check(Fence(resource="r", token=1, job_id=f"job-{n}"))
        assert registry.read_ids == ["job-0", "job-1", "job-2", "job-0"]


@pytest.mark.parametrize("options", [{"max_age": 0}, {"threshold": -1}, {"limit": 0}])
async def test_a_cache_without_sense_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    async with counting_world(tmp_path) as (_world, registry):
        with pytest.raises(Invalid):
            CachedAuthority(registry, **options)


async def test_a_cache_asks_about_a_job_that_nobody_holds(tmp_path: Path) -> None:
    """It knows that token 2 will be next. That is not to say that 2 may write."""

    async with counting_world(tmp_path) as (world, registry):
        await world.enqueue("job-1")
        first = await world.claim()
        authority = CachedAuthority(registry, clock=world.clock)
        await world.registry.release(first)
        assert await verdicts(authority, 1, 2, 2) == [False, False, False]
        await world.claim()
        assert await verdicts(authority, 2) == [True]


async def test_an_answer_is_as_old_as_its_question(tmp_path: Path) -> None:
    async with counting_world(tmp_path) as (world, registry):
        await world.enqueue("job-1")
        first = await world.claim()
        authority = CachedAuthority(registry, max_age=5, clock=world.clock)
        real = registry.status_many

        async def slow(job_ids: Sequence[str]) -> list[Job | None]:
            found = await real(job_ids)
            world.clock.advance(4)
            return found

        registry.status_many = slow  # type: ignore[method-assign]
        await authority.check(fence(1))
        await world.registry.release(first)
        world.clock.advance(2)
        assert await verdicts(authority, 1) == [False]


async def test_an_old_answer_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    async with counting_world(tmp_path) as (world, registry):
        authority = CachedAuthority(registry, threshold=0, clock=world.clock)
        authority.remember("job-1", Ownership(7, True, None), 0)
        assert authority.remember("job-1", Ownership(3, True, None), 1).epoch == 7
        authority.raise_epoch("job-1", 5)
        assert await verdicts(authority, 6, 7) == [False, True]
        authority.raise_epoch("job-1", 8)
        assert await verdicts(authority, 7) == [False]
        assert registry.read_ids == []


async def test_many_questions_are_asked_in_parts(tmp_path: Path) -> None:
    async with counting_world(tmp_path) as (_world, registry):
        authority = RegistryAuthority(registry)
        sizes: list[int] = []

        async def none(job_ids: Sequence[str]) -> list[Job | None]:
            sizes.append(len(job_ids))
            return [None] * len(job_ids)

        registry.status_many = none  # type: ignore[method-assign]
        fences = [Fence(resource="r", token=1, job_id=f"job-{n}") for n in range(1_300)]
        answers = await asyncio.gather(*map(authority.check, fences), return_exceptions=True)
        assert all(isinstance(answer, Fenced) for answer in answers)
        assert sizes == [500, 500, 300]


def test_a_guard_belongs_to_one_loop_and_outlives_it(tmp_path: Path) -> None:
    class Empty:
        """A registry without jobs."""

        def __init__(self) -> None:
            self.stuck = True

        async def status_many(self, job_ids: Sequence[str]) -> list[Job | None]:
            await asyncio.sleep(60 * self.stuck)
            return [None] * len(job_ids)

    registry = Empty()
    authority = RegistryAuthority(registry)  # type: ignore[arg-type]

    async def ask() -> bool:
        return (await asyncio.wait_for(verdicts(authority, 1), 20))[0]

    async def leave() -> None:
        task = asyncio.create_task(ask())
        await asyncio.sleep(0.02)
        task.cancel()

    async def elsewhere() -> None:
        await ask()
        with pytest.raises(Invalid, match="one event loop"):
            await asyncio.to_thread(asyncio.run, ask())

    asyncio.run(leave())
    registry.stuck = False
    assert not asyncio.run(ask())
    asyncio.run(elsewhere())
