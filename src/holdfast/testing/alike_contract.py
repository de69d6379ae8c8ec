"""The contract of a store: jobs that are alike, and are written together, are as if written alone."""

from collections.abc import Sequence
from functools import partial

import msgspec

from holdfast.core.errors import Fenced, HoldfastError
from holdfast.core.job import Job
from holdfast.core.lifecycle import Change, Claim, Complete, Refusal, Success, decide
from holdfast.core.lifecycle.commands import Command
from holdfast.core.state import State
from holdfast.ports import ById, Completion, Grant, Work
from holdfast.testing.world import TRANSIENT, Opener, World, in_world

MANY = 12
"""More than the fewest jobs that a store writes together."""

NOTHING = Success()
STEPS = ["job_queued", "job_claimed", "job_started", "job_succeeded"]


async def claimed(world: World, **more: object) -> list[Grant]:
    for n in range(MANY):
        world.clock.advance(0.001)  # each has times of its own
        await world.enqueue(f"job-{n:02}", payload=msgspec.Raw(b'{"n":%d}' % n))
    return await world.registry.claim(["default"], owner="w", limit=MANY, **more)  # type: ignore[arg-type]


def succeeded(results: Sequence[Job | HoldfastError]) -> list[Job]:
    assert all(isinstance(one, Job) and one.state is State.SUCCEEDED for one in results)
    return [one for one in results if isinstance(one, Job)]


