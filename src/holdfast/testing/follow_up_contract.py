"""The contract of a store: the jobs that a change creates exist if and only if it is committed."""

from datetime import timedelta

import msgspec
import pytest

from holdfast.core.derived_ids import follow_up_id
from holdfast.core.errors import Fenced
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import Outcome, Stopped, Success
from holdfast.core.limits import FOLLOW_UPS_MAX, MESSAGE_CHARACTERS_MAX
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Completion, Grant, JobFilter, JobRequest
from holdfast.testing.world import PERMANENT, TRANSIENT, Opener, World, in_world, patient

HOSTILE = {
    "a NUL": ("read \0 of 7 bytes", "read ? of 7 bytes"),
    "a lone surrogate": ("caf\udcc3\udca9", "caf??"),
    "a terminal escape": ("\x1b[2J\x1b]0;gone\x07", "\x1b[2J\x1b]0;gone\x07"),
    "a megabyte": ("é\0" * 500_000, "é?" * (MESSAGE_CHARACTERS_MAX // 2)),
}


def wanted(*kinds: str, **spec: object) -> tuple[JobRequest, ...]:
    return tuple(JobRequest(spec=Spec(kind=kind, **spec)) for kind in kinds)  # type: ignore[arg-type]


def ids_of(grant: Grant, count: int) -> list[str]:
    return [follow_up_id(grant.job_id, grant.fencing_token, n) for n in range(count)]


async def jobs_of(world: World, grant: Grant, count: int) -> list[Job]:
    return [job for job in await world.store.get(ids_of(grant, count)) if job is not None]


async def all_jobs(world: World) -> list[str]:
    return [job.job_id for job in (await world.store.list_jobs(JobFilter(), after=None, limit=1000)).jobs]


class FollowUpContract:
    open: Opener

    @in_world
    async def test_a_success_makes_its_follow_ups_and_both_sides_know(self, world: World) -> None:
        await world.enqueue("maker")
        grant = await world.claim(owner="worker-7")
        asked = wanted("resize", "mail", lock="disk", labels={"team": "x"})

        done = await world.registry.complete(grant, Success(result=1), follow_ups=asked)

        ids = ids_of(grant, 2)
        jobs = await jobs_of(world, grant, 2)
        assert done.state is State.SUCCEEDED
        assert await all_jobs(world) == ["maker", *ids]
        assert [job.spec for job in jobs] == [request.spec for request in asked]
        for job in jobs:
            assert (job.state, job.version, job.attempt) == (State.QUEUED, 1, 1)
            assert (job.correlation_id, job.submitted_by) == ("maker", "worker:worker-7")
            assert job.created_at == done.ended_at
        history = (await world.store.histories(["maker"]))[0]
        assert history[-1].attributes == {"result": 1, "follow_ups": ids}
        for [event], job_id in zip(await world.store.histories(ids), ids, strict=True):
            assert event.event_id == f"{job_id}/1"
            assert (event.cause, event.actor) == (history[-1].event_id, "worker:worker-7")
        feed = await world.store.events(after=None, limit=100)
        assert {f"{job_id}/1" for job_id in ids} <= {event.event_id for event in feed.events}
        assert await world.store.counts() == {State.SUCCEEDED: 1, State.QUEUED: 2}
        await world.check()

    @in_world
    async def test_follow_ups_are_claimed_in_the_order_asked_for(self, world: World) -> None:
        await world.enqueue("maker")
        grant = await world.claim()
        await world.registry.complete(grant, Success(), follow_ups=wanted(*"abc"))
        late = wanted("d", delay=timedelta(seconds=5))

        grants = await world.registry.claim(["default"], owner="worker-9", limit=9)
        await world.registry.complete(grants[0], Success(), follow_ups=late)

        assert [one.job.spec.kind for one in grants] == ["a", "b", "c"]
        assert await world.registry.claim(["default"], owner="worker-9") == []
        world.clock.advance(5)
        last = await world.claim()
        assert (last.job.spec.kind, last.job.correlation_id) == ("d", "maker")
        await world.check()

    @in_world
    async def test_a_job_whose_outputs_are_checked_later_has_made_its_follow_ups(self, world: World) -> None:
        await world.enqueue("maker", promised_outputs=1)
        grant = await world.claim()

        done = await world.registry.complete(grant, Success(), follow_ups=wanted("mail"))

        [event] = [e for e in await world.registry.history("maker") if e.offset == done.version]
        assert done.state is State.VALIDATING
        assert event.attributes == {"follow_ups": ids_of(grant, 1)}
        assert len(await jobs_of(world, grant, 1)) == 1

    @pytest.mark.parametrize("outcome", [TRANSIENT, PERMANENT, Stopped()])
    @in_world
    async def test_no_other_end_makes_any(self, world: World, outcome: Outcome) -> None:
        await world.enqueue("maker", retry=patient(1))
        grant = await world.claim()

        done = await world.registry.complete(grant, outcome, follow_ups=wanted("mail"))

        assert done.ended
        assert await all_jobs(world) == ["maker"]
        assert "follow_ups" not in (await world.registry.history("maker"))[-1].attributes

    @in_world
    async def test_a_zombie_makes_none_and_the_owner_its_own(self, world: World) -> None:
        await world.enqueue("maker")
        zombie = await world.claim(owner="worker-7")
        await world.lapse()
        owner = await world.claim(owner="worker-9")
        asked = wanted("mail")

        with pytest.raises(Fenced):
            await world.registry.complete(zombie, Success(), follow_ups=asked)
        assert await all_jobs(world) == ["maker"]
        await world.registry.complete(owner, Success(), follow_ups=asked)
        with pytest.raises(Fenced):
            await world.registry.complete(zombie, Success(), follow_ups=asked)

        assert await all_jobs(world) == ["maker", *ids_of(owner, 1)]

    @in_world
    async def test_a_repeated_completion_makes_none_twice(self, world: World) -> None:
        await world.enqueue("maker")
        grant = await world.claim()
        asked = wanted("mail", "bill")
        first = await world.registry.complete(grant, Success(), op_id="op", follow_ups=asked)
        [made] = await world.registry.claim(["default"], owner="worker-9")
        await world.registry.complete(made, Success())

        again = await world.registry.complete(grant, Success(), op_id="op", follow_ups=asked)

        assert again == first
        assert await all_jobs(world) == ["maker", *ids_of(grant, 2)]
        assert len((await world.store.histories([made.job_id]))[0]) == 4
        await world.check()

    @in_world
    async def test_each_of_many_completions_makes_its_own(self, world: World) -> None:
        for n in range(4):
            await world.enqueue(f"job-{n}")
        grants = await world.registry.claim(["default"], owner="worker-7", limit=4)
        ends: list[Outcome] = [Success(), PERMANENT, Success(), Success()]

        await world.registry.complete_many(
            [
                Completion(grant, end, follow_ups=wanted("mail", "bill")[: 2 - n % 2])
                for n, (grant, end) in enumerate(zip(grants, ends, strict=True))
            ]
        )

        counts = [len(await jobs_of(world, grant, 2)) for grant in grants]
        assert counts == [2, 0, 2, 1]
        assert len(await all_jobs(world)) == 4 + 5
        await world.check()

    @in_world
    async def test_an_id_that_is_taken_stays_as_it_is(self, world: World) -> None:
        """Ids of follow-ups can be computed, so another client may have used one."""

        await world.enqueue("maker")
        grant = await world.claim()
        squatted, free = ids_of(grant, 2)
        there = await world.enqueue(squatted, kind="other")

        done = await world.registry.complete(grant, Success(), follow_ups=wanted("a", "b"))

        assert done.state is State.SUCCEEDED
        assert await world.store.get([squatted]) == [there]
        assert await all_jobs(world) == ["maker", squatted, free]
        await world.check()

    @in_world
    async def test_as_many_as_are_taken_come_at_once(self, world: World) -> None:
        await world.enqueue("maker")
        grant = await world.claim()
        payload = msgspec.Raw(b'"%s"' % (b"x" * 1000))
        kinds = [f"kind-{n}" for n in range(FOLLOW_UPS_MAX)]

        await world.registry.complete(grant, Success(), follow_ups=wanted(*kinds, payload=payload))

        jobs = await jobs_of(world, grant, FOLLOW_UPS_MAX)
        assert [job.spec.kind for job in jobs] == kinds
        await world.check()

    @in_world
    async def test_a_follow_up_that_was_pruned_is_not_made_again(self, world: World) -> None:
        await world.enqueue("maker", promised_outputs=1)
        grant = await world.claim()
        await world.registry.complete(grant, Success(), op_id="op", follow_ups=wanted("mail", "bill"))
        made = await world.claim()
        await world.registry.complete(made, Success())
        world.clock.advance(10)
        pruned = await world.registry.prune(older_than=timedelta(seconds=5))

        await world.registry.complete(grant, Success(), op_id="op", follow_ups=wanted("mail", "bill"))
        await world.registry.events()
        await world.registry.expire()

        assert pruned.jobs == 1
        assert await all_jobs(world) == ["maker", ids_of(grant, 2)[1]]

    @pytest.mark.parametrize("message", HOSTILE)
    @in_world
    async def test_whatever_an_exception_says_can_be_kept(self, world: World, message: str) -> None:
        said, kept = HOSTILE[message]
        await world.enqueue("job-1", retry=patient(1))
        grant = await world.claim()

        await world.registry.complete(grant, Failure(message=said, code=said))

        job = await world.registry.status("job-1")
        assert job.state is State.DEAD_LETTERED
        assert job.error is not None
        assert job.error.message[:4000] == kept[:4000]
        assert len(job.error.message) <= MESSAGE_CHARACTERS_MAX
        assert job.dead_letter is not None
        assert job.dead_letter.last_error == job.error.message
        await world.check()
