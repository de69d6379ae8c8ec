"""What may go wrong with outputs, row by row: R0.106 to R0.115."""

import pytest
from msgspec.structs import replace

from holdfast.core.errors import Conflict
from holdfast.core.outputs import ValidationResult
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.outputs.paths import BUNDLE_1
from holdfast.outputs.results import ResultAuthor, Results
from holdfast.ports import JobFilter, JobRequest
from tests.outputs.outputs_world import MATRIX, OutputsWorld

pytestmark = pytest.mark.parametrize("world", MATRIX, ids="-".join, indirect=True)


async def test_r0_108_validate_force_does_not_wait_for_the_next_try(world: OutputsWorld) -> None:
    tasks = world.tasks(sets=1)
    job = await world.done(tasks, tasks)
    world.outputs.down = "no route to host"
    await world.validator().validate(job)
    world.outputs.down = None
    inspector = world.inspector()

    waits = await inspector.validate("job-1", actor="user:ana")
    forced = await inspector.validate("job-1", actor="user:ana", force=True)

    assert waits.state is State.VALIDATING
    assert forced.state is State.SUCCEEDED
    last = (await world.registry.history("job-1"))[-1]
    assert last.actor == "validator:i-1 for user:ana"


async def test_r0_107_some_outputs_make_a_partial_success(world: OutputsWorld) -> None:
    tasks = world.tasks()
    job = await world.done(tasks, tasks[:3])

    judged = await world.validator().validate(job)

    assert judged.state is State.PARTIAL_SUCCESS
    assert judged.found is not None
    assert (judged.found.verified, judged.found.missing) == (3, 5)
    plan = await world.inspector().resume("job-1", actor="user:ana", dry_run=True)
    assert plan.missing == 5


async def test_r0_109_results_in_an_older_layout_are_found(world: OutputsWorld) -> None:
    tasks = world.tasks(sets=1)
    grant = await world.start(await world.promise(tasks))
    world.results = Results(world.outputs, BUNDLE_1)
    await world.write(grant, tasks)

    judged = await world.validator().validate(await world.finish(grant))

    assert judged.state is State.SUCCEEDED


async def test_r0_109_results_of_a_newer_format_are_not_seen_and_so_not_missing(
    world: OutputsWorld,
) -> None:
    tasks = world.tasks(sets=1)
    job = await world.done(tasks, tasks)
    marker = (await world.files_of(tasks[0]))[-1]
    await world.outputs.put(marker, b'{"format": 99, "results": []}')

    judged = await world.validator().validate(job)

    assert judged.state is State.VALIDATING
    assert judged.check is not None
    assert "newer holdfast" in (judged.check.reason or "")


async def test_r0_110_a_damaged_output_is_missing_until_it_is_made_again(
    world: OutputsWorld,
) -> None:
    tasks = world.tasks()
    job = await world.done(tasks, tasks)
    await world.flip(tasks[0])
    judged = await world.validator().validate(job)
    assert judged.state is State.PARTIAL_SUCCESS

    resumed = (await world.inspector().resume("job-1", actor="user:ana")).job
    assert resumed is not None
    await world.validator().validate(await world.run_resumed(resumed))

    assert (await world.registry.status("job-1")).state is State.SUCCEEDED


async def test_r0_111_an_output_that_comes_late_is_found_when_it_is_looked_for_again(
    world: OutputsWorld,
) -> None:
    tasks = world.tasks()
    validator = world.validator()
    await validator.validate(await world.done(tasks, tasks[:4]))
    late = ResultAuthor("job-1", 1)

    await world.write(late, tasks[4:6])
    assert await validator.sweep() == 0
    world.clock.advance(5 * 60)
    assert await validator.sweep() == 1
    fewer = await world.registry.status("job-1")
    await world.write(late, tasks[6:])
    world.clock.advance(24 * 60 * 60)
    assert await validator.sweep() == 1

    assert fewer.state is State.PARTIAL_SUCCESS
    assert fewer.found is not None
    assert (fewer.found.verified, fewer.found.missing) == (6, 2)
    assert (await world.registry.status("job-1")).state is State.SUCCEEDED
    assert await world.verdicts() == [
        "job_partially_succeeded",
        "job_outputs_verified",
        "job_succeeded",
    ]


async def test_looking_again_and_finding_the_same_writes_no_event(world: OutputsWorld) -> None:
    tasks = world.tasks()
    first = await world.validator().validate(await world.done(tasks, tasks[:4]))

    again = await world.inspector().validate("job-1", actor="user:ana", force=True)

    assert (again.version, again.found) == (first.version, first.found)
    assert await world.verdicts() == ["job_partially_succeeded"]


