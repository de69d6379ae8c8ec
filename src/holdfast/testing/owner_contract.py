"""The contract of a store: which jobs owners get that are not holdfast workers, and for how long."""

from datetime import timedelta

import pytest

from holdfast.core.catalogue import ReasonCode
from holdfast.core.errors import Conflict, Fenced
from holdfast.core.lifecycle import Change, Success
from holdfast.core.process_spec import ProcessSpec, encode_process_spec
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import JobFilter
from holdfast.testing.commit_contract import take
from holdfast.testing.world import Opener, World, in_world, output, patient

PLAIN = Spec(payload=encode_process_spec(ProcessSpec(argv=("make",))))
LIMITED = Spec(payload=encode_process_spec(ProcessSpec(argv=("make",), memory_bytes=20_000_000)))
SECRET = Spec(payload=encode_process_spec(ProcessSpec(argv=("make",), secrets=("TOKEN",))))
TIMED = Spec(timeout=timedelta(seconds=5), lease=timedelta(seconds=60), retry=patient(2))


async def _mixed(world: World) -> None:
    """Plain commands behind others that need a holdfast worker."""
    for n in range(12):
        await world.enqueue(f"limited-{n}", spec=LIMITED)
    await world.enqueue("plain-1", spec=PLAIN)
    await world.enqueue("secret", spec=SECRET)
    await world.enqueue("plain-2", spec=PLAIN)


class OwnerContract:
    open: Opener

    @in_world
    async def test_a_claim_for_plain_commands_passes_over_those_that_need_a_holdfast_worker(
        self, world: World
    ) -> None:
        await _mixed(world)

        first = await world.local.claim(["default"], owner="w", kinds=["command"], plain=True)
        more = await world.local.claim(
            ["default"], owner="w", limit=9, kinds=["command", "job.v1"], plain=True
        )
        none = await world.local.claim(["default"], owner="w", kinds=["command"], plain=True)
        ours = await world.registry.claim(["default"], owner="w", limit=9, kinds=["command"])
        rest = await world.registry.claim(["default"], owner="w", limit=9)

        assert [g.job_id for g in (*first, *more)] == ["plain-1", "plain-2"]
        assert none == []
        assert [g.job_id for g in ours] == [f"limited-{n}" for n in range(9)]
        assert [g.job_id for g in rest] == ["limited-9", "limited-10", "limited-11", "secret"]

    @in_world
    async def test_a_store_finds_what_needs_a_holdfast_worker_under_a_kind_of_its_own(
        self, world: World
    ) -> None:
        """It could also find and refuse them, but every poll would then read all jobs that it cannot run."""

        await _mixed(world)

        [found] = await world.store.transact([take("op-1", "w", limit=9, kinds=("command",))])

        got = [d.after.job_id for d in found if isinstance(d, Change)]
        assert got == ["plain-1", "plain-2"]
        assert len(found) == 2

    @in_world
    async def test_no_plain_claim_is_granted_what_needs_a_holdfast_worker_wherever_it_was_found(
        self, world: World
    ) -> None:
        """An earlier version kept such a command under the kind of all commands."""

        await _mixed(world)

        got = await world.local.claim(["default"], owner="w", limit=2, plain=True)

        assert [g.job_id for g in got] == ["plain-1", "plain-2"]
        assert await world.local.claim(["default"], owner="w", plain=True) == []

    @in_world
    async def test_people_find_every_command_under_one_kind(self, world: World) -> None:
        await world.enqueue("limited", spec=LIMITED)
        await world.enqueue("plain", spec=PLAIN)
        await world.enqueue("other", kind="resize")

        for newest in (False, True):
            page = await world.store.list_jobs(JobFilter(kind="command"), after=None, limit=9, newest=newest)
            assert {job.job_id for job in page.jobs} == {"limited", "plain"}
        for kind in ("command/own", ""):
            page = await world.store.list_jobs(JobFilter(kind=kind), after=None, limit=9)
            assert page.jobs == ()
        assert (await world.registry.status("limited")).spec == LIMITED

    @in_world
    async def test_the_registry_ends_an_attempt_whose_owner_does_not_keep_its_timeout(
        self, world: World
    ) -> None:
        world.local.start_counting()
        await world.enqueue("job-1", spec=TIMED)
        [grant] = await world.local.claim(["default"], owner="w", timed=True)
        await world.local.publish(grant, [output(1, world=world)])

        await world.lapse(4)
        renewed = await world.local.heartbeat(grant)
        await world.lapse(1)

        assert renewed.lease is not None
        assert renewed.lease.granted_for == timedelta(seconds=1)
        job = await world.registry.status("job-1")
        assert (job.state, job.failures, job.crashes) == (State.QUEUED, 1, 0)
        assert job.error is not None
        assert job.error.reason_code is ReasonCode.TIMEOUT
        for late in (
            world.local.heartbeat(grant),
            world.local.complete(grant, Success(), op_id="op-late"),
        ):
            with pytest.raises(Fenced, match="longer than its timeout of 5 s"):
                await late
        assert sum(kind.lapsed for kind in world.local.counters.kinds.values()) == 0
        await world.check()

    @in_world
    async def test_whoever_claims_next_ends_it_on_the_way(self, world: World) -> None:
        await world.enqueue("job-1", spec=TIMED)
        await world.enqueue("job-2", spec=TIMED)
        [first] = await world.local.claim(["default"], owner="w", timed=True)
        second = await world.local.acquire("job-2", owner="w", timed=True)
        for grant in (first, second):
            await world.local.heartbeat(grant)
        world.clock.advance(5)

        with pytest.raises(Conflict, match="not ready before"):
            await world.registry.acquire("job-2", owner="w-2")
        await world.registry.claim(["default"], owner="w-2", kinds=["resize"])

        for job_id in ("job-1", "job-2"):
            job = await world.registry.status(job_id)
            assert (job.state, job.attempt, job.failures) == (State.QUEUED, 2, 1)

    @in_world
    async def test_an_owner_that_keeps_its_timeout_has_its_lease_for_as_long_as_ever(
        self, world: World
    ) -> None:
        await world.enqueue("job-1", spec=TIMED)
        grant = await world.claim()
        await world.registry.heartbeat(grant)

        await world.lapse(30)

        job = await world.registry.complete(grant, Success())
        assert job.state is State.SUCCEEDED
