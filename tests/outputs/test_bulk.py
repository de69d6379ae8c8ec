"""Validating and resuming many jobs by one plan."""

from collections.abc import Sequence

import pytest

from holdfast.core.bulk import BulkEffect, BulkResult, BulkVerb, JobSelection
from holdfast.core.errors import Unavailable
from holdfast.core.job import Job
from holdfast.core.state import State
from holdfast.ports import Inspector
from holdfast.registry.bulk import plan_bulk, run_bulk
from holdfast.testing.world import PERMANENT
from tests.outputs.outputs_world import OutputsWorld

ACTOR = "user:ana"
JOBS = ("whole", "half", "running")


async def promised(world: OutputsWorld) -> None:
    """A job that left all it promised, one that left a part, and one that is not done."""
    for job_id in JOBS:
        world.clock.advance(1)
        grant = await world.start(world.files(f"{job_id}-1.txt", f"{job_id}-2.txt"), job_id)
        if job_id != "running":
            names = [f"{job_id}-1.txt", f"{job_id}-2.txt"][: 2 if job_id == "whole" else 1]
            for name in names:
                (world.folder / name).write_text("x")
            await world.finish(grant)


async def run(
    world: OutputsWorld, verb: BulkVerb, *job_ids: str, force: bool = False
) -> dict[str, BulkResult]:
    async def inspector(job: Job) -> Inspector:
        return world.inspector()

    plan = await plan_bulk(world.registry, world.world.ids, verb, JobSelection(job_ids=job_ids), force=force)
    results: list[BulkResult] = []
    async for some in run_bulk(world.registry, plan, actor=ACTOR, inspect=inspector):
        results += some
    return {one.job_id: one for one in results}


def effects(results: dict[str, BulkResult], names: Sequence[str]) -> list[BulkEffect]:
    return [results[name].effect for name in names]


async def test_many_jobs_are_validated(world: OutputsWorld) -> None:
    await promised(world)

    results = await run(world, BulkVerb.VALIDATE, *JOBS, force=True)

    assert effects(results, JOBS) == [BulkEffect.DONE, BulkEffect.DONE, BulkEffect.REFUSED]
    assert "its work is not done" in (results["running"].note or "")
    states = [job.state for job in await world.registry.status_many(JOBS) if job is not None]
    assert states == [State.SUCCEEDED, State.PARTIAL_SUCCESS, State.ASSIGNED]


async def test_what_is_not_due_for_validation_is_told(world: OutputsWorld) -> None:
    await promised(world)
    await run(world, BulkVerb.VALIDATE, "half", force=True)

    results = await run(world, BulkVerb.VALIDATE, "half")

    assert results["half"].effect is BulkEffect.ALREADY
    assert results["half"].note == "It was not due for validation."


async def test_outputs_that_cannot_be_seen_hold_up_no_other_job(world: OutputsWorld) -> None:
    await promised(world)
    tasks = world.tasks()
    await world.done(tasks, tasks, "stored")
    world.outputs.down = "The bucket is away."

    validated = await run(world, BulkVerb.VALIDATE, "stored", "whole", force=True)

    assert effects(validated, ("stored", "whole")) == [BulkEffect.REFUSED, BulkEffect.DONE]
    assert "The bucket is away" in (validated["stored"].note or "")


async def test_a_job_whose_outputs_were_never_seen_is_not_resumed_and_holds_up_no_other(
    world: OutputsWorld,
) -> None:
    await promised(world)
    await run(world, BulkVerb.VALIDATE, "half", force=True)
    grant = await world.start(await world.promise(world.tasks()), "stored")
    await world.registry.complete(grant, PERMANENT)
    world.outputs.down = "The bucket is away."

    results = await run(world, BulkVerb.RESUME, "stored", "half")

    assert effects(results, ("stored", "half")) == [BulkEffect.REFUSED, BulkEffect.DONE]
    assert isinstance(results["stored"].error, Unavailable)


async def test_many_jobs_are_resumed_each_once(world: OutputsWorld) -> None:
    await promised(world)
    await run(world, BulkVerb.VALIDATE, "whole", "half", force=True)

    first = await run(world, BulkVerb.RESUME)
    second = await run(world, BulkVerb.RESUME, *JOBS)

    assert effects(first, ("half",)) == [BulkEffect.DONE]
    assert list(first) == ["half"]  # the others have nothing to make, or are not over
    assert second["half"].effect is BulkEffect.ALREADY
    assert second["half"].other_id == first["half"].other_id
    assert effects(second, ("whole", "running")) == [BulkEffect.REFUSED, BulkEffect.REFUSED]
    assert "is resumed by" in (second["half"].note or "")


async def test_what_has_come_meanwhile_is_not_made_again(world: OutputsWorld) -> None:
    await promised(world)
    await run(world, BulkVerb.VALIDATE, "half", force=True)
    (world.folder / "half-2.txt").write_text("x")

    results = await run(world, BulkVerb.RESUME, "half")

    assert results["half"].effect is BulkEffect.ALREADY
    assert results["half"].note == "Nothing is missing."


@pytest.mark.parametrize("world", [("server", "directory")], ids="-".join, indirect=True)
async def test_many_jobs_are_validated_at_a_server(world: OutputsWorld) -> None:
    await promised(world)

    results = await run(world, BulkVerb.VALIDATE, "whole", "half", force=True)

    assert effects(results, ("whole", "half")) == [BulkEffect.DONE, BulkEffect.DONE]