class AlikeContract:
    open: Opener

    @in_world
    async def test_many_jobs_keep_what_is_their_own(self, world: World) -> None:
        grants = await claimed(world)

        done = succeeded(await world.registry.complete_many([Completion(g, NOTHING) for g in grants]))

        jobs = await world.store.get([grant.job_id for grant in grants])
        assert jobs == done
        assert [bytes(job.spec.payload) for job in done] == [b'{"n":%d}' % n for n in range(MANY)]
        assert len({job.created_at for job in done}) == len({job.ready_at for job in done}) == MANY
        await world.check()

    @in_world
    async def test_each_of_many_jobs_has_its_own_events(self, world: World) -> None:
        grants = await claimed(world, op_id="one-claim")

        await world.registry.complete_many([Completion(g, NOTHING, f"op-{g.job_id}") for g in grants])

        for grant in grants:
            history = await world.registry.history(grant.job_id)
            assert [str(event.event_type) for event in history] == STEPS
            assert [event.offset for event in history] == [1, 2, 3, 4]
            own = f"op-{grant.job_id}"
            assert [event.op_id for event in history][1:] == ["one-claim", own, own]
        page = await world.store.events(after=None, limit=1000)
        ids = [event.event_id for event in page.events]
        assert len(ids) == len(set(ids)) == MANY * len(STEPS)

    @in_world
    async def test_many_jobs_keep_their_names_and_labels(self, world: World) -> None:
        own = [(f"run {n}", {"n": str(n // 2), "study": "a"}) for n in range(MANY)]
        for n, (name, labels) in enumerate(own):
            await world.enqueue(f"job-{n:02}", name=name, labels=labels)
        await world.enqueue("job-99")

        grants = await world.registry.claim(["default"], owner="w", limit=MANY + 1)
        claimed = await world.store.get([grant.job_id for grant in grants])
        done = succeeded(await world.registry.complete_many([Completion(g, NOTHING) for g in grants]))

        assert [(job.spec.name, job.spec.labels) for job in claimed if job] == [*own, (None, {})]
        assert [job.spec for job in done] == [job.spec for job in claimed if job]
        assert await world.store.get([job.job_id for job in done]) == done
        await world.check()

    @in_world
    async def test_special_jobs_among_many_take_their_own_way(self, world: World) -> None:
        await world.enqueue("locked", lock="disk")
        await world.enqueue("labelled", labels={"team": "a"})
        grants = await claimed(world)
        specials = await world.registry.claim(["default"], owner="w", limit=MANY)
        outcomes = [
            Completion(grant, TRANSIENT if n == 3 else Success(result=n) if n == 5 else NOTHING)
            for n, grant in enumerate([*grants, *specials])
        ]

        results = await world.registry.complete_many(outcomes)

        jobs = [one for one in results if isinstance(one, Job)]
        assert len(jobs) == len(outcomes) == MANY + 2
        assert [job.state for job in jobs].count(State.SUCCEEDED) == MANY + 1
        assert (jobs[3].state, jobs[3].failures, jobs[5].result) == (State.QUEUED, 1, 5)
        assert (await world.registry.locks("disk")).holder is None
        await world.check()

    @in_world
    async def test_of_many_completions_those_of_stale_owners_are_fenced(self, world: World) -> None:
        grants = await claimed(world)
        stale = [msgspec.structs.replace(g, fencing_token=g.fencing_token - 1) for g in grants[::4]]

        results = await world.registry.complete_many([Completion(g, NOTHING) for g in [*stale, *grants]])

        assert all(isinstance(one, Fenced) for one in results[: len(stale)])
        succeeded(results[len(stale) :])
        await world.check()

    @in_world
    async def test_a_job_that_is_completed_twice_in_one_commit_ends_once(self, world: World) -> None:
        grants = await claimed(world)
        commands = [
            (grant.job_id, Complete(op_id=f"{op}-{grant.job_id}", token=1, actor="worker:w", outcome=NOTHING))
            for op in ("first", "second")
            for grant in grants
        ]

        decisions = await world.store.transact(
            [Work(ById(job_id), partial(decide, command), command) for job_id, command in commands]
        )

        assert all(isinstance(decision, Change) for [decision] in decisions[:MANY])
        assert all(isinstance(decision, Refusal) for [decision] in decisions[MANY:])
        for grant in grants:
            assert await world.types(grant.job_id) == STEPS
        await world.check()

    @in_world
    async def test_many_jobs_are_claimed_and_completed_in_one_commit(self, world: World) -> None:
        job_ids = [(await world.enqueue(f"job-{n:02}")).job_id for n in range(MANY)]
        claims = [Claim(op_id=f"claim-{i}", owner="w", actor="worker:w") for i in job_ids]
        done = [Complete(op_id=f"done-{i}", token=1, actor="worker:w", outcome=NOTHING) for i in job_ids]
        shared = Claim(op_id="claim", owner="w", actor="worker:w")

        for works in ([(i, shared) for i in job_ids[:9]], [*zip(job_ids[9:], claims[9:], strict=True)]):
            both: list[tuple[str, Command]] = [*works, *zip(job_ids, done, strict=True)]
            await world.store.transact(
                [Work(ById(job_id), partial(decide, command), command) for job_id, command in both]
            )

        for job_id in job_ids:
            assert await world.types(job_id) == STEPS
        await world.check()

    @in_world
    async def test_many_claims_that_are_repeated_return_the_same_grants(self, world: World) -> None:
        grants = await claimed(world, op_id="one-claim")

        again = await world.registry.claim(["default"], owner="w", limit=MANY, op_id="one-claim")

        assert {(g.job_id, g.fencing_token) for g in again} == {(g.job_id, 1) for g in grants}
        for grant in grants:
            assert await world.types(grant.job_id) == STEPS[:2]

    @in_world
    async def test_leases_of_many_jobs_expire(self, world: World) -> None:
        grants = await claimed(world)
        await world.registry.complete_many([Completion(grant, NOTHING) for grant in grants[::2]])

        await world.lapse()

        counts = await world.store.counts("default")
        assert (counts[State.SUCCEEDED], counts[State.QUEUED]) == (MANY / 2, MANY / 2)
        late = await world.registry.complete_many([Completion(grant, NOTHING) for grant in grants])
        assert all(isinstance(one, Fenced) for one in late[1::2])
        second = await world.registry.claim(["default"], owner="v", limit=MANY)
        assert [grant.fencing_token for grant in second] == [2] * (MANY // 2)
        await world.check()
