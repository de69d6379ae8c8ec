"""Claims beside more jobs that wait for a held lock than a claim reads row by row."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from holdfast.core.errors import Conflict, Fenced
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import Grant, JobRequest
from holdfast.testing.world import World, open_world, patient
from tests.conftest import STORES, memory_store

CROWD = 1_100


@pytest.fixture(params=["sqlite", "postgres"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A world with a crowd before all other jobs."""
    async with open_world(STORES[request.param], tmp_path) as world:
        await gather_crowd(world)
        yield world
        await world.check()


async def gather_crowd(world: World) -> None:
    """Enqueue the jobs `crowd-0`, `crowd-1` …, whose lock is held by `holder`."""
    await world.enqueue("holder", queue="holders", lock="held")
    await world.registry.claim(["holders"], owner="holder")
    await enqueue_all(world, {f"crowd-{n}": Spec(lock="held") for n in range(CROWD)})


async def enqueue_all(world: World, specs: dict[str, Spec]) -> None:
    requests = [JobRequest(spec=spec, job_id=job_id) for job_id, spec in specs.items()]
    for start in range(0, len(requests), 500):
        await world.registry.enqueue_many(requests[start : start + 500], actor="user:ana")


async def claim(world: World, limit: int = 10) -> dict[str, Grant]:
    grants = await world.registry.claim(["default"], owner="w", limit=limit)
    return {grant.job_id: grant for grant in grants}


async def test_the_first_job_of_each_free_lock_is_claimed_in_the_order_of_all(world: World) -> None:
    locks = {"a1": "a", "b1": "b", "plain1": None, "a2": "a", "c1": "c", "plain2": None, "b2": "b"}
    await enqueue_all(world, {job_id: Spec(lock=lock) for job_id, lock in locks.items()})

    got = await claim(world)
    assert list(got) == ["a1", "b1", "plain1", "c1", "plain2"]
    await world.registry.complete(got["b1"], Success())
    assert list(await claim(world)) == ["b2"]
    await world.registry.complete(got["a1"], Success())
    assert list(await claim(world)) == ["a2"]


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_claims_of_few_take_the_oldest_first(world: World, limit: int) -> None:
    locks = ["m", "z", None, "a", "m", None, "q", "z", "b"]
    await enqueue_all(world, {f"job-{n}": Spec(lock=lock) for n, lock in enumerate(locks)})

    found = []
    while got := await claim(world, limit):
        found += list(got)
    assert found == ["job-0", "job-1", "job-2", "job-3", "job-5", "job-6", "job-8"]


async def test_a_crowd_goes_on_one_by_one_when_its_lock_is_free(world: World) -> None:
    await enqueue_all(world, {"other": Spec(lock="other")})
    await world.registry.cancel("holder", actor="user:ana", hard=True)

    got = await claim(world)
    assert list(got) == ["crowd-0", "other"]
    assert not await claim(world)
    await world.registry.complete(got["crowd-0"], Success())
    assert list(await claim(world)) == ["crowd-1"]


async def test_a_job_that_is_late_or_too_late_does_not_hide_the_next_of_its_lock(world: World) -> None:
    await world.enqueue("delayed", lock="a", delay=timedelta(seconds=60))
    await world.enqueue("short", lock="b", ttl=timedelta(seconds=5))
    await enqueue_all(world, {"a2": Spec(lock="a"), "b2": Spec(lock="b")})
    world.clock.advance(10)

    got = await claim(world)
    assert list(got) == ["a2", "b2"]
    world.clock.advance(60)
    await world.registry.expire()
    assert "short" not in await claim(world)


async def test_more_locks_than_are_looked_up_are_read_row_by_row_and_none_is_left(world: World) -> None:
    jobs = {f"job-{n}": Spec(lock=f"lock-{n * 7919 % CROWD}") for n in range(CROWD)}
    await enqueue_all(world, jobs)

    assert list(await claim(world, 3)) == list(jobs)[:3]
    found = list(jobs)[:3]
    while got := await claim(world, 300):
        found += list(got)
    assert found == list(jobs)


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_happens_the_claims_get_what_they_get_in_memory(
    world: World, tmp_path: Path, seed: int
) -> None:
    async with open_world(memory_store, tmp_path) as model:
        await gather_crowd(model)
        wanted = await claimed_ids(model, Random(seed))
    assert await claimed_ids(world, Random(seed)) == wanted
    assert any(len(ids) > 1 for ids in wanted)


async def claimed_ids(world: World, random: Random) -> list[list[str]]:
    """Enqueue, claim, end, give back and cancel at random; return what each claim got."""
    found: list[list[str]] = []
    held: list[Grant] = []
    for n in range(120):
        world.clock.advance(random.choice([0, 0.001, 0.5, 2]))
        act = random.random()
        if act < 0.5:
            await world.enqueue(
                f"job-{n}",
                lock=random.choice([None, "held", *"abcd"]),
                priority=random.choice([5, 5, 5, 2]),
                kind=random.choice(["command", "command", "mail"]),
                delay=random.choice([None, None, None, timedelta(seconds=3)]),
                ttl=random.choice([None, None, timedelta(seconds=4)]),
                retry=patient(),
            )
        elif act < 0.75 or not held:
            got = await world.registry.claim(["default"], owner="w", limit=random.choice([1, 2, 20]))
            found.append([grant.job_id for grant in got])
            held += got
        else:
            await end(world, held.pop(random.randrange(len(held))), random.random())
    return found


async def end(world: World, grant: Grant, way: float) -> None:
    try:
        if way < 0.4:
            await world.registry.complete(grant, Success())
        elif way < 0.8:
            await world.registry.release(grant)
        else:
            await world.registry.cancel(grant.job_id, actor="user:ana", hard=True)
    except (Conflict, Fenced):
        pass  # it has run out of time
