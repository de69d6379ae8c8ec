"""complete_many: one call, one commit, and for each item what `complete` would have given."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.core.errors import Fenced, HoldfastError, Invalid, NotFound, Unavailable
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle import Outcome, Stopped, Success
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Clock, Grant, Ids, JobRequest, Store
from holdfast.ports.registry import Completion
from holdfast.testing.world import PERMANENT, TRANSIENT, World, open_world
from tests.registry.faulty_stores import CountedStore, counted, counted_store


async def grants_of(world: World, many: int, owner: str = "worker-7") -> list[Grant]:
    """Grants of new jobs job-0, job-1 and so on, in that order."""
    requests = [JobRequest(spec=Spec(), job_id=f"job-{n}") for n in range(many)]
    await world.registry.enqueue_many(requests, actor="user:ana")
    grants: list[Grant] = []
    while len(grants) < many:
        wanted = min(1000, many - len(grants))
        grants += await world.registry.claim(["default"], owner=owner, limit=wanted)
    return grants


def summary(answers: Sequence[Job | HoldfastError]) -> list[object]:
    """Each answer in one word: the state of the job, or the class of the error."""
    return [a.state if isinstance(a, Job) else type(a) for a in answers]


async def stale_writes(world: World, job_id: str) -> list[Event]:
    log = await world.registry.logs(job_id)
    return [e for e in log.events if e.event_type == "job_stale_write_rejected"]


async def test_each_attempt_ends_as_its_outcome_says(world: World) -> None:
    grants = await grants_of(world, 4)
    await world.registry.cancel("job-3", actor="user:ana")
    outcomes: list[Outcome] = [
        Success(result=7),
        TRANSIENT,
        PERMANENT,
        Stopped(reason="asked to"),
    ]

    answers = await world.registry.complete_many(list(map(Completion, grants, outcomes)))

    assert summary(answers) == ["succeeded", "queued", "failed", "cancelled"]
    assert answers == await world.registry.status_many([f"job-{n}" for n in range(4)])
    assert world.local.counters.events["job_succeeded"] == 1
    await world.check()


async def test_a_stale_grant_among_good_ones_is_refused_alone_and_recorded(world: World) -> None:
    zombies = await grants_of(world, 2, "worker-7")
    await world.lapse()
    await world.enqueue("job-2")
    owners = {}
    for grant in await world.registry.claim(["default"], owner="worker-9", limit=3):
        owners[grant.job_id] = grant
    asked = [zombies[0], owners["job-2"], zombies[1], owners["job-0"]]

    answers = await world.registry.complete_many([Completion(g, Success()) for g in asked])

    assert summary(answers) == [Fenced, "succeeded", Fenced, "succeeded"]
    refused = answers[2]
    assert isinstance(refused, Fenced)
    assert (refused.job_id, refused.version) == ("job-1", 4)
    assert world.local.counters.refusals["fenced"] == 2
    for job_id, owner in (("job-0", "succeeded"), ("job-1", "assigned")):
        [stale] = await stale_writes(world, job_id)
        assert (stale.attributes["verb"], stale.fencing_token) == ("complete", 1)
        assert (await world.registry.status(job_id)).state == owner
    await world.check()


async def test_a_batch_repeated_after_a_lost_answer_is_answered_as_before(world: World) -> None:
    grants = await grants_of(world, 3)
    outcomes: list[Outcome] = [Success(result=1), TRANSIENT, PERMANENT]
    batch = [
        Completion(grant, outcome, op_id=f"op-{n}")
        for n, (grant, outcome) in enumerate(zip(grants, outcomes, strict=True))
    ]
    first = await world.registry.complete_many(batch)
    histories = await world.store.histories(["job-0", "job-1", "job-2"])

    again = await world.registry.complete_many(batch)

    assert again == first
    assert await world.store.histories(["job-0", "job-1", "job-2"]) == histories
    assert [await stale_writes(world, f"job-{n}") for n in range(3)] == [[], [], []]
    assert world.local.counters.refusals["fenced"] == 0


async def test_one_grant_twice_in_a_batch_ends_its_job_once(world: World) -> None:
    [grant] = await grants_of(world, 1)
    ends = [
        Completion(grant, Success(result="first"), op_id="op-1"),
        Completion(grant, Success(result="second"), op_id="op-2"),
        Completion(grant, Success(result="first"), op_id="op-1"),
    ]

    first, second, third = await world.registry.complete_many(ends)

    assert first == third
    assert isinstance(first, Job)
    assert (first.state, first.result, first.version) == ("succeeded", "first", 4)
    assert isinstance(second, Fenced)
    assert await world.types("job-0") == [
        *("job_queued", "job_claimed", "job_started", "job_succeeded"),
    ]


async def test_two_ends_without_op_ids_are_two_ops(world: World) -> None:
    [grant] = await grants_of(world, 1)

    answers = await world.registry.complete_many([Completion(grant, Success()), Completion(grant, TRANSIENT)])

    assert summary(answers) == ["succeeded", Fenced]
    assert len(await stale_writes(world, "job-0")) == 1


async def test_a_job_that_is_gone_is_told_as_such(world: World) -> None:
    [grant] = await grants_of(world, 1)
    await world.registry.complete(grant, Success())
    world.clock.advance(3600)
    await world.registry.prune(older_than=timedelta(minutes=1))

    [answer] = await world.registry.complete_many([Completion(grant, Success())])

    assert isinstance(answer, NotFound)


async def test_what_can_never_be_accepted_is_an_answer_like_the_others(world: World) -> None:
    grants = await grants_of(world, 3)
    ends = [
        Completion(grants[0], Success(), op_id="not an id"),
        Completion(grants[1], Success(result=object())),
        Completion(grants[2], Success()),
    ]

    answers = await world.registry.complete_many(ends)

    assert summary(answers) == [Invalid, Invalid, "succeeded"]
    assert (await world.registry.counts()) == {State.ASSIGNED: 2, State.SUCCEEDED: 1}


async def test_no_completion_at_all_is_no_commit(tmp_path: Path) -> None:
    async with open_world(counted_store, tmp_path) as world:
        assert await world.registry.complete_many([]) == []
        assert counted(world).commits == []


@pytest.mark.parametrize(("size", "commits"), [(1000, [1000]), (1001, [1000, 1]), (2500, [1000, 1000, 500])])
async def test_more_than_a_thousand_are_split(tmp_path: Path, size: int, commits: list[int]) -> None:
    async with open_world(counted_store, tmp_path) as world:
        grants = await grants_of(world, size)
        counted(world).commits.clear()

        answers = await world.registry.complete_many([Completion(g, Success()) for g in grants])

        assert counted(world).commits == commits
        assert [a.job_id for a in answers] == [g.job_id for g in grants]
        assert await world.registry.counts() == {State.SUCCEEDED: size}


async def test_a_part_that_the_store_did_not_write_is_told_item_by_item(tmp_path: Path) -> None:
    async with open_world(counted_store, tmp_path) as world:
        grants = await grants_of(world, 1002)
        store = counted(world)
        store.gate.clear()
        batch = [Completion(g, Success(), op_id=f"op-{n}") for n, g in enumerate(grants)]
        call = asyncio.create_task(world.registry.complete_many(batch))
        store.failure = Unavailable("the disk is full")
        store.gate.set()

        first = await call
        again = await world.registry.complete_many(batch)

        assert summary(first) == [Unavailable] * 1000 + ["succeeded"] * 2
        assert len({id(answer) for answer in first}) == 1002
        assert summary(again) == ["succeeded"] * 1002
        assert again[1000:] == first[1000:]


class ForgetfulStore(CountedStore):
    """A store whose histories cannot be read."""

    async def histories(self, job_ids: Sequence[str]) -> list[list[Event]]:
        raise Unavailable("the disk is gone")


async def forgetful_store(folder: Path, clock: Clock, ids: Ids) -> Store:
    return ForgetfulStore(clock, ids)


async def test_what_landed_is_told_though_the_others_cannot_be_looked_up(tmp_path: Path) -> None:
    async with open_world(forgetful_store, tmp_path) as world:
        grants = await grants_of(world, 3)
        [done] = await world.registry.complete_many([Completion(grants[1], Success())])
        assert isinstance(done, Job)

        answers = await world.registry.complete_many([Completion(g, Success()) for g in grants])

        assert summary(answers) == ["succeeded", Unavailable, "succeeded"]


async def test_repeats_are_looked_up_together(tmp_path: Path) -> None:
    async with open_world(counted_store, tmp_path) as world:
        grants = await grants_of(world, 50)
        batch = [Completion(g, Success(), op_id=f"op-{n}") for n, g in enumerate(grants)]
        await world.registry.complete_many(batch)
        looks: list[int] = []
        real = world.store.histories

        async def histories(job_ids: Sequence[str]) -> list[list[Event]]:
            looks.append(len(job_ids))
            return await real(job_ids)

        world.store.histories = histories  # type: ignore[method-assign]
        await world.registry.complete_many(batch)

        assert looks == [50]
