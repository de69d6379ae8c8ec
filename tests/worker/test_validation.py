"""How a worker validates outputs: of its own jobs at once and again when due, of others in sweeps."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.core.errors import Denied, Unavailable
from holdfast.core.job import Failure, Job
from holdfast.core.outputs import OWNER_GRACE
from holdfast.core.state import State
from holdfast.outputs.validation import SWEEP_SECONDS
from holdfast.ports import JobFilter, JobPage
from holdfast.system import SystemClock
from holdfast.testing.fakes import CountingIds
from holdfast.worker import validation
from holdfast.worker.claims import WorkerSettings
from holdfast.worker.spool import MemorySpool
from holdfast.worker.worker import Worker
from tests.outputs.outputs_world import OutputsWorld, open_outputs_world
from tests.worker.live_processes import PATIENCE_SECONDS
from tests.worker.validation_side import Side, idle, state, tries, until


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[OutputsWorld]:
    async with open_outputs_world("memory", "directory", tmp_path) as world:
        yield world


async def test_a_job_of_ours_is_judged_at_once_and_reported_once(world: OutputsWorld) -> None:
    side, tasks = Side(world), world.tasks()
    side.validating.add(await world.done(tasks, tasks[:5]), 1.5)
    await side.validating.wait_until_validated()

    assert await state(world) is State.PARTIAL_SUCCESS
    assert side.report.said == [("job-1", State.PARTIAL_SUCCESS)]
    assert side.report.troubles == []
    await side.validating.close()


async def test_outputs_that_cannot_be_seen_are_looked_for_after_10_and_20_seconds_and_then_by_sweeps(
    world: OutputsWorld,
) -> None:
    side, tasks = Side(world), world.tasks()
    job = await world.done(tasks, tasks)
    world.outputs.down = "the bucket does not answer"
    side.validating.add(job, 1.5)
    await side.validating.wait_until_validated()  # it waits for one scan in vain, not for more

    assert await tries(world) == 1
    await side.pass_time(9.9)
    assert await tries(world) == 1
    await side.pass_time(0.2)
    await until(lambda: looked(world, 2))
    await side.pass_time(19.9)
    assert (await tries(world), side.report.said) == (2, [])
    await side.pass_time(0.2)
    await until(lambda: looked(world, 3))
    await side.pass_time(3600)
    assert await tries(world) == 3
    assert side.report.said == [("job-1", State.VALIDATING)]
    words = "the outputs of job-1 cannot be seen: the bucket does not answer"
    assert side.report.troubles == [words]
    check = (await world.registry.status("job-1")).check
    assert check is not None
    assert check.reason == "the bucket does not answer"
    await side.validating.close()


async def looked(world: OutputsWorld, times: int) -> bool:
    return await tries(world) >= times


async def test_a_store_that_comes_back_gives_the_verdict_at_the_next_try(
    world: OutputsWorld,
) -> None:
    side, tasks = Side(world), world.tasks()
    job = await world.done(tasks, tasks)
    side.store.broken = "the bucket cannot be opened"
    side.validating.add(job, 1.5)
    await side.validating.wait_until_validated()
    check = (await world.registry.status("job-1")).check
    assert check is not None
    assert (check.tries, check.reason) == (1, "the bucket cannot be opened")

    side.store.broken = None
    await side.pass_time(10.1)
    await until(lambda: judged(world))
    assert await state(world) is State.SUCCEEDED
    await side.validating.close()
    assert side.report.said == [("job-1", State.SUCCEEDED)]


async def test_a_worker_that_leaves_before_the_verdict_reports_the_job_as_it_is(
    world: OutputsWorld,
) -> None:
    side, tasks = Side(world), world.tasks()
    job = await world.done(tasks, tasks)
    world.outputs.down = "the bucket does not answer"
    side.validating.add(job, 1.5)
    await side.validating.wait_until_validated()
    await idle()
    await side.validating.close()

    assert side.report.said == [("job-1", State.VALIDATING)]


async def judged(world: OutputsWorld, job_id: str = "job-1") -> bool:
    return await state(world, job_id) is not State.VALIDATING


async def test_what_a_dead_worker_has_left_is_judged_by_whoever_sweeps(world: OutputsWorld) -> None:
    tasks = world.tasks()
    await world.done(tasks, tasks)
    side = Side(world)
    sweeping = asyncio.create_task(side.validating.sweep())
    await side.pass_time(SWEEP_SECONDS * 1.3)
    await until(lambda: judged(world))

    assert OWNER_GRACE.total_seconds() < SWEEP_SECONDS * 0.7, "whoever ran it looks first"
    assert await state(world) is State.SUCCEEDED
    assert side.report.said == []
    sweeping.cancel()
    await side.validating.close()


async def test_a_sweep_that_finds_nothing_opens_no_output_store(world: OutputsWorld) -> None:
    side = Side(world)
    await world.world.enqueue("plain")
    sweeping = asyncio.create_task(side.validating.sweep())
    for _ in range(3):
        await side.pass_time(SWEEP_SECONDS * 1.3)

    assert (side.store.asked, side.report.troubles) == (0, [])
    sweeping.cancel()


async def test_a_sweep_that_fails_is_told_and_the_next_one_comes(
    world: OutputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    side, tasks = Side(world), world.tasks()
    await world.done(tasks, tasks)
    list_jobs, fail = world.registry.list_jobs, [Unavailable("no"), ValueError("a fault")]

    async def failing(*which: JobFilter, **more: object) -> JobPage:
        if fail:
            raise fail.pop(0)
        return await list_jobs(*which, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(world.registry, "list_jobs", failing)
    sweeping = asyncio.create_task(side.validating.sweep())
    for _ in range(3):
        await side.pass_time(SWEEP_SECONDS * 1.3)
    await until(lambda: judged(world))

    assert side.report.troubles == [
        "outputs could not be validated: no",
        "outputs could not be validated: a fault",
    ]
    sweeping.cancel()
    await side.validating.close()


async def test_a_worker_that_may_not_look_at_others_jobs_says_so_once(
    world: OutputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = Side(world)

    async def denied(*which: JobFilter, **more: object) -> JobPage:
        raise Denied("this key may not read")

    monkeypatch.setattr(world.registry, "list_jobs", denied)
    sweeping = asyncio.create_task(side.validating.sweep())
    for _ in range(3):
        await side.pass_time(SWEEP_SECONDS * 1.3)

    assert sweeping.done()
    [said] = side.report.troubles
    assert "this key may not read" in said


async def test_two_workers_that_look_at_one_job_give_one_verdict(world: OutputsWorld) -> None:
    first, second, tasks = Side(world), Side(world, "w-2"), world.tasks()
    job = await world.done(tasks, tasks)
    for side in (first, second):
        side.validating.add(job, 1.5)
    await first.validating.wait_until_validated()
    await second.validating.wait_until_validated()
    await until(lambda: judged(world))

    assert await world.verdicts() == ["job_succeeded"]
    assert first.report.troubles == second.report.troubles == []
    await first.validating.close()
    await second.validating.close()


async def test_a_registry_that_is_away_leaves_the_job_to_a_later_sweep(
    world: OutputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    side, tasks = Side(world), world.tasks()
    job = await world.done(tasks, tasks)

    async def away(*asked: object, **more: object) -> Job:
        raise Unavailable("the registry is away")

    with monkeypatch.context() as patched:
        patched.setattr(world.registry, "report_validation", away)
        side.validating.add(job, 1.5)
        await side.validating.wait_until_validated()
    assert side.report.troubles == ["the registry is away"]
    assert side.report.said == [("job-1", State.VALIDATING)]

    sweeping = asyncio.create_task(side.validating.sweep())
    await side.pass_time(SWEEP_SECONDS * 1.3)
    await until(lambda: judged(world))
    sweeping.cancel()
    await side.validating.close()


async def test_more_jobs_than_can_be_looked_at_are_left_to_a_sweep(
    world: OutputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "OWN_MAX", 2)

    side, tasks = Side(world), world.tasks(1, 1)
    jobs = [await world.done(tasks, tasks, f"job-{n}") for n in range(3)]
    for job in jobs:
        side.validating.add(job, 1.5)
    assert side.report.said == [("job-2", State.VALIDATING)]
    await side.validating.wait_until_validated()

    assert [await state(world, job.job_id) for job in jobs] == [
        State.SUCCEEDED,
        State.SUCCEEDED,
        State.VALIDATING,
    ]
    await side.validating.close()


async def test_a_worker_that_is_told_to_leave_does_not_wait_long_for_what_others_can_do(
    world: OutputsWorld,
) -> None:
    side, tasks = Side(world), world.tasks()
    hung = asyncio.Event()

    async def hang() -> None:
        hung.set()
        await asyncio.Event().wait()

    world.outputs.meanwhile = hang
    side.validating.add(await world.done(tasks, tasks), 1.5)
    worker = Worker(
        world.registry,
        WorkerSettings(owner="w-1", drain=True, leave_seconds=0.1),
        side.report,  # type: ignore[arg-type]
        clock=SystemClock(),
        ids=CountingIds(),
        executors=[],
        spool=MemorySpool(),
        validation=side.validating,
    )
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await hung.wait()
    await idle()
    assert not running.done(), "it drains, and its own job is not judged"

    worker.leave()

    async with asyncio.timeout(PATIENCE_SECONDS):
        await running
    assert await state(world) is State.VALIDATING
    assert side.report.said == [("job-1", State.VALIDATING)]


async def test_a_job_of_ours_that_failed_is_looked_at_at_once_and_reported_with_what_it_left(
    world: OutputsWorld,
) -> None:
    side, tasks = Side(world), world.tasks()
    grant = await world.start(await world.promise(tasks))
    await world.write(grant, tasks[:5])
    failed = await world.registry.complete(grant, Failure(message="x", retryable=False))

    side.validating.add(failed, 1.5)
    await side.validating.wait_until_validated()

    job = await world.registry.status("job-1")
    assert (job.state, job.missing_outputs) == (State.FAILED, 3)
    assert side.report.said == [("job-1", State.FAILED)]
    await side.validating.close()


async def test_the_output_store_is_opened_for_what_ended_without_success_and_else_stays_closed(
    world: OutputsWorld,
) -> None:
    side = Side(world)
    await side.validating._sweep()
    assert side.store.asked == 0
    grant = await world.start(await world.promise(world.tasks()))
    await world.registry.complete(grant, Failure(message="x", retryable=False))
    world.clock.advance(15)

    await side.validating._sweep()

    assert side.store.asked > 0
    assert (await world.registry.status("job-1")).missing_outputs == 8
    await side.validating.close()


async def test_a_sweep_reads_no_listing_of_jobs_while_the_counts_say_that_none_waits(
    world: OutputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = Side(world)
    await side.validating._sweep()  # the first one also looks at the newest jobs
    listings: list[JobFilter] = []
    real = world.registry.list_jobs

    async def listed(which: JobFilter = ALL_JOBS, **more: object) -> JobPage:
        listings.append(which)
        return await real(which, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(world.registry, "list_jobs", listed)
    await world.promise(world.tasks())

    await side.validating._sweep()
    assert listings == []

    tasks = world.tasks()
    await world.done(tasks, tasks, "job-2")
    await side.validating._sweep()
    assert {state for which in listings for state in which.states} == {State.VALIDATING}
    await side.validating.close()


ALL_JOBS = JobFilter()
