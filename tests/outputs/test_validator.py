"""The validator: what it can see, what it says meanwhile, and when it says nothing."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from holdfast.core.errors import NotFound, Unavailable
from holdfast.core.job import Job
from holdfast.core.outputs import ValidationProgress
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.outputs import scan, validator
from holdfast.outputs.validator import Validator
from tests.outputs.outputs_world import MACHINE, OutputsWorld


async def until(condition: Callable[[], bool]) -> None:
    """Let the others go on until it is so."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  # what changes is not ours
            await asyncio.sleep(0.001)


async def test_a_job_whose_outputs_only_its_caller_knows_is_left_to_them(
    world: OutputsWorld,
) -> None:
    await world.world.enqueue("job-1", spec=Spec(promised_outputs=2))
    grant = await world.registry.acquire("job-1", owner="worker-7")
    job = await world.finish(grant)
    world.clock.advance(3600)

    assert "client that submitted" in (world.validator().unreachable_reason(job) or "")
    assert await world.validator().sweep() == 0
    assert await world.registry.status("job-1") == job


async def test_it_is_blind_to_another_output_store_and_without_one(world: OutputsWorld) -> None:
    promise = world.promise_of(names=("model.pt",))
    job = await world.finish(await world.start(promise))
    other = replace(job, spec=replace(job.spec, outputs=replace(promise, store="another")))
    without = Validator(world.registry, None, machine=MACHINE, name="v-1")

    assert world.validator().unreachable_reason(job) is None
    assert "another" in (world.validator().unreachable_reason(other) or "")
    assert world.outputs.store_id in (without.unreachable_reason(job) or "")
    assert await without.validate(job) == job


async def test_files_need_the_machine_and_nothing_else(world: OutputsWorld) -> None:
    (world.folder / "a").write_bytes(b"a")
    job = await world.finish(await world.start(world.files("a")))
    nowhere = replace(job, check=ValidationProgress())
    without_store = Validator(world.registry, None, machine=MACHINE, name="v-1")

    assert "not on record" in (without_store.unreachable_reason(nowhere) or "")
    assert (await without_store.validate(job)).state is State.SUCCEEDED


async def test_whoever_looks_says_how_far_it_is(world: OutputsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "BATCH_TASKS", 2)
    monkeypatch.setattr(scan, "BATCHES_AHEAD", 1)
    tasks = world.tasks()
    job = await world.done(tasks, tasks)
    heard: list[tuple[int, int]] = []
    seen: list[ValidationProgress | None] = []

    async def sign() -> None:
        world.clock.advance(validator.PROGRESS_SECONDS)
        before = (await world.registry.status("job-1")).check
        for _ in range(200):
            await asyncio.sleep(0.001)
            check = (await world.registry.status("job-1")).check
            if check != before:
                break
        seen.append(check)

    def progress(done: int, total: int) -> None:
        heard.append((done, total))
        if done == 4:
            world.outputs.meanwhile = sign

    await world.validator().validate(job, progress=progress)

    assert heard == [(2, 8), (4, 8), (6, 8), (8, 8)]
    [check] = seen
    assert check is not None
    assert (check.by, check.done, check.total) == ("validator:v-1", 4, 8)
    assert check.until is not None
    assert check.until > world.clock.now()


async def test_a_validation_that_takes_long_keeps_the_others_away(world: OutputsWorld) -> None:
    tasks = world.tasks(sets=1)
    job = await world.done(tasks, tasks)
    go_on = asyncio.Event()
    world.outputs.meanwhile = go_on.wait  # type: ignore[assignment]
    looking = asyncio.create_task(world.validator("slow").validate(job))
    await until(lambda: world.outputs.meanwhile is None)

    for _ in range(70):
        world.clock.advance(2)
        await asyncio.sleep(0.002)
    others = await world.validator("other").sweep()
    go_on.set()

    assert others == 0
    assert (await looking).state is State.SUCCEEDED
    assert (await world.registry.history("job-1"))[-1].actor == "validator:slow"


async def test_whoever_was_silent_for_too_long_leaves_off(
    world: OutputsWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scan, "BATCH_TASKS", 1)
    monkeypatch.setattr(scan, "BATCHES_AHEAD", 1)
    tasks = world.tasks()
    job = await world.done(tasks, tasks)
    first = world.validator("v-1")
    heard: list[int] = []

    async def somebody_else() -> None:
        await world.registry.complete_validation(
            "job-1", actor="user:ops", override=State.FAILED, reason="known to be wrong"
        )
        world.clock.advance(validator.PROGRESS_SECONDS)
        for _ in range(100):
            await asyncio.sleep(0.001)

    world.outputs.meanwhile = somebody_else
    judged = await first.validate(job, progress=lambda done, _: heard.append(done))

    assert judged.state is State.FAILED
    assert heard == []
    assert "holdfast.outputs" not in {record.name for record in caplog.records}