async def test_r0_114_a_request_that_was_made_before_is_answered_with_its_job(
    world: OutputsWorld,
) -> None:
    tasks = world.tasks(sets=1)
    request = JobRequest(spec=Spec(outputs=await world.promise(tasks)), request_id="study-7")
    inspector = world.inspector()

    first = await inspector.submit(request, actor="user:ana")
    grant = await world.registry.acquire(first.job_id, owner="worker-7")
    await world.write(grant, tasks)
    await world.validator().validate(await world.finish(grant))
    again = await inspector.submit(request, actor="user:ana")

    assert again.job_id == first.job_id
    assert again.state is State.SUCCEEDED
    assert len((await world.registry.list_jobs(JobFilter())).jobs) == 1


async def test_r0_114_so_is_one_that_was_answered_from_what_was_there(world: OutputsWorld) -> None:
    tasks = world.tasks(sets=1)
    await world.write(ResultAuthor("another-job", 1), tasks)
    request = JobRequest(spec=Spec(outputs=await world.promise(tasks)), job_id="study-7")
    inspector = world.inspector()

    first = await inspector.submit(request, actor="user:ana")
    await world.lose(tasks[0])
    again = await inspector.submit(request, actor="user:ana")

    assert first.job_id == again.job_id == "cached-study-7"
    other = replace(request, spec=replace(request.spec, name="another"))
    with pytest.raises(Conflict):
        await inspector.submit(other, actor="user:ana")


async def test_r0_115_a_write_that_was_cut_off_is_simply_missing(world: OutputsWorld) -> None:
    tasks = world.tasks(sets=1)
    job = await world.done(tasks, tasks)
    marker = (await world.files_of(tasks[2]))[-1]
    await world.outputs.delete(marker)

    judged = await world.validator().validate(job)

    assert judged.state is State.PARTIAL_SUCCESS
    [missing] = (await world.inspector().list_outputs("job-1", missing=True)).outputs
    assert (missing.name, missing.missing) == (tasks[2].name, "no result.json")


async def test_an_error_result_counts_as_missing(world: OutputsWorld) -> None:
    tasks = world.tasks(sets=1)
    grant = await world.start(await world.promise(tasks))
    await world.write(grant, tasks[1:])
    writer = ResultAuthor(grant.job_id, grant.fencing_token)
    await world.results.put(tasks[0], {}, writer=writer, error="the solver diverged")

    judged = await world.validator().validate(await world.finish(grant))

    assert judged.state is State.PARTIAL_SUCCESS
    [missing] = (await world.inspector().list_outputs("job-1", missing=True)).outputs
    assert "the solver diverged" in (missing.missing or "")


async def test_the_result_of_another_task_under_the_same_path_does_not_count(
    world: OutputsWorld,
) -> None:
    ours = world.tasks(sets=1, replicates=2, target=None)
    theirs = [replace(task, entrypoint="models.seir/lockdown") for task in ours]
    await world.write(ResultAuthor("another-job", 1), theirs[:1])
    job = await world.done(ours, ours[1:])

    judged = await world.validator().validate(job)

    assert world.results._schema.path(ours[0]) == world.results._schema.path(theirs[0])
    assert judged.state is State.PARTIAL_SUCCESS
    [missing] = (await world.inspector().list_outputs("job-1", missing=True)).outputs
    assert "another entrypoint" in (missing.missing or "")


async def test_a_damaged_manifest_is_trouble_and_no_verdict(world: OutputsWorld) -> None:
    tasks = world.tasks(sets=1)
    job = await world.done(tasks, tasks)
    assert job.spec.outputs is not None
    path = f"manifests/{job.spec.outputs.manifest}.jsonl"
    whole = await world.outputs.get(path)
    assert whole is not None
    halves = (whole[: whole.rindex(b"\n", 0, -1) + 1], whole.replace(b"0.0", b"0.5"), b"{}\n")

    for damaged in halves:
        await world.outputs.put(path, damaged)
        judged = await world.validator().validate(await world.registry.status("job-1"))

        assert judged.state is State.VALIDATING
        assert judged.check is not None
        assert "damaged" in (judged.check.reason or "")

    await world.outputs.delete(path)
    judged = await world.validator().validate(await world.registry.status("job-1"))
    assert judged.state is State.VALIDATING


async def test_the_counts_of_a_verdict_are_those_of_the_promise(world: OutputsWorld) -> None:
    promise = replace(await world.promise(world.tasks(sets=1)), entries=3)
    job = await world.finish(await world.start(promise))

    judged = await world.validator().validate(job)

    assert judged.state is State.VALIDATING
    assert judged.found is None or judged.found == ValidationResult()
    assert judged.check is not None
    assert "4" in (judged.check.reason or "")
