"""The contract of a store: what is committed is read back, completely and atomically."""

import asyncio
from datetime import timedelta
from functools import partial

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.core.errors import Conflict, Fenced
from holdfast.core.job import Failure, Progress
from holdfast.core.lifecycle import (
    Change,
    Claim,
    Enqueue,
    Outcome,
    Refusal,
    Stopped,
    Success,
    decide,
)
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.ports import ById, JobRequest, Ready, Work
from holdfast.testing.world import PERMANENT, TRANSIENT, Opener, World, in_world

FULL = Spec(
    kind="resize",
    queue="images",
    payload=msgspec.Raw(b'{"width":640}'),
    name="thumbnail",
    priority=2,
    region="eu-west",
    lock="disk:1",
    lease=timedelta(seconds=30),
    timeout=timedelta(minutes=5),
    delay=timedelta(seconds=3),
    ttl=timedelta(hours=1),
    retry=Retry(max_failures=3),
    labels={"team": "imaging"},
)


def make(job_id: str, spec: Spec = Spec()) -> Work:
    command = Enqueue(op_id=job_id, job_id=job_id, spec=spec, actor="user:ana")
    return Work(ById(job_id), partial(decide, command))


def take(op_id: str, owner: str, **where: object) -> Work:
    command = Claim(op_id=op_id, owner=owner, actor=f"worker:{owner}")
    ready = Ready(op_id=op_id, **{"queues": ("default",), **where})  # type: ignore[arg-type]
    return Work(ready, partial(decide, command))


def seize(job_id: str, op_id: str, owner: str) -> Work:
    command = Claim(op_id=op_id, owner=owner, actor=f"worker:{owner}")
    return Work(ById(job_id), partial(decide, command))


