"""prune: whole jobs go, what is left still folds, and nothing young is touched."""

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from holdfast.core.errors import Invalid, NotFound, Unavailable
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest, PruneResult
from holdfast.testing.world import World, output

DAY = timedelta(days=1)


async def finish(world: World, job_id: str) -> None:
    await world.enqueue(job_id)
    grant = await world.registry.acquire(job_id, owner="w")
    await world.registry.publish(grant, [output(1, world=world)])
    await world.registry.complete(grant, Success())


async def test_only_what_ended_long_ago_goes_and_all_of_it(world: World) -> None:
    await finish(world, "old")
    await world.enqueue("waiting")
    world.clock.advance(days=2)
    await finish(world, "young")

    pruned = await world.registry.prune(older_than=DAY)

    assert pruned.jobs == 1
    assert pruned.events == 5
    with pytest.raises(NotFound):
        await world.registry.history("old")
    feed = await world.registry.events()
    assert {event.job_id for event in feed.events} == {"waiting", "young"}
    await world.check()


async def test_old_output_of_a_young_job_goes_and_its_history_stays(world: World) -> None:
    await world.enqueue("job-1", lease=timedelta(hours=24))
    grant = await world.claim()
    await world.registry.publish(grant, [output(1, world=world)])
    world.clock.advance(hours=12)
    await world.registry.publish(grant, [output(2, world=world)])

    pruned = await world.registry.prune(older_than=DAY, output_older_than=DAY / 4)

    assert pruned == PruneResult(0, 1)
    log = await world.registry.logs("job-1")
    assert [e.sequence for e in log.events if e.sequence] == [2]
    await world.check()


async def test_pruning_again_finds_nothing(world: World) -> None:
    await finish(world, "old")
    world.clock.advance(days=2)
    await world.registry.prune(older_than=DAY)

    assert await world.registry.prune(older_than=DAY) == PruneResult(0, 0)


async def test_more_than_one_step_is_pruned_in_one_call(world: World) -> None:
    requests = [JobRequest(spec=Spec()) for _ in range(1001)]
    jobs = await world.registry.enqueue_many(requests, actor="user:ana")
    cancel = partial(world.registry.cancel, actor="user:ana")
    await asyncio.gather(*(cancel(job.job_id) for job in jobs))
    world.clock.advance(days=2)

    pruned = await world.registry.prune(older_than=DAY)

    assert pruned == PruneResult(1001, 2002)


@pytest.mark.parametrize(("jobs", "output_age"), [(-DAY, DAY), (DAY, -DAY)])
async def test_an_age_cannot_be_negative(world: World, jobs: timedelta, output_age: timedelta) -> None:
    with pytest.raises(Invalid, match="negative"):
        await world.registry.prune(older_than=jobs, output_older_than=output_age)


async def test_an_age_longer_than_time_itself_prunes_nothing(world: World) -> None:
    await finish(world, "old")
    world.clock.advance(days=2)

    assert await world.registry.prune(older_than=timedelta.max) == PruneResult(0, 0)


async def test_a_pruned_id_may_be_used_again(world: World) -> None:
    await finish(world, "job-1")
    world.clock.advance(days=2)
    await world.registry.prune(older_than=DAY)

    await finish(world, "job-1")

    assert len(await world.registry.history("job-1")) == 4
    assert len((await world.registry.logs("job-1")).events) == 5
    await world.check()


@pytest.mark.parametrize(("steps", "applied"), [(0, "no"), (1, "unknown")])
async def test_a_pruning_that_fails_half_way_says_that_something_is_gone(
    world: World, monkeypatch: pytest.MonkeyPatch, steps: int, applied: str
) -> None:
    done = iter([PruneResult(3, 9)] * steps)

    async def prune(**_: object) -> PruneResult:
        for step in done:
            return step
        raise Unavailable("the disk is full")

    monkeypatch.setattr(world.store, "prune", prune)

    with pytest.raises(Unavailable) as caught:
        await world.registry.prune(older_than=DAY)

    assert caught.value.applied == applied
