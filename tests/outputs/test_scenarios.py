"""The scenarios 29 to 32: a study, what it lacks, what is made again, and what is reused."""

from pathlib import Path

import pytest

from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.outputs import managed
from holdfast.outputs.results import ResultAuthor
from holdfast.ports import JobFilter, JobRequest
from tests.outputs.outputs_world import MATRIX, OutputsWorld

pytestmark = pytest.mark.parametrize("world", MATRIX, ids="-".join, indirect=True)


async def test_scenario_29_a_study_of_2_x_3_with_a_target_succeeds_when_all_8_outputs_are_there(
    world: OutputsWorld,
) -> None:
    tasks = world.tasks()
    job = await world.done(tasks, tasks)

    judged = await world.validator().validate(job)

    kinds = [task.kind for task in tasks]
    assert (kinds.count("simulation"), kinds.count("aggregation")) == (6, 2)
    assert job.state is State.VALIDATING
    assert judged.state is State.SUCCEEDED
    assert judged.found is not None
    assert (judged.found.verified, judged.found.missing, judged.found.reused) == (8, 0, 0)


async def test_scenario_30_what_was_deleted_or_damaged_is_named_made_again_and_then_counts(
    world: OutputsWorld,
) -> None:
    tasks = world.tasks()
    job = await world.done(tasks, tasks)
    await world.lose(tasks[1])
    await world.lose(tasks[6])
    await world.flip(tasks[4])
    lost = [tasks[n] for n in (1, 4, 6)]

    partial = await world.validator().validate(job)

    assert partial.state is State.PARTIAL_SUCCESS
    assert partial.found is not None
    assert (partial.found.verified, partial.found.missing) == (5, 3)
    assert partial.found.names == tuple(task.name for task in lost)
    inspector = world.inspector()
    page = await inspector.list_outputs(job.job_id, missing=True)
    assert [output.name for output in page.outputs] == [task.name for task in lost]
    assert "checksum" in (page.outputs[1].missing or "")

    plan = await inspector.resume(job.job_id, actor="user:ana", dry_run=True)

    assert (plan.missing, plan.names, plan.job) == (3, partial.found.names, None)
    assert len((await world.registry.list_jobs(JobFilter())).jobs) == 1

    resumed = (await inspector.resume(job.job_id, actor="user:ana")).job

    assert resumed is not None
    assert resumed.job_id.startswith("job-1-resume-")
    assert resumed.spec.resumed_from == "job-1"
    assert resumed.spec.outputs is not None
    assert resumed.spec.outputs.resume_attempt == 1
    assert resumed.spec.outputs.original_total == 8
    assert await world.promised(resumed) == lost

    ended = await world.validator().validate(await world.run_resumed(resumed))

    assert ended.state is State.SUCCEEDED
    original = await inspector.validate("job-1", actor="user:ana", force=True)
    assert original.state is State.SUCCEEDED
    assert original.found is not None
    assert (original.found.verified, original.found.reused) == (8, 0)


async def test_the_original_is_judged_again_when_the_job_that_resumes_it_is(
    world: OutputsWorld,
) -> None:
    tasks = world.tasks(sets=1)
    await world.validator().validate(await world.done(tasks, tasks[:2]))
    inspector = world.inspector()
    first = (await inspector.resume("job-1", actor="user:ana")).job
    assert first is not None
    grant = await world.registry.acquire(first.job_id, owner="worker-8")
    await world.write(grant, tasks[2:3])
    await world.validator().validate(await world.finish(grant))
    second = (await inspector.resume(first.job_id, actor="user:ana")).job
    assert second is not None

    await world.validator().validate(await world.run_resumed(second))

    states = [(await world.registry.status(one)).state for one in ("job-1", first.job_id)]
    assert states == [State.SUCCEEDED, State.SUCCEEDED]
    assert await world.promised(second) == tasks[3:]
    assert await world.verdicts() == [
        "job_partially_succeeded",
        "job_outputs_verified",
        "job_succeeded",
    ]


async def test_scenario_31_and_r0_106_no_outputs_at_all_is_a_failure(world: OutputsWorld) -> None:
    job = await world.done(world.tasks(), [])

    judged = await world.validator().validate(job)

    assert judged.state is State.FAILED
    assert judged.error is not None
    assert judged.error.code == "NO_OUTPUTS"
    planned = await world.inspector().resume("job-1", actor="user:ana", dry_run=True)
    assert planned.missing == 8


