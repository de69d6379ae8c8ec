"""The contract of a store: which job a claim gets, and when a lease ends."""

import asyncio
from datetime import timedelta
from functools import partial

from holdfast.core.errors import Conflict
from holdfast.core.lifecycle import Change, Success
from holdfast.core.state import State
from holdfast.ports import Due, Work
from holdfast.testing.commit_contract import make, take
from holdfast.testing.world import Opener, World, in_world


class ClaimContract:
    open: Opener

    @in_world
    async def test_a_ready_job_goes_to_one_claim_of_a_batch(self, world: World) -> None:
        await world.store.transact([make(f"job-{n}") for n in range(5)])

        answers = await world.store.transact([take(f"op-{n}", f"w-{n}") for n in range(8)])

        got = [d.after.job_id for ds in answers for d in ds if isinstance(d, Change)]
        assert sorted(got) == [f"job-{n}" for n in range(5)]

    @in_world
    async def test_ready_order_is_priority_then_time_then_enqueue(self, world: World) -> None:
        for job_id in "abc":
            await world.enqueue(job_id)
        await world.enqueue("late", delay=timedelta(seconds=5))
        await world.enqueue("urgent", priority=0)
        await world.enqueue("idle", priority=9)
        world.clock.advance(10)
        await world.enqueue("d")

        grants = await world.registry.claim(["default"], owner="w", limit=10)

        assert [g.job_id for g in grants] == ["urgent", "a", "b", "c", "late", "d", "idle"]

    @in_world
    async def test_a_delayed_job_is_not_ready_before_its_time(self, world: World) -> None:
        await world.enqueue("soon", delay=timedelta(seconds=5))
        at = world.clock.now() + timedelta(seconds=8)
        await world.enqueue("at", run_at=at)

        assert await world.registry.claim(["default"], owner="w", limit=9) == []
        world.clock.advance(5)
        assert [g.job_id for g in await world.registry.claim(["default"], owner="w")] == ["soon"]
        world.clock.advance(3)
        assert [g.job_id for g in await world.registry.claim(["default"], owner="w")] == ["at"]

    @in_world
    async def test_claims_choose_by_queue_kind_region_and_executor(self, world: World) -> None:
        await world.enqueue("other-queue", queue="other")
        await world.enqueue("other-kind", kind="resize")
        await world.enqueue("us", region="us-east-1")
        await world.enqueue("bound", executor="k8s")
        claim = partial(world.registry.claim, owner="w", limit=10)

        assert [g.job_id for g in await claim(["default"], kinds=["resize"])] == ["other-kind"]
        assert [g.job_id for g in await claim(["default"], executor="k8s")] == ["bound"]
        assert await claim(["default"], region="eu-west") == []
        assert [g.job_id for g in await claim(["default"])] == ["us"]
        assert [g.job_id for g in await claim(["none", "other"])] == ["other-queue"]

    @in_world
    async def test_a_claim_over_queues_takes_them_in_order_up_to_its_limit(self, world: World) -> None:
        await world.enqueue("b1", queue="b")
        await world.enqueue("a1", queue="a")
        await world.enqueue("a2", queue="a")

        grants = await world.registry.claim(["a", "b"], owner="w", limit=2)
        rest = await world.registry.claim(["a", "b"], owner="w", limit=2)

        assert [g.job_id for g in grants] == ["a1", "a2"]
        assert [g.job_id for g in rest] == ["b1"]

    @in_world
    async def test_a_repeated_claim_meets_its_own_grant(self, world: World) -> None:
        await world.enqueue("job-1")
        await world.enqueue("job-2")

        first = await world.claim(op_id="op-1")
        again = await world.claim(op_id="op-1")

        assert again == first
        assert await world.types("job-1") == ["job_queued", "job_claimed"]

    @in_world
    async def test_a_claim_repeated_after_its_lease_was_lost_gets_nothing(self, world: World) -> None:
        await world.enqueue("job-1")
        await world.claim(op_id="op-1")
        await world.lapse()

        again = await world.registry.claim(["default"], owner="worker-7", op_id="op-1")

        assert again == []

    @in_world
    async def test_due_jobs_come_longest_overdue_first(self, world: World) -> None:
        for job_id, lease in (("b", 20), ("a", 10), ("c", 30), ("d", 500)):
            await world.enqueue(job_id, lease=timedelta(seconds=lease))
        await world.registry.claim(["default"], owner="w", limit=4)
        world.clock.advance(40)
        seen: list[str] = []

        def decide(job, now, resource):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            seen.append(job.job_id)
            return Change(job, job)

        await world.store.transact([Work(Due(2), decide)])
        assert seen == ["a", "b"]
        seen.clear()
        await world.store.transact([Work(Due(10), decide)])
        assert seen == ["a", "b", "c"]

    @in_world
    async def test_a_heartbeat_postpones_what_is_due_without_a_new_version(self, world: World) -> None:
        await world.enqueue("job-1")
        grant = await world.claim()
        started = await world.registry.heartbeat(grant)
        world.clock.advance(50)
        beaten = await world.registry.heartbeat(grant)
        world.clock.advance(50)

        assert await world.registry.expire() == 0
        assert beaten.version == started.version == 3
        world.clock.advance(11)
        assert await world.registry.expire() == 1
        assert await world.registry.expire() == 0

    @in_world
    async def test_two_jobs_of_one_lock_are_never_leased_together(self, world: World) -> None:
        await world.enqueue("one", lock="disk")
        await world.enqueue("two", lock="disk")
        await world.enqueue("free")

        grants = await world.registry.claim(["default"], owner="w", limit=10)
        assert [g.job_id for g in grants] == ["one", "free"]
        await world.registry.complete(grants[0], Success())
        second = await world.claim()

        assert second.job_id == "two"
        assert second.fencing_token > grants[0].fencing_token
        resource = await world.store.locks("disk")
        assert (resource.token, resource.holder) == (second.fencing_token, "two")

    @in_world
    async def test_a_lock_is_free_again_when_its_holder_lost_the_lease(self, world: World) -> None:
        await world.enqueue("one", lock="disk", queue="nobody-works-here")
        await world.enqueue("two", lock="disk")
        await world.registry.claim(["nobody-works-here"], owner="w")
        assert await world.registry.claim(["default"], owner="w") == []

        world.clock.advance(61)
        second = await world.claim()

        assert second.job_id == "two"
        assert second.fencing_token == 2

    @in_world
    async def test_concurrent_claims_of_one_job_give_one_grant(self, world: World) -> None:
        await world.enqueue("job-1")

        answers = await asyncio.gather(
            *(world.registry.acquire("job-1", owner=f"w-{n}") for n in range(64)),
            return_exceptions=True,
        )

        refused = [a for a in answers if isinstance(a, Conflict)]
        assert len(refused) == 63
        assert all("owned by w-" in a.message and a.version == 2 for a in refused)
        assert world.local.counters.kinds["command"].conflicts == 63
        assert await world.types("job-1") == ["job_queued", "job_claimed"]
        assert (await world.registry.status("job-1")).fencing_token == 1

    @in_world
    async def test_a_claim_fills_its_limit_past_jobs_whose_lock_it_has_just_taken(self, world: World) -> None:
        for job_id in ("a", "b", "c", "d"):
            await world.enqueue(job_id, lock="disk")
        await world.enqueue("free-1")
        await world.enqueue("free-2")

        grants = await world.registry.claim(["default"], owner="w", limit=3)

        assert [g.job_id for g in grants] == ["a", "free-1", "free-2"]

    @in_world
    async def test_a_job_made_and_claimed_at_once_waits_for_its_lock(self, world: World) -> None:
        await world.enqueue("holder", lock="disk")
        holder = await world.claim()

        _, refused = await asyncio.gather(
            world.enqueue("new", lock="disk"),
            world.registry.acquire("new", owner="w-2"),
            return_exceptions=True,
        )

        assert isinstance(refused, Conflict)
        resource = await world.store.locks("disk")
        assert (resource.token, resource.holder) == (holder.fencing_token, "holder")

    @in_world
    async def test_one_claim_sent_twice_at_once_is_one_claim(self, world: World) -> None:
        for n in range(4):
            await world.enqueue(f"job-{n}")

        first, second = await asyncio.gather(
            *(world.registry.claim(["default"], owner="w", limit=2, op_id="op") for _ in "ab")
        )

        assert [g.job_id for g in first] == [g.job_id for g in second] == ["job-0", "job-1"]
        assert await world.store.counts() == {State.QUEUED: 2, State.ASSIGNED: 2}