async def test_a_registry_that_is_away_for_a_moment_does_not_end_a_validation(
    world: OutputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = world.tasks(sets=1)
    job = await world.done(tasks, tasks)
    real = world.registry.report_validation
    refused: list[int] = []

    async def away(*arguments: object, **more: object) -> Job:
        refused.append(1)
        raise Unavailable("the registry restarts")

    async def blip() -> None:
        monkeypatch.setattr(world.registry, "report_validation", away)
        world.clock.advance(validator.PROGRESS_SECONDS)
        await until(lambda: bool(refused))
        monkeypatch.setattr(world.registry, "report_validation", real)

    world.outputs.meanwhile = blip
    judged = await world.validator().validate(job)

    assert judged.state is State.SUCCEEDED


async def test_a_mistake_of_ours_is_logged_and_the_job_says_why_it_waits(
    world: OutputsWorld, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = world.tasks(sets=1)
    job = await world.done(tasks, tasks)

    async def wrong() -> None:
        raise ZeroDivisionError("division by zero")

    world.outputs.meanwhile = wrong
    judged = await world.validator().validate(job)

    assert judged.state is State.VALIDATING
    assert judged.check is not None
    assert judged.check.tries == 1
    assert judged.check.reason == "ZeroDivisionError: division by zero"
    [record] = [one for one in caplog.records if one.name == "holdfast.outputs"]
    assert record.exc_info is not None


async def test_a_disk_that_fails_is_trouble(world: OutputsWorld) -> None:
    job = await world.finish(await world.start(world.promise_of(names=("a",))))

    async def broken() -> None:
        raise OSError(5, "Input/output error")

    world.outputs.meanwhile = broken
    judged = await world.validator().validate(job)

    assert judged.state is State.VALIDATING
    assert judged.check is not None
    assert "Input/output error" in (judged.check.reason or "")


async def test_a_directory_that_is_unmounted_in_the_middle_gives_no_verdict(
    world: OutputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "BATCH_TASKS", 2)
    tasks = world.tasks()
    job = await world.done(tasks, tasks)
    root, away = world.folder / "outputs", world.folder / "away"

    def progress(done: int, _: int) -> None:
        if done == 4:
            root.rename(away)
            root.mkdir()

    judged = await world.validator().validate(job, progress=progress)

    assert judged.state is State.VALIDATING
    assert judged.check is not None
    assert "mounted" in (judged.check.reason or "")
    root.rmdir()
    away.rename(root)
    world.clock.advance(10)
    assert await world.validator().sweep() == 1
    assert (await world.registry.status("job-1")).state is State.SUCCEEDED


@pytest.mark.parametrize("asked", [1, 2])
async def test_a_store_that_is_another_one_before_or_after_gives_no_verdict(
    world: OutputsWorld, asked: int
) -> None:
    tasks = world.tasks(sets=1)
    job = await world.done(tasks, tasks[:2])
    times = iter(range(1, 9))

    async def verify() -> None:
        if next(times) == asked:
            raise Unavailable("another store is in its place")

    world.outputs.check_available = verify  # type: ignore[method-assign]
    judged = await world.validator().validate(job)

    assert judged.state is State.VALIDATING
    assert judged.check is not None
    assert judged.check.reason == "another store is in its place"


async def test_a_report_that_cannot_be_written_leaves_the_job_undecided(
    world: OutputsWorld,
) -> None:
    tasks = world.tasks(sets=1)
    job = await world.done(tasks, tasks)

    async def full(path: str, body: bytes) -> None:
        raise Unavailable("no space left on device")

    world.outputs.put = full  # type: ignore[method-assign]
    judged = await world.validator().validate(job)

    assert judged.state is State.VALIDATING
    assert judged.check is not None
    assert judged.check.reason == "no space left on device"


async def test_the_verdict_on_a_resuming_job_stands_though_the_original_is_gone(
    world: OutputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = world.tasks(sets=1)
    await world.validator().validate(await world.done(tasks, tasks[:1]))
    resumed = (await world.inspector().resume("job-1", actor="user:ana")).job
    assert resumed is not None
    job = await world.run_resumed(resumed)
    real = world.registry.status

    async def get(job_id: str) -> Job:
        if job_id == "job-1":
            raise NotFound("pruned")
        return await real(job_id)

    with monkeypatch.context() as patch:
        patch.setattr(world.registry, "status", get)
        judged = await world.validator().validate(job)

    assert judged.state is State.SUCCEEDED


async def test_jobs_that_resume_one_another_in_a_circle_are_each_looked_at_once(
    world: OutputsWorld,
) -> None:
    tasks = world.tasks(sets=1)
    promise = await world.promise(tasks)
    grants = []
    for job_id, other in (("job-1", "job-2"), ("job-2", "job-1")):
        await world.world.enqueue(job_id, spec=Spec(outputs=promise, resumed_from=other))
        grants.append(await world.registry.acquire(job_id, owner="worker-7"))
    await world.write(grants[0], tasks[:1])
    first, second = [await world.finish(grant) for grant in grants]

    judged = await world.validator().validate(first)
    again = await world.validator().validate(second)

    assert (judged.state, again.state) == (State.PARTIAL_SUCCESS, State.PARTIAL_SUCCESS)
