"""Follow-ups as the registry takes them: checked before anything is written, named, in one commit."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.core.derived_ids import follow_up_id
from holdfast.core.errors import HoldfastError, Invalid, Unavailable
from holdfast.core.job import Job
from holdfast.core.lifecycle import Stopped, Success
from holdfast.core.limits import BATCH_ITEMS_MAX, FOLLOW_UPS_MAX, PAYLOAD_BYTES_MAX
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Completion, Grant, JobRequest
from holdfast.testing.world import PERMANENT, World, open_world
from tests.registry.faulty_stores import breathe, counted, counted_store

GOOD = JobRequest(spec=Spec(kind="mail"))
LARGE = JobRequest(spec=Spec(payload=msgspec.Raw(b'"%s"' % (b"x" * (PAYLOAD_BYTES_MAX - 2)))))


async def granted(world: World, many: int = 1) -> list[Grant]:
    requests = [JobRequest(spec=Spec(), job_id=f"job-{n}") for n in range(many)]
    await world.registry.enqueue_many(requests, actor="user:ana")
    return await world.registry.claim(["default"], owner="worker-7", limit=many)


def made_by(grant: Grant, number: int = 0) -> str:
    return follow_up_id(grant.job_id, grant.fencing_token, number)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (replace(GOOD, job_id="mine"), "give no job_id and no request_id"),
        (replace(GOOD, request_id="mine"), "give no job_id and no request_id"),
        (JobRequest(spec=Spec(priority=10)), "priority is from 0"),
        (JobRequest(spec=Spec(queue="no queue")), "queue 'no queue' may only contain"),
        (JobRequest(spec=Spec(payload=msgspec.Raw(b"{"))), "payload is not JSON"),
        (replace(GOOD, correlation_id="a/b"), "correlation_id 'a/b'"),
        (replace(GOOD, trace_id=""), "trace_id is empty"),
    ],
)
async def test_the_first_follow_up_that_is_wrong_is_named_and_nothing_is_written(
    tmp_path: Path, wrong: JobRequest, words: str
) -> None:
    async with open_world(counted_store, tmp_path) as world:
        [grant] = await granted(world)
        commits = list(counted(world).commits)

        with pytest.raises(Invalid, match=rf"^follow_ups\[1\]: .*{words}"):
            await world.registry.complete(grant, Success(), follow_ups=[GOOD, wrong, wrong])

        assert counted(world).commits == commits
        assert (await world.registry.status("job-0")).state is State.ASSIGNED


async def test_too_many_follow_ups_or_too_large_ones_are_refused(tmp_path: Path) -> None:
    async with open_world(counted_store, tmp_path) as world:
        [grant] = await granted(world)

        with pytest.raises(Invalid, match=r"^101 follow-ups at once; at most 100"):
            await world.registry.complete(grant, Success(), follow_ups=[GOOD] * (FOLLOW_UPS_MAX + 1))
        with pytest.raises(Invalid, match=r"have 17,039,360 bytes; at most 16,777,216"):
            await world.registry.complete(grant, Success(), follow_ups=[LARGE] * 65)
        done = await world.registry.complete(grant, Success(), follow_ups=[LARGE] * 64)

        assert done.state is State.SUCCEEDED


async def test_who_does_not_succeed_is_not_asked_whether_its_follow_ups_are_right(
    tmp_path: Path,
) -> None:
    """A failure that cannot be reported would be tried again for nothing."""

    async with open_world(counted_store, tmp_path) as world:
        grants = await granted(world, 2)
        wrong = replace(GOOD, job_id="mine")

        failed = await world.registry.complete(grants[0], PERMANENT, follow_ups=[wrong])
        stopped = await world.registry.complete(grants[1], Stopped(), follow_ups=[wrong])

        assert failed.ended
        assert stopped.ended


async def test_the_worker_submits_whoever_the_request_names(tmp_path: Path) -> None:
    async with open_world(counted_store, tmp_path) as world:
        [grant] = await granted(world)
        request = replace(GOOD, submitted_by="user:somebody", correlation_id="c", trace_id="t")

        await world.registry.complete(grant, Success(), follow_ups=[request])

        job = await world.registry.status(made_by(grant))
        assert (job.submitted_by, job.correlation_id, job.trace_id) == ("worker:worker-7", "c", "t")
        assert world.local.counters.events["job_queued"] == 2


async def test_one_wrong_follow_up_among_many_completions_refuses_that_one_alone(
    tmp_path: Path,
) -> None:
    async with open_world(counted_store, tmp_path) as world:
        grants = await granted(world, 3)
        wrong = replace(GOOD, job_id="mine")
        wanted = [(GOOD,), (wrong,), (GOOD, GOOD)]

        answers = await world.registry.complete_many(
            [
                Completion(grant, Success(), follow_ups=follow_ups)
                for grant, follow_ups in zip(grants, wanted, strict=True)
            ]
        )

        assert [a.state if isinstance(a, Job) else type(a) for a in answers] == [
            State.SUCCEEDED,
            Invalid,
            State.SUCCEEDED,
        ]
        assert (await world.registry.status("job-1")).state is State.ASSIGNED
        assert await world.registry.counts() == {
            State.SUCCEEDED: 2,
            State.ASSIGNED: 1,
            State.QUEUED: 3,
        }


async def test_a_completion_and_its_follow_ups_are_never_in_two_commits(tmp_path: Path) -> None:
    async with open_world(counted_store, tmp_path) as world:
        grants = await granted(world, 25)
        counted(world).commits.clear()

        await world.registry.complete_many(
            [Completion(grant, Success(), follow_ups=(GOOD,) * FOLLOW_UPS_MAX) for grant in grants]
        )

        whole = 1 + FOLLOW_UPS_MAX
        assert counted(world).commits == [9 * whole, 9 * whole, 7 * whole]
        assert all(works <= BATCH_ITEMS_MAX for works in counted(world).commits)


async def test_no_commit_has_too_many_bytes_of_new_jobs(tmp_path: Path) -> None:
    async with open_world(counted_store, tmp_path) as world:
        grants = await granted(world, 3)
        counted(world).commits.clear()

        await world.registry.complete_many(
            [Completion(grant, Success(), follow_ups=(LARGE,) * 32) for grant in grants]
        )

        assert counted(world).commits == [2 * 33, 33]


async def test_nothing_to_complete_is_no_commit(tmp_path: Path) -> None:
    async with open_world(counted_store, tmp_path) as world:
        assert await world.registry.complete_many([]) == []
        assert counted(world).commits == []


@pytest.mark.parametrize("many", [False, True])
async def test_what_the_store_did_not_write_made_nothing_and_can_be_sent_again(
    tmp_path: Path, many: bool
) -> None:
    async with open_world(counted_store, tmp_path) as world:
        [grant] = await granted(world)
        done = Completion(grant, Success(), "op-1", follow_ups=(GOOD,))

        async def send() -> Job | HoldfastError:
            if many:
                return (await world.registry.complete_many([done]))[0]
            return await world.registry.complete(grant, Success(), op_id="op-1", follow_ups=done.follow_ups)

        counted(world).failure = Unavailable("away")
        if many:
            assert isinstance(await send(), Unavailable)
        else:
            with pytest.raises(Unavailable):
                await send()
        assert await world.registry.status_many([made_by(grant)]) == [None]

        first, again = await send(), await send()

        assert first == again
        assert len((await world.registry.list_jobs()).jobs) == 2


async def test_follow_ups_of_callers_that_share_a_commit_stay_apart(tmp_path: Path) -> None:
    async with open_world(counted_store, tmp_path) as world:
        grants = await granted(world, 3)
        store = counted(world)
        store.commits.clear()
        store.gate.clear()
        tasks = [
            asyncio.create_task(world.registry.complete(grant, Success(result=n), follow_ups=[GOOD] * n))
            for n, grant in enumerate(grants)
        ]
        await breathe()
        store.gate.set()

        jobs = await asyncio.gather(*tasks)

        assert [job.result for job in jobs] == [0, 1, 2]
        assert sum(store.commits) == 3 + 3
        assert len((await world.registry.list_jobs()).jobs) == 3 + 3