class CommitContract:
    open: Opener

    @in_world
    async def test_how_often_nobody_understood_a_job_is_read_back(self, world: World) -> None:
        await world.store.transact([make("job-1")])
        [grant] = await world.registry.claim(["default"], owner="w")
        failure = Failure(message="no argument gift", not_understood=True)
        given = await world.registry.complete(grant, failure)

        [job] = await world.store.get(["job-1"])

        assert job == given
        assert job is not None
        assert (job.not_understood, job.failures) == (1, 0)
        await world.check()

    @in_world
    async def test_how_often_a_job_could_not_be_started_is_read_back(self, world: World) -> None:
        await world.store.transact([make("job-1")])
        [grant] = await world.registry.claim(["default"], owner="w")
        failure = Failure(message="no such folder", retryable=False, not_started=True)
        given = await world.registry.complete(grant, failure)

        [job] = await world.store.get(["job-1"])

        assert job == given
        assert job is not None
        assert (job.not_started, job.not_understood, job.failures) == (1, 0, 0)
        await world.check()

    @in_world
    async def test_a_job_is_read_back_whole(self, world: World) -> None:
        [[made]] = await world.store.transact([make("job-1", FULL)])

        [job] = await world.store.get(["job-1"])

        assert isinstance(made, Change)
        assert job == made.after
        assert job is not None
        assert job.spec == FULL

    @in_world
    async def test_jobs_of_one_commit_are_read_back_whether_they_are_alike_or_not(self, world: World) -> None:
        plain = Spec(kind="resize", payload=msgspec.Raw(b'{"width":640}'))
        others = [
            replace(plain, **{name: getattr(FULL, name)})
            for name in FULL.__struct_fields__
            if getattr(FULL, name) != getattr(plain, name)
        ]
        specs = [plain, Spec(), FULL, *(spec for other in others for spec in (other, other, plain))]
        specs += [replace(spec, payload=msgspec.Raw(b'{"width":%d}' % n)) for n, spec in enumerate(specs)]

        given = await world.registry.enqueue_many([JobRequest(spec=spec) for spec in specs], actor="user:ana")
        named = await world.store.transact([make(f"job-{n}", spec) for n, spec in enumerate(specs)])

        jobs = [*given, *(decision.after for [decision] in named if isinstance(decision, Change))]
        assert await world.store.get([job.job_id for job in jobs]) == jobs
        assert [job.spec for job in jobs] == [*specs, *specs]
        alike = {job.job_id for job in jobs if job.spec == plain}
        grants = await world.registry.claim(["default"], owner="w", limit=1000)
        assert alike <= {grant.job_id for grant in grants}

    @in_world
    async def test_signs_of_life_are_read_back_whole(self, world: World) -> None:
        await world.enqueue("job-1", promised_outputs=2)
        grant = await world.claim(heartbeat_interval=timedelta(seconds=10))
        after = await world.registry.heartbeat(
            grant, progress=Progress(3, 8, "fitting"), checkpoint={"epoch": 3}
        )
        cancelled = await world.registry.cancel("job-1", actor="user:ana", reason="enough")

        [job] = await world.store.get(["job-1"])

        assert job == cancelled
        assert job is not None
        assert job.progress == after.progress
        assert job.checkpoint == {"epoch": 3}
        assert job.lease is not None
        assert job.lease.heartbeat_interval == timedelta(seconds=10)

    @in_world
    async def test_a_job_that_is_not_there_is_decided_as_none(self, world: World) -> None:
        [[refused]] = await world.store.transact([seize("nobody", "op", "worker-7")])

        assert isinstance(refused, Refusal)
        assert await world.store.get(["nobody"]) == [None]
        assert await world.store.histories(["nobody"]) == [[]]

    @in_world
    async def test_state_and_events_land_together(self, world: World) -> None:
        job = await world.enqueue()
        grant = await world.claim()
        done = await world.registry.complete(grant, Success())

        [history] = await world.store.histories([job.job_id])

        assert [event.offset for event in history] == [1, 2, 3, 4]
        assert [event.transition_no for event in history] == [1, 2, 3, 4]
        assert done.version == 4
        assert [event.op_id for event in history][2] == history[3].op_id

    @in_world
    async def test_a_history_says_how_an_attempt_ended_word_for_word(self, world: World) -> None:
        """By it a repeated completion is told from one with another outcome."""

        said = Success(result={"b": [1, 2.5, None, True], "a": "ä"})
        ends: list[Outcome] = [said, TRANSIENT, PERMANENT, Stopped(reason="as asked")]
        others: list[Outcome] = [Success(result=1), Failure(message="another")]
        for number, end in enumerate(ends):
            await world.enqueue(f"job-{number}")
            grant = await world.claim()
            first = await world.registry.complete(grant, end)

            again = await world.registry.complete(grant, end)

            assert (again.version, again.state) == (first.version, first.state)
            assert (again.result, again.error) == (first.result, first.error)
            for other in others:
                with pytest.raises(Fenced, match="You have already completed it"):
                    await world.registry.complete(grant, other)

    @in_world
    async def test_works_of_one_batch_see_each_other(self, world: World) -> None:
        works = [make("job-1"), *(seize("job-1", f"op-{n}", f"w-{n}") for n in range(64))]

        answers = await world.store.transact(works)

        granted = [d for [d] in answers[1:] if isinstance(d, Change)]
        refused = [d for [d] in answers[1:] if isinstance(d, Refusal)]
        assert len(granted) == 1
        assert len(refused) == 63
        assert all(isinstance(d.error, Conflict) for d in refused)
        [history] = await world.store.histories(["job-1"])
        assert len(history) == 2

    @in_world
    async def test_the_secret_is_made_once(self, world: World) -> None:
        secret = await world.store.secret()

        assert len(secret) == 32
        assert await world.store.secret() == secret

    @in_world
    async def test_waiting_ends_with_the_next_commit(self, world: World) -> None:
        for ready in (False, True):
            mark = world.store.change_mark(ready=ready)
            waiter = asyncio.create_task(world.store.wait(mark, 1e6, ready=ready))
            await world.enqueue()

            await asyncio.wait_for(waiter, 10)
            await asyncio.wait_for(world.store.wait(mark, 1e6, ready=ready), 10)

    @in_world
    async def test_waiting_for_a_ready_job_ends_when_a_lock_is_let_go(self, world: World) -> None:
        await world.enqueue("job-1", lock="disk")
        grant = await world.claim("w-1")
        mark = world.store.change_mark(ready=True)
        await world.registry.complete(grant, Success())

        await asyncio.wait_for(world.store.wait(mark, 1e6, ready=True), 10)
