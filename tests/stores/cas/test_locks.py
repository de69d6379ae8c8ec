"""A lock is an object of its own: who holds it when claims race, are overtaken, or die."""

import asyncio
from random import Random

import pytest

from holdfast.core.errors import Conflict, Unavailable
from holdfast.ports import Grant
from tests.stores.cas.faulty_objects import Crashed, CrashingObjects, PausedObjects, yield_turns
from tests.stores.cas.shared_objects import SharedObjects, check, enqueue

JOBS = ["one", "two"]


async def objects_with_one_lock() -> SharedObjects:
    shared = SharedObjects()
    for job_id in JOBS:
        await enqueue(shared.registry(), job_id, lock="disk")
    return shared


async def pause(shared: SharedObjects, job_id: str, owner: str) -> tuple[PausedObjects, asyncio.Task[Grant]]:
    """A claim that has its lock, and is about to write its job."""
    paused = PausedObjects(shared.objects)
    return paused, await paused.catch(shared.registry(paused).acquire(job_id, owner=owner))


@pytest.mark.parametrize("seed", range(20))
async def test_two_jobs_of_one_lock_are_never_leased_together(seed: int) -> None:
    shared, random = await objects_with_one_lock(), Random(seed)
    inside: list[str] = []
    tokens: list[int] = []

    async def claimer(name: str) -> None:
        registry = shared.slow_registry(random)
        for _ in range(4):
            try:
                if random.random() < 0.5:
                    grants = await registry.claim(["default"], owner=name)
                else:
                    grants = [await registry.acquire(random.choice(JOBS), owner=name)]
            except (Conflict, Unavailable):
                continue
            for grant in grants:
                inside.append(grant.job_id)
                tokens.append(grant.fencing_token)
                assert len(inside) == 1
                await yield_turns(random.randrange(40))
                inside.remove(grant.job_id)
                await registry.release(grant)

    await asyncio.gather(*(claimer(f"w-{n}") for n in range(32)))

    assert len(tokens) > 1
    assert tokens == sorted(set(tokens))
    shared.clock.advance(120)
    await check(shared.registry())


async def test_a_lock_that_is_taken_over_takes_the_claim_with_it() -> None:
    shared = await objects_with_one_lock()
    slow, first = await pause(shared, "one", "w-1")

    second = await shared.registry().acquire("two", owner="w-2")
    slow.go.set()

    with pytest.raises(Conflict, match="locked by job two"):
        await first
    assert second.fencing_token == 2


async def test_a_lock_is_held_whichever_of_two_claims_of_its_job_has_landed() -> None:
    shared = await objects_with_one_lock()
    slow, first = await pause(shared, "one", "w-1")
    slower, second = await pause(shared, "one", "w-2")
    slow.go.set()
    await first

    with pytest.raises(Conflict, match="locked by job one"):
        await shared.registry().acquire("two", owner="w-3")

    slower.go.set()
    with pytest.raises(Conflict, match="owned by w-1"):
        await second


async def test_a_claim_that_died_holding_a_lock_object_does_not_hold_the_lock() -> None:
    for n in range(1, 9):
        shared = await objects_with_one_lock()
        with pytest.raises((Unavailable, Crashed)):
            await shared.registry(CrashingObjects(shared.objects, n, late=True)).acquire("one", owner="w-1")
        [one] = await shared.store().get(["one"])
        assert one is not None

        if one.leased:
            with pytest.raises(Conflict, match="locked by job one"):
                await shared.registry().acquire("two", owner="w-2")
        else:
            grant = await shared.registry().acquire("two", owner="w-2")
            resource = await shared.store().locks("disk")
            assert (resource.token, resource.holder) == (grant.fencing_token, "two")
