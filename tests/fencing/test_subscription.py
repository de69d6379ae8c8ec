"""What a guard is told by the feed. Scenario 17."""

import asyncio
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.core.errors import Conflict, Fenced, Invalid, Unavailable
from holdfast.core.lifecycle import Success
from holdfast.core.state import State
from holdfast.fencing import CachedAuthority, SubscribedAuthority
from holdfast.fencing.authority import Ownership
from holdfast.ports import EventPage
from holdfast.registry.local import LocalRegistry
from holdfast.testing.world import Opener, output
from tests.fencing.counting_registry import (
    STORES,
    counting_world,
    fence,
    to_token,
    verdicts,
    wait_until_read,
)


@pytest.mark.parametrize("opener", STORES)
async def test_scenario_17_subscribed(tmp_path: Path, opener: Opener) -> None:
    async with counting_world(tmp_path, opener) as (world, registry):
        await world.enqueue("job-1")
        await to_token(world, 41)
        async with SubscribedAuthority(registry, clock=world.clock, beat=0.02, silence=3) as authority:
            await wait_until_read(registry)
            await authority.check(fence(41))
            await to_token(world, 43)
            await wait_until_read(registry)
            registry.read_ids.clear()

            assert await verdicts(authority, 30, 42) == [False, False]
            assert registry.read_ids == []  # that they are stale was told
            assert await verdicts(authority, 43, 43) == [True, True]
            assert registry.read_ids == ["job-1"]  # that somebody holds it is asked about, once
            registry.read_ids.clear()

            registry.deaf = True
            await asyncio.sleep(0.1)
            world.clock.advance(4)
            assert authority.silent
            assert await verdicts(authority, 30, 42, 43) == [False, False, True]
            assert registry.read_ids == ["job-1"] * 3  # silent: every write is asked about

            registry.deaf = False
            world.clock.advance(1)  # whoever listens tries again
            await wait_until_read(registry)
            assert await verdicts(authority, 43, 43, 42) == [True, True, False]
            assert len(registry.read_ids) == 4  # once: what happened meanwhile was not told
        assert authority.silent


@pytest.mark.parametrize("opener", STORES)
async def test_a_subscriber_asks_once_about_a_grant_and_knows_of_its_end(
    tmp_path: Path, opener: Opener
) -> None:
    async with (
        counting_world(tmp_path, opener) as (world, registry),
        SubscribedAuthority(registry, clock=world.clock, beat=0.02) as authority,
    ):
        await wait_until_read(registry)
        await world.enqueue("job-1", lock="account-17")
        grant = await world.claim()
        await wait_until_read(registry)
        for _ in range(3):
            await authority.check(fence(1, "account-17"))
        await world.registry.complete(grant, Success())
        await wait_until_read(registry)
        with pytest.raises(Fenced):
            await authority.check(fence(1, "account-17"))
        assert registry.read_ids == ["job-1"]


async def test_a_subscriber_that_is_cut_off_begins_again(tmp_path: Path) -> None:
    async with counting_world(tmp_path) as (world, registry):
        await world.enqueue("job-1")
        first = await world.claim()
        async with SubscribedAuthority(registry, clock=world.clock, beat=0.02, silence=3) as authority:
            await wait_until_read(registry)
            await authority.check(fence(1))
            registry.cut = True
            await asyncio.sleep(0.1)
            await authority.check(fence(1))  # what is known counts for a while
            world.clock.advance(4)
            assert authority.silent
            with pytest.raises(Unavailable):
                await authority.check(fence(1))
            await world.registry.release(first)
            await world.claim()
            registry.cut = False
            assert await verdicts(authority, 1, 2) == [False, True]
            world.clock.advance(1)
            await wait_until_read(registry)
            assert await verdicts(authority, 1, 2) == [False, True]


async def test_a_subscriber_that_reads_too_seldom_is_refused(tmp_path: Path) -> None:
    async with counting_world(tmp_path) as (_world, registry):
        for beat, silence in ((0.0, 1.0), (2.0, 1.0)):
            with pytest.raises(Invalid):
                SubscribedAuthority(registry, beat=beat, silence=silence)


