"""The files of a family of jobs, on one machine and on several."""

import os

from holdfast.core.state import State
from holdfast.outputs.validator import Validator
from tests.outputs.outputs_world import MACHINE, OutputsWorld


async def test_the_files_of_a_resuming_job_count_for_the_original_wherever_it_ran(
    world: OutputsWorld,
) -> None:
    (world.folder / "first").mkdir()
    (world.folder / "second").mkdir()
    (world.folder / "first/a").write_bytes(b"a")
    (world.folder / "second/b").write_bytes(b"b")
    grant = await world.start(world.files("a", "b"))
    job = await world.finish(grant, where=f"{MACHINE}:{world.folder}/first")
    await world.validator().validate(job)
    resumed = (await world.inspector().resume("job-1", actor="user:ana")).job
    assert resumed is not None
    assert resumed.spec.outputs is not None
    assert [file.path for file in resumed.spec.outputs.files] == ["b"]

    grant = await world.registry.acquire(resumed.job_id, owner="worker-8")
    await world.validator().validate(await world.finish(grant, where=f"{MACHINE}:{world.folder}/second"))

    assert (await world.registry.status("job-1")).state is State.SUCCEEDED


async def test_a_file_that_may_be_on_another_machine_is_not_missing(world: OutputsWorld) -> None:
    (world.folder / "a").write_bytes(b"a")
    await world.validator().validate(await world.finish(await world.start(world.files("a", "b"))))
    resumed = (await world.inspector().resume("job-1", actor="user:ana")).job
    assert resumed is not None
    grant = await world.registry.acquire(resumed.job_id, owner="worker-8")
    (world.folder / "home").mkdir()
    (world.folder / "home/b").write_bytes(b"of another machine's name, and not of that machine")
    await world.finish(grant, where=f"elsewhere:{world.folder}/home")

    judged = await world.inspector().validate("job-1", actor="user:ana", force=True)

    assert judged.state is State.PARTIAL_SUCCESS
    assert judged.check is not None
    assert "elsewhere:" in (judged.check.reason or "")


async def test_a_short_command_that_never_gave_a_sign_of_life_made_its_files(
    world: OutputsWorld,
) -> None:
    grant = await world.start(world.files("a"))
    (world.folder / "a").write_bytes(b"a")
    world.clock.advance(5)
    os.utime(world.folder / "a", (world.clock.now().timestamp(),) * 2)
    world.clock.advance(3600)
    job = await world.finish(await world.registry.acquire("job-1", owner="worker-8"))

    judged = await world.validator().validate(job)

    assert job.started_at is not None
    assert job.started_at > grant.job.created_at
    assert judged.found is not None
    assert (judged.found.verified, judged.found.reused) == (1, 0)


async def test_a_worker_looks_only_at_the_files_of_its_own_queues(world: OutputsWorld) -> None:
    (world.folder / "a").write_bytes(b"a")
    job = await world.finish(await world.start(world.files("a")))
    stranger, own = (
        Validator(world.registry, None, machine=MACHINE, name=name, queues=queues)
        for name, queues in (("stranger", ("mail",)), ("own", ("mail", "default")))
    )

    assert "queue default" in (stranger.unreachable_reason(job) or "")
    assert (await stranger.validate(job)).state is State.VALIDATING
    assert (await own.validate(job)).state is State.SUCCEEDED
