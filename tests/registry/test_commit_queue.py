"""The commit queue: concurrent calls share commits, none waits for a timer, a failure stays in its batch."""

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path

import msgspec
import pytest

from holdfast.core.errors import Exhausted, HoldfastError, Invalid, Unavailable
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import Success
from holdfast.core.limits import PAYLOAD_BYTES_MAX
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Clock, Completion, Decision, Ids, JobRequest, Store, Work
from holdfast.sdk.open import open_registry
from holdfast.stores.memory import MemoryStore
from holdfast.testing.world import World, open_world, output
from tests.conftest import STORES
from tests.registry.faulty_stores import breathe, counted, counted_store


class TimerlessLoop(asyncio.SelectorEventLoop):
    """An event loop in which nobody can wait for time to pass."""

    def call_at(self, *args: object, **more: object) -> asyncio.TimerHandle:
        raise AssertionError("somebody waits for a timer")


async def test_concurrent_calls_share_one_commit(tmp_path: Path) -> None:
    async with open_world(counted_store, tmp_path) as world:
        jobs = await asyncio.gather(*(world.enqueue(f"job-{n}") for n in range(64)))

        assert counted(world).commits == [64]
        assert [job.job_id for job in jobs] == [f"job-{n}" for n in range(64)]


async def test_calls_that_arrive_during_a_commit_go_together_in_the_next(tmp_path: Path) -> None:
    async with open_world(counted_store, tmp_path) as world:
        store = counted(world)
        store.gate.clear()
        first = asyncio.create_task(world.enqueue("first"))
        await breathe()
        rest = [asyncio.create_task(world.enqueue(f"job-{n}")) for n in range(64)]
        await breathe()

        store.gate.set()
        await asyncio.gather(first, *rest)

        assert store.commits == [1, 64]


