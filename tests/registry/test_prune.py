"""prune: whole jobs go, what is left still folds, and nothing young is touched."""

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from conftest import Run
from holdfast.core.errors import Invalid, NotFound, Unavailable
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import Pruned, Request
from holdfast.testing.world import World, output

DAY = timedelta(days=1)


async def finish(world: World, job_id: str) -> None:
    await world.enqueue(job_id)
    grant = await world.registry.acquire(job_id, owner="w")
    await world.registry.publish(grant, [output(1, world=world)])
    await world.registry.complete(grant, Success())


def test_only_what_ended_long_ago_goes_and_all_of_it(run: Run) -> None:
    async def body(world: World) -> None:
        await finish(world, "old")
        await world.enqueue("waiting")
        world.clock.advance(days=2)
        await finish(world, "young")

        pruned = await world.registry.prune(older_than=DAY)

        assert pruned.jobs == 1
        assert pruned.events == 5
        with pytest.raises(NotFound):
            await world.registry.history("old")
        feed = await world.registry.feed()
        assert {event.job_id for event in feed.events} == {"waiting", "young"}
        await world.check()

    run(body)


def test_old_output_of_a_young_job_goes_and_its_history_stays(run: Run) -> None:
    async def body(world: World) -> None:
        await world.enqueue("job-1", lease=timedelta(hours=24))
        grant = await world.claim()
        await world.registry.publish(grant, [output(1, world=world)])
        world.clock.advance(hours=12)
        await world.registry.publish(grant, [output(2, world=world)])

        pruned = await world.registry.prune(older_than=DAY, output_older_than=DAY / 4)

        assert pruned == Pruned(0, 1)
        log = await world.registry.log("job-1")
        assert [e.sequence for e in log.events if e.sequence] == [2]
        await world.check()

    run(body)


def test_pruning_again_finds_nothing(run: Run) -> None:
    async def body(world: World) -> None:
        await finish(world, "old")
        world.clock.advance(days=2)
        await world.registry.prune(older_than=DAY)

        assert await world.registry.prune(older_than=DAY) == Pruned(0, 0)

    run(body)


def test_more_than_one_step_is_pruned_in_one_call(run: Run) -> None:
    async def body(world: World) -> None:
        requests = [Request(spec=Spec()) for _ in range(1001)]
        jobs = await world.registry.enqueue_many(requests, actor="user:ana")
        cancel = partial(world.registry.cancel, actor="user:ana")
        await asyncio.gather(*(cancel(job.job_id) for job in jobs))
        world.clock.advance(days=2)

        pruned = await world.registry.prune(older_than=DAY)

        assert pruned == Pruned(1001, 2002)

    run(body)


@pytest.mark.parametrize(("jobs", "output_age"), [(-DAY, DAY), (DAY, -DAY)])
def test_an_age_cannot_be_negative(run: Run, jobs: timedelta, output_age: timedelta) -> None:
    async def body(world: World) -> None:
        with pytest.raises(Invalid, match="negative"):
            await world.registry.prune(older_than=jobs, output_older_than=output_age)

    run(body)


def test_an_age_longer_than_time_itself_prunes_nothing(run: Run) -> None:
    async def body(world: World) -> None:
        await finish(world, "old")
        world.clock.advance(days=2)

        assert await world.registry.prune(older_than=timedelta.max) == Pruned(0, 0)

    run(body)


def test_a_pruned_id_may_be_used_again(run: Run) -> None:
    async def body(world: World) -> None:
        await finish(world, "job-1")
        world.clock.advance(days=2)
        await world.registry.prune(older_than=DAY)

        await finish(world, "job-1")

        assert len(await world.registry.history("job-1")) == 4
        assert len((await world.registry.log("job-1")).events) == 5
        await world.check()

    run(body)


@pytest.mark.parametrize(("steps", "applied"), [(0, "no"), (1, "unknown")])
def test_a_pruning_that_fails_half_way_says_that_something_is_gone(
    run: Run, monkeypatch: pytest.MonkeyPatch, steps: int, applied: str
) -> None:
    async def body(world: World) -> None:
        done = iter([Pruned(3, 9)] * steps)

        async def prune(**_: object) -> Pruned:
            for step in done:
                return step
            raise Unavailable("the disk is full")

        monkeypatch.setattr(world.store, "prune", prune)

        with pytest.raises(Unavailable) as caught:
            await world.registry.prune(older_than=DAY)

        assert caught.value.applied == applied

    run(body)