async def test_scenario_31_and_r0_108_an_output_store_that_is_down_leaves_the_job_undecided(
    world: OutputsWorld,
) -> None:
    tasks = world.tasks(sets=1)
    job = await world.done(tasks, tasks)
    validator = world.validator()
    world.outputs.down = "the bucket does not answer"
    start = world.clock.now()
    tried: list[float] = []
    swept = 0

    await validator.validate(job)
    for _ in range(120):
        now = await world.registry.status("job-1")
        if now.check is not None and now.check.tries > len(tried):
            tried.append((world.clock.now() - start).total_seconds())
        world.clock.advance(1)
        swept += await validator.sweep()

    assert tried == [0, 10, 30, 90]
    job = await world.registry.status("job-1")
    assert job.state is State.VALIDATING
    assert job.check is not None
    assert job.check.reason == "the bucket does not answer"
    assert "the bucket does not answer" in await world.registry.why("job-1")
    assert (swept, job.check.tries) == (3, 4)

    world.outputs.down = None
    world.clock.advance(15 * 60)
    await validator.sweep()

    assert (await world.registry.status("job-1")).state is State.SUCCEEDED


async def test_scenario_31_an_operator_decides_what_nobody_can_see(world: OutputsWorld) -> None:
    job = await world.done(world.tasks(sets=1), [])
    world.outputs.down = "the bucket was deleted"
    await world.validator().validate(job)

    ended = await world.registry.complete_validation(
        "job-1", actor="user:ops", override=State.SUCCEEDED, reason="restored from tape"
    )

    assert ended.state is State.SUCCEEDED
    assert ended.reason == "restored from tape"


async def test_scenario_32_the_same_study_again_runs_nothing(world: OutputsWorld) -> None:
    tasks = world.tasks()
    await world.validator().validate(await world.done(tasks, tasks))
    inspector = world.inspector()
    request = JobRequest(spec=Spec(outputs=await world.promise(tasks)))

    job = await inspector.submit(request, actor="user:ana")

    assert job.job_id.startswith("cached-")
    assert job.state is State.SUCCEEDED
    assert job.found is not None
    assert (job.found.verified, job.found.reused) == (8, 8)
    assert (await world.registry.status(job.job_id)).result == {"cached": True}
    page = await inspector.list_outputs(job.job_id)
    assert [output.name for output in page.outputs] == [task.name for task in tasks]
    assert all(output.reused for output in page.outputs)
    assert not await world.registry.claim(["default"], owner="worker-9")


async def test_a_study_of_which_something_is_missing_is_run(world: OutputsWorld) -> None:
    tasks = world.tasks()
    await world.validator().validate(await world.done(tasks, tasks))
    await world.lose(tasks[-1])
    request = JobRequest(spec=Spec(outputs=await world.promise(tasks)))

    job = await world.inspector().submit(request, actor="user:ana")

    assert job.state is State.QUEUED
    reports = [path async for path, _ in world.outputs.list("reports/cached-" + job.job_id)]
    assert reports == []


async def test_what_a_job_found_is_told_apart_from_what_it_made(world: OutputsWorld) -> None:
    tasks = world.tasks(sets=1)
    await world.write(ResultAuthor("another-job", 1), tasks[:3])
    job = await world.done(tasks, tasks)

    judged = await world.validator().validate(job)

    assert judged.found is not None
    assert (judged.found.verified, judged.found.reused) == (4, 3)
    page = await world.inspector().list_outputs("job-1")
    assert [output.reused for output in page.outputs] == [True, True, True, False]


async def test_what_a_resuming_job_wrote_counts_for_the_original(world: OutputsWorld, tmp_path: Path) -> None:
    source = tmp_path / "any"
    source.write_bytes(b"x")
    owner = await world.start(world.promise_of(names=("a.csv", "b.csv")))
    await managed.commit(world.outputs, "job-1", owner.fencing_token, "a.csv", source)
    await world.validator().validate(await world.finish(owner))

    made = await world.inspector().resume("job-1", actor="user:ana")

    assert made.job is not None
    assert made.job.spec.outputs is not None
    assert made.job.spec.outputs.names == ("a.csv", "b.csv")
    first = await world.registry.acquire(made.job.job_id, owner="worker-8")
    for name in ("a.csv", "b.csv"):
        await managed.commit(world.outputs, first.job_id, first.fencing_token, name, source)
    undone = await world.inspector().validate("job-1", actor="user:ana", force=True)
    await world.validator().validate(await world.finish(first))

    assert undone.state is State.PARTIAL_SUCCESS
    assert (await world.registry.status("job-1")).state is State.SUCCEEDED