def test_an_idle_queue_adds_no_wait(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_world(counted_store, tmp_path) as world:
            for n in range(3):
                await world.enqueue(f"job-{n}")
                await world.claim()

            assert counted(world).commits == [1, 2, 1, 2, 1, 2]  # a claim brings its sweep

    with asyncio.Runner(loop_factory=TimerlessLoop) as runner:
        runner.run(main())


@pytest.mark.parametrize(("size", "commits"), [(1000, [1000]), (1001, [1000, 1]), (2500, [1000, 1000, 500])])
async def test_a_commit_has_at_most_a_thousand_works(tmp_path: Path, size: int, commits: list[int]) -> None:
    async with open_world(counted_store, tmp_path) as world:
        await asyncio.gather(*(world.enqueue() for _ in range(size)))
        alone = list(counted(world).commits)
        requests = [JobRequest(spec=Spec()) for _ in range(size)]
        jobs = await world.registry.enqueue_many(requests, actor="user:ana")

        assert alone == commits
        assert counted(world).commits == commits * 2
        assert len({job.job_id for job in jobs}) == size


async def test_a_claim_counts_for_as_many_as_it_may_take(tmp_path: Path) -> None:
    async with open_world(counted_store, tmp_path) as world:
        claims = (world.registry.claim(["default"], owner="w", limit=600) for _ in range(2))

        await asyncio.gather(*claims)

        assert counted(world).commits == [2, 1]


async def held_up(world: World, calls: Sequence[Coroutine[None, None, object]]) -> list[int]:
    """The works of each commit, when all these calls come while the first is under way."""
    store = counted(world)
    store.commits.clear()
    store.gate.clear()
    tasks = []
    for call in calls:
        tasks.append(asyncio.create_task(call))
        await breathe()
    store.gate.set()
    await asyncio.gather(*tasks)
    return store.commits


async def test_owners_wait_for_one_commit_however_much_is_enqueued(tmp_path: Path) -> None:
    async with open_world(counted_store, tmp_path) as world:
        registry = world.registry
        await asyncio.gather(*(world.enqueue(f"job-{n}") for n in range(6)))
        grants = await registry.claim(["default"], owner="w", limit=6)
        bulk = [JobRequest(spec=Spec())] * 1000
        made = JobRequest(spec=Spec())
        calls = [
            *(registry.enqueue_many(bulk, actor="user:ana") for _ in range(3)),
            registry.heartbeat(grants[0]),
            registry.aggregate(grants[0]),
            registry.complete(grants[1], Success()),
            registry.release(grants[2]),
            registry.publish(grants[3], [output(1, "x", world=world)]),
            world.local.refuse_publish(grants[3], "too large"),
            registry.complete_many([Completion(grants[4], Success())]),
            registry.complete(grants[5], Success(), follow_ups=[made]),
        ]

        assert await held_up(world, calls) == [1000, 1009, 1000]


async def test_what_is_enqueued_goes_on_however_much_owners_say(tmp_path: Path) -> None:
    async with open_world(counted_store, tmp_path) as world:
        await world.enqueue("kept")
        grant = await world.claim()
        beats = [world.registry.heartbeat(grant) for _ in range(2500)]
        first, last = world.enqueue("first"), world.enqueue("last")

        assert await held_up(world, [first, *beats, last]) == [1, 1001, 1000, 500]


async def test_large_jobs_of_many_callers_go_in_commits_of_a_bounded_size(tmp_path: Path) -> None:
    async with open_world(counted_store, tmp_path) as world:
        large = Spec(payload=msgspec.Raw(b'"' + b"x" * (PAYLOAD_BYTES_MAX - 2) + b'"'))
        request = JobRequest(spec=large)
        calls = [world.registry.enqueue(request, actor="user:ana") for _ in range(100)]
        await asyncio.gather(*calls)
        assert counted(world).commits == [64, 36]  # 16 MiB, and the rest

        counted(world).commits.clear()
        grants = await world.registry.claim(["default"], owner="w", limit=2)
        ends = [world.registry.complete(grant, Success(), follow_ups=[request] * 50) for grant in grants]
        assert await held_up(world, [world.enqueue("first"), *ends]) == [1, 51, 51]


@pytest.mark.parametrize(
    ("failure", "applied"),
    [
        (Unavailable("the disk is full"), "no"),
        (Exhausted("too much"), None),
    ],
)
async def test_a_failing_store_fails_exactly_the_calls_of_that_batch(
    tmp_path: Path, failure: Exception, applied: str | None
) -> None:
    async with open_world(counted_store, tmp_path) as world:
        await world.enqueue("before")
        counted(world).failure = failure
        names = [f"lost-{n}" for n in range(8)]

        answers = await asyncio.gather(*(world.enqueue(name) for name in names), return_exceptions=True)
        later = await world.enqueue("after")

        assert all(isinstance(answer, HoldfastError) for answer in answers)
        assert {getattr(answer, "applied", None) for answer in answers} == {applied}
        assert {type(answer) for answer in answers} == {type(failure)}
        assert len({id(answer) for answer in answers}) == 8
        assert await world.registry.status_many(names) == [None] * 8
        assert later.state == "queued"
        assert counted(world).commits == [1, 8, 1]


async def test_calls_that_broke_together_are_tried_apart(tmp_path: Path) -> None:
    """One request that cannot be written must not fail the strangers in its commit."""

    async with open_world(counted_store, tmp_path) as world:
        counted(world).failure = RuntimeError("somebody's request")
        names = [f"job-{n}" for n in range(8)]

        made = await asyncio.gather(*(world.enqueue(name) for name in names))

        assert [job.job_id for job in made] == names
        assert counted(world).commits == [8, *[1] * 8]


@pytest.mark.parametrize(
    ("failure", "kind"),
    [(RuntimeError("a bug in a driver"), Unavailable), (TypeError("not text"), Invalid)],
)
async def test_a_call_that_breaks_alone_is_told_so(
    tmp_path: Path, failure: Exception, kind: type[HoldfastError]
) -> None:
    async with open_world(counted_store, tmp_path) as world:
        counted(world).failure = failure

        with pytest.raises(kind) as caught:
            await world.enqueue("job-1")

        assert caught.value.__cause__ is failure


@pytest.mark.parametrize("failure", [None, Unavailable("gone")])
async def test_a_caller_that_gave_up_disturbs_nobody(tmp_path: Path, failure: Unavailable | None) -> None:
    async with open_world(counted_store, tmp_path) as world:
        store = counted(world)
        store.gate.clear()
        store.failure = failure
        tasks = [asyncio.create_task(world.enqueue(f"job-{n}")) for n in range(3)]
        await breathe()

        tasks[1].cancel()
        await breathe()
        store.gate.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)

        assert isinstance(answers[1], asyncio.CancelledError)
        expected = Job if failure is None else Unavailable
        assert isinstance(answers[0], expected)
        assert isinstance(answers[2], expected)


async def test_what_waits_for_a_caller_that_left_is_not_committed(tmp_path: Path) -> None:
    async with open_world(counted_store, tmp_path) as world:
        store = counted(world)
        store.gate.clear()
        names = ("first", "left", "stays")
        tasks = []
        for name in names:
            tasks.append(asyncio.create_task(world.enqueue(name)))
            await breathe()
        tasks[1].cancel()
        store.gate.set()
        await asyncio.gather(*tasks, return_exceptions=True)

        assert store.commits == [1, 1]
        assert await world.registry.status_many(["left"]) == [None]