async def test_a_feed_that_is_held_up_lets_nothing_pass_for_longer_than_an_answer_counts(
    tmp_path: Path,
) -> None:
    """A long transaction of somebody's holds PostgreSQL's feed back, which can be read all the same."""

    async with counting_world(tmp_path) as (world, registry):
        await world.enqueue("job-1")
        first = await world.claim()
        async with SubscribedAuthority(registry, clock=world.clock, beat=0.02, silence=3) as authority:
            await wait_until_read(registry)
            await authority.check(fence(1))
            held_up = await registry.tail()
            real = LocalRegistry.events

            async def late(*, after: str | None = None, limit: int = 1000) -> EventPage:
                registry.ends += 1
                return EventPage((), held_up)

            registry.events = late  # type: ignore[method-assign]
            await wait_until_read(registry)
            await world.registry.release(first)
            await world.claim()
            world.clock.advance(2)
            await wait_until_read(registry)
            assert not authority.silent
            assert await verdicts(authority, 1) == [True]  # stale for 2 s, and nobody has said so
            world.clock.advance(2.9)
            await wait_until_read(registry)
            registry.events = lambda **how: real(registry, **how)  # type: ignore[method-assign]
            await asyncio.sleep(0.1)  # what was held up comes, old as it is
            world.clock.advance(0.2)
            assert await verdicts(authority, 1) == [False]


@pytest.mark.parametrize("short", [1000, 300])  # a page may be short because events are large
async def test_a_feed_of_many_events_is_read_to_its_end(tmp_path: Path, short: int) -> None:
    async with counting_world(tmp_path) as (world, registry):
        go_on = asyncio.Event()
        go_on.set()
        real = registry.events

        async def read(*, after: str | None = None, limit: int = 1000) -> EventPage:
            await go_on.wait()
            return await real(after=after, limit=min(limit, short))

        registry.events = read  # type: ignore[method-assign]
        await world.enqueue("job-1")
        first = await world.claim()
        async with SubscribedAuthority(registry, clock=world.clock, beat=50, silence=60) as authority:
            await wait_until_read(registry)
            await authority.check(fence(1))
            go_on.clear()
            for n in range(2100):
                await world.enqueue(f"other-{n}")
            await world.registry.release(first)
            registry.patient = True
            go_on.set()
            deadline = asyncio.get_running_loop().time() + 20  # less than a beat
            while await verdicts(authority, 1) == [True]:
                assert asyncio.get_running_loop().time() < deadline
                await asyncio.sleep(0.01)
            assert registry.read_ids == ["job-1"]  # told, not asked


async def test_what_an_owner_publishes_does_not_pass_for_a_new_owner(tmp_path: Path) -> None:
    async with counting_world(tmp_path) as (world, registry):
        await world.enqueue("job-1")
        grant = await world.claim()
        async with SubscribedAuthority(registry, clock=world.clock, beat=0.02) as authority:
            await wait_until_read(registry)
            await authority.check(fence(1))
            said = output(1, world=world)
            lie = replace(said, to_state=State.QUEUED, fencing_token=2**40)
            with pytest.raises(Invalid):
                await world.registry.publish(grant, [lie])
            await world.registry.publish(grant, [replace(lie, to_state=None)])
            await wait_until_read(registry)
            await authority.check(fence(1))
            assert registry.read_ids == ["job-1"]


async def test_what_was_asked_before_the_feed_began_is_not_remembered(tmp_path: Path) -> None:
    async with counting_world(tmp_path) as (world, registry):
        authority = CachedAuthority(registry, clock=world.clock)
        world.clock.advance(10)
        authority.remember("job-1", Ownership(7, True, None), 9)
        authority.forget()
        authority.remember("job-1", Ownership(7, True, None), 9)
        assert await verdicts(authority, 7) == [False]  # asked: there is no such job
        authority.remember("job-1", Ownership(7, True, None), 10)
        assert await verdicts(authority, 7) == [True]


async def test_a_subscription_survives_what_it_does_not_know_and_is_opened_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with counting_world(tmp_path) as (world, registry):
        await world.enqueue("job-1")
        await world.claim()
        real = registry.tail

        async def broken() -> str:
            raise OSError("no route to host")

        registry.tail = broken  # type: ignore[method-assign]
        async with SubscribedAuthority(registry, clock=world.clock, beat=0.02, silence=3) as authority:
            with pytest.raises(Conflict):
                await authority.__aenter__()
            await asyncio.sleep(0.05)
            unheard = authority.silent
            assert unheard
            assert await verdicts(authority, 1) == [True]
            registry.tail = real  # type: ignore[method-assign]
            world.clock.advance(1)
            await wait_until_read(registry)
            assert not authority.silent
        assert "no route to host" in caplog.text


async def test_a_feed_that_never_ends_has_not_been_heard(tmp_path: Path) -> None:
    async with counting_world(tmp_path) as (world, registry):
        job = await world.enqueue("job-1")
        [event] = await registry.history(job.job_id)
        read_twice = asyncio.Event()
        reads = count(1)

        async def endless(after: str, limit: int) -> EventPage:
            await asyncio.sleep(0)
            if next(reads) > 2:
                read_twice.set()
            return EventPage((event,) * limit, after)

        registry.events = endless  # type: ignore[assignment]
        async with SubscribedAuthority(registry, clock=world.clock) as authority:
            await read_twice.wait()
            assert authority.silent
