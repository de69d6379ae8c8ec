"""Who judges, when several look, somebody writes late, or what is looked for is elsewhere."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.core.errors import Unavailable
from holdfast.core.state import State
from holdfast.outputs import managed
from holdfast.outputs.results import ResultAuthor
from holdfast.testing.fakes import ManualClock
from tests.outputs.outputs_world import MACHINE, MATRIX, OutputsWorld, open_place

pytestmark = pytest.mark.parametrize("world", MATRIX, ids="-".join, indirect=True)


async def test_an_override_while_somebody_looks_stands(world: OutputsWorld) -> None:
    tasks = world.tasks(sets=1)
    job = await world.done(tasks, tasks[:1])

    async def overridden() -> None:
        await world.registry.complete_validation(
            "job-1", actor="user:ops", override=State.FAILED, reason="a wrong model"
        )

    world.outputs.meanwhile = overridden
    judged = await world.validator().validate(job)

    assert judged.state is State.FAILED
    assert judged.reason == "a wrong model"
    assert (await world.registry.history("job-1"))[-1].actor == "user:ops"


async def test_two_validators_at_once_give_one_verdict(world: OutputsWorld) -> None:
    tasks = world.tasks()
    job = await world.done(tasks, tasks[:3])

    states = await asyncio.gather(*(world.validator(f"v-{n}").validate(job) for n in range(4)))

    assert {one.state for one in states} <= {State.VALIDATING, State.PARTIAL_SUCCESS}
    assert await world.verdicts() == ["job_partially_succeeded"]


async def test_a_verdict_that_comes_after_another_one_is_dropped(world: OutputsWorld) -> None:
    tasks = world.tasks()
    job = await world.done(tasks, tasks[:3])

    async def faster() -> None:
        world.clock.advance(61)
        await world.write(ResultAuthor("job-1", 1), tasks[3:])
        await world.validator("v-2").validate(await world.registry.status("job-1"))

    world.outputs.meanwhile = faster
    judged = await world.validator("v-1", clock=ManualClock()).validate(job)

    assert judged.state is State.SUCCEEDED
    assert await world.verdicts() == ["job_succeeded"]
    assert (await world.registry.history("job-1"))[-1].actor == "validator:v-2"


async def test_older_findings_never_replace_newer_ones(world: OutputsWorld) -> None:
    tasks = world.tasks()
    job = await world.done(tasks, tasks[:3])
    asked: list[int] = []
    real = world.outputs.check_available

    async def verify() -> None:
        await real()
        asked.append(1)
        if len(asked) == 2:  # all is looked at, and nothing judged yet
            world.clock.advance(61)
            await world.write(ResultAuthor("job-1", 1), tasks[3:6])
            await world.validator("v-2").validate(await world.registry.status("job-1"))

    world.outputs.check_available = verify  # type: ignore[method-assign]
    judged = await world.validator("v-1", clock=ManualClock()).validate(job)

    assert judged.found is not None
    assert (judged.found.verified, judged.found.missing) == (6, 2)
    assert await world.verdicts() == ["job_partially_succeeded"]


async def test_a_job_that_was_judged_since_is_not_looked_at_again(world: OutputsWorld) -> None:
    tasks = world.tasks()
    job = await world.done(tasks, tasks[:3])
    partial = await world.validator("v-1").validate(job)
    heard: list[int] = []

    again = await world.validator("v-2").validate(job, progress=lambda done, _: heard.append(done))

    assert (again, heard) == (partial, [])


async def test_a_validator_that_is_stopped_judges_nothing_and_is_no_try(
    world: OutputsWorld,
) -> None:
    tasks = world.tasks(sets=1)
    job = await world.done(tasks, tasks)
    reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def hang() -> None:
        reached.set_result(None)
        await asyncio.Event().wait()

    world.outputs.meanwhile = hang
    looking = asyncio.create_task(world.validator("v-1").validate(job))
    await reached
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking

    left = await world.registry.status("job-1")
    assert left.state is State.VALIDATING
    assert left.check is not None
    assert (left.check.by, left.check.tries) == ("validator:v-1", 0)
    world.clock.advance(59)
    assert await world.validator("v-2").sweep() == 0
    world.clock.advance(2)
    assert await world.validator("v-2").sweep() == 1
    assert (await world.registry.status("job-1")).state is State.SUCCEEDED


async def test_a_store_that_goes_away_in_the_middle_gives_no_verdict(world: OutputsWorld) -> None:
    tasks = world.tasks()
    job = await world.done(tasks, tasks)

    async def gone() -> None:
        world.outputs.down = "connection reset"

    world.outputs.meanwhile = gone
    judged = await world.validator().validate(job)

    assert judged.state is State.VALIDATING
    assert judged.check is not None
    assert judged.check.reason == "connection reset"


async def test_what_a_zombie_wrote_never_counts(world: OutputsWorld, tmp_path: Path) -> None:
    zombie = await world.start(world.promise_of(names=("model.pt",)))
    (tmp_path / "theirs").write_bytes(b"stale")
    (tmp_path / "ours").write_bytes(b"fresh")
    await world.world.lapse()
    world.clock.advance(timedelta(hours=1).total_seconds())
    owner = await world.registry.acquire("job-1", owner="worker-8")
    await managed.commit(world.outputs, "job-1", zombie.fencing_token, "model.pt", tmp_path / "theirs")
    job = await world.finish(owner)

    nothing = await world.validator().validate(job)

    assert nothing.state is State.FAILED

    owner = await world.start(world.promise_of(names=("model.pt",)), "job-2")
    await managed.commit(world.outputs, "job-2", owner.fencing_token + 1, "model.pt", tmp_path / "theirs")
    await managed.commit(world.outputs, "job-2", owner.fencing_token, "model.pt", tmp_path / "ours")
    judged = await world.validator().validate(await world.finish(owner))

    assert judged.state is State.SUCCEEDED
    [output] = (await world.inspector().list_outputs("job-2")).outputs
    assert output.size == len(b"fresh")
    assert f"/{owner.fencing_token}/" in (output.path or "")


async def test_plain_files_are_judged_on_the_machine_they_are_on(world: OutputsWorld) -> None:
    grant = await world.start(world.files("model.pt", "run/*.csv"))
    job = await world.finish(grant, where=f"elsewhere:{world.folder}")
    (world.folder / "model.pt").write_bytes(b"weights")

    for machine in (MACHINE, None):
        validator = world.validator(machine=machine)
        assert "elsewhere" in (validator.unreachable_reason(job) or "")
        assert await validator.validate(job) == job
    judged = await world.validator(machine="elsewhere").validate(job)

    assert judged.state is State.PARTIAL_SUCCESS
    page = await world.inspector().list_outputs("job-1")
    assert [output.missing for output in page.outputs] == [None, "nothing matches"]
    assert page.outputs[0].size == len(b"weights")


async def test_a_folder_that_is_gone_is_not_a_missing_output(world: OutputsWorld) -> None:
    grant = await world.start(world.files("model.pt"))
    job = await world.finish(grant, where=f"{MACHINE}:{world.folder / 'mnt'}")

    judged = await world.validator().validate(job)

    assert judged.state is State.VALIDATING
    assert judged.check is not None
    assert "is it mounted?" in (judged.check.reason or "")


async def test_another_output_store_is_never_searched(world: OutputsWorld, tmp_path: Path) -> None:
    tasks = world.tasks(sets=1)
    other = await open_place("directory", tmp_path / "second")
    promise = replace(await world.promise(tasks), store=other.store_id, place=None)
    job = await world.finish(await world.start(promise))

    judged = await world.validator().validate(job)

    assert judged == job
    with pytest.raises(Unavailable, match="output store"):
        await world.inspector().list_outputs("job-1")
    await other.close()