async def test_closing_lets_everything_that_waits_be_committed(tmp_path: Path) -> None:
    async with open_world(counted_store, tmp_path) as world:
        store = counted(world)
        store.gate.clear()
        task = asyncio.create_task(world.enqueue("job-1"))
        await breathe()
        closing = asyncio.create_task(world.registry.close())
        await breathe()
        assert not closing.done()

        store.gate.set()
        await closing

        assert (await task).job_id == "job-1"


async def test_one_callers_bad_words_do_not_fail_the_calls_beside_it(world: World) -> None:
    await world.enqueue("job-1")
    grant = await world.claim()
    bad = Failure(message="cannot open 'r\udce9sum\udce9.txt'")

    _, made = await asyncio.gather(
        world.registry.complete(grant, bad), world.enqueue("beside"), return_exceptions=True
    )

    assert isinstance(made, Job), made
    assert (await world.registry.status("job-1")).failures == 1


class BreakingStore(MemoryStore):
    """A memory store whose second commit fails."""

    commits = 0

    async def transact(self, works: Sequence[Work]) -> list[list[Decision]]:
        self.commits += 1
        if self.commits == 2:
            raise Unavailable("the disk is full")
        return await super().transact(works)


async def breaking_store(folder: Path, clock: Clock, ids: Ids) -> Store:
    return BreakingStore(clock, ids)


async def test_a_bulk_that_breaks_off_says_that_a_part_may_have_landed(tmp_path: Path) -> None:
    async with open_world(breaking_store, tmp_path) as world:
        requests = [JobRequest(spec=Spec())] * 1500

        with pytest.raises(Unavailable) as caught:
            await world.registry.enqueue_many(requests, actor="user:ana")

        assert caught.value.applied == "unknown"
        assert await world.registry.counts() == {State.QUEUED: 1000}


async def test_a_bulk_that_breaks_at_once_says_that_nothing_landed(tmp_path: Path) -> None:
    async with open_world(breaking_store, tmp_path) as world:
        await world.enqueue("before")

        with pytest.raises(Unavailable) as caught:
            await world.registry.enqueue_many([JobRequest(spec=Spec())], actor="user:ana")

        assert caught.value.applied == "no"


async def test_a_nul_in_one_request_is_refused_and_its_neighbours_are_done(world: World) -> None:
    registry = world.registry
    calls = [registry.enqueue(JobRequest(spec=Spec()), actor=f"user:{n}") for n in ("a", "b\0", "c")]
    answers = await asyncio.gather(
        *calls,
        registry.claim(["default"], owner="w-1", region="eu\0"),
        registry.claim(["default"], owner="w-1", kinds=["echo\0"]),
        registry.claim(["default"], owner="w-1", executor="slurm\0"),
        return_exceptions=True,
    )
    refused = [isinstance(answer, Invalid) for answer in answers]
    assert refused == [False, True, False, True, True, True]
    assert sum((await registry.counts()).values()) == 2


async def test_many_large_jobs_go_in_commits_of_a_bounded_size(tmp_path: Path) -> None:
    async with open_world(STORES["memory"], tmp_path) as world:
        sizes: list[int] = []
        transact = world.store.transact

        async def noted(works: Sequence[Work]) -> list[list[Decision]]:
            sizes.append(len(works))
            return await transact(works)

        world.store.transact = noted  # type: ignore[method-assign]
        large = msgspec.Raw(b'"' + b"x" * (PAYLOAD_BYTES_MAX - 2) + b'"')
        requests = [JobRequest(spec=Spec(payload=large))] * 150
        await world.registry.enqueue_many(requests, actor="user:ana")
        assert sizes == [64, 64, 22]  # 16 MiB each
        assert await world.registry.enqueue_many([], actor="user:ana") == []


async def test_writes_are_answered_where_tasks_begin_at_once() -> None:
    """As Python 3.12 can begin them."""
    eager = getattr(asyncio, "eager_task_factory", None)
    asyncio.get_running_loop().set_task_factory(eager)
    registry = await open_registry("memory://")

    for n in range(3):
        request = JobRequest(spec=Spec(), job_id=f"job-{n}")
        await asyncio.wait_for(registry.enqueue(request, actor="user:ana"), 20)

    await registry.close()
