"""Outputs of jobs that ended without success: who looks for them, what counts, what is made again."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.core.errors import Conflict, Unavailable
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import Stopped
from holdfast.core.outputs import VALIDATION_TRIES_MAX, ValidationResult
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.outputs import inspector as inspecting
from holdfast.outputs import unvalidated_jobs
from holdfast.outputs.managed import commit
from holdfast.outputs.results import ResultAuthor
from holdfast.outputs.unvalidated_jobs import UnvalidatedJobs
from holdfast.ports import JobFilter, JobPage, JobRequest
from tests.outputs.outputs_world import MACHINE, MATRIX, OutputsWorld

everywhere = pytest.mark.parametrize(
    "world",
    [pytest.param(one, id=one[0]) for one in MATRIX if one[1] == "directory"],
    indirect=True,
)

DEAD = Failure(message="the disk is full", retryable=False)


async def died(world: OutputsWorld, job_id: str = "job-1") -> Job:
    """A study of six outputs that died when four were there."""
    tasks = world.tasks(target=None)
    grant = await world.start(await world.promise(tasks), job_id)
    await world.write(grant, tasks[:4])
    return await world.registry.complete(grant, DEAD)


def seen(job: Job) -> tuple[State, int, int]:
    assert job.found is not None
    return job.state, job.found.verified, job.found.missing


@everywhere
async def test_a_study_that_died_is_looked_at_and_resumed(world: OutputsWorld) -> None:
    failed, asked = await died(world), world.inspector()

    looked = await asked.validate("job-1", actor="user:ana", force=True)
    page = await asked.list_outputs("job-1", missing=True)
    made = await asked.resume("job-1", actor="user:ana")
    again = await asked.resume("job-1", actor="user:bo")

    assert seen(looked) == (State.FAILED, 4, 2)
    assert looked.version == failed.version + 1
    names = [task.name for task in world.tasks(target=None)[4:]]
    assert ([output.name for output in page.outputs], page.checked) == (names, True)
    assert made.job is not None
    assert again.job is not None
    assert (made.earlier, again.earlier) == (False, True)
    assert again.job.job_id == made.job.job_id
    assert [task.name for task in await world.promised(made.job)] == names
    done = await world.validator().validate(await world.run_resumed(made.job))
    assert done.state is State.SUCCEEDED
    assert seen(await world.registry.status("job-1")) == (State.FAILED, 6, 0)
    assert await world.verdicts() == 2 * ["job_outputs_verified"]
    assert (await asked.resume("job-1", actor="user:ana")).missing == 0
    wanted = await asked.resume("job-1", actor="user:ana", again=True)
    assert (wanted.missing, wanted.job) == (0, None)


@pytest.mark.parametrize("end", ["cancel", "dead letter", "timeout"])
async def test_every_unsuccessful_end_is_looked_at(world: OutputsWorld, end: str) -> None:
    tasks = world.tasks(target=None)
    spec = Spec(
        outputs=await world.promise(tasks),
        retry=Retry(max_failures=1),
        ttl=timedelta(minutes=1) if end == "timeout" else None,
    )
    await world.registry.enqueue(JobRequest(spec=spec, job_id="job-1"), actor="user:ana")
    grant = await world.registry.acquire("job-1", owner="w")
    await world.write(grant, tasks[:4])
    if end == "cancel":
        await world.registry.cancel("job-1", actor="user:ana")
        await world.registry.complete(grant, Stopped())
    elif end == "dead letter":
        await world.registry.complete(grant, Failure(message="x"))
    else:
        world.clock.advance(3600)
        await world.registry.expire()
    ended = await world.registry.status("job-1")

    looked = await world.inspector().validate("job-1", actor="user:ana", force=True)

    assert seen(looked) == (ended.state, 4, 2)
    assert looked.ended_at == ended.ended_at
    planned = await world.inspector().resume("job-1", actor="user:ana", dry_run=True)
    assert planned.missing == 2


async def test_managed_outputs_of_an_attempt_that_did_not_complete_never_count(
    world: OutputsWorld, tmp_path: Path
) -> None:
    grant = await world.start(world.promise_of(names=("a", "b")))
    (tmp_path / "a").write_bytes(b"whole")
    await commit(world.outputs, grant.job_id, grant.fencing_token, "a", tmp_path / "a")
    await world.registry.complete(grant, DEAD)
    asked = world.inspector()

    looked = await asked.validate("job-1", actor="user:ana", force=True)

    assert seen(looked) == (State.FAILED, 0, 2)
    page = await asked.list_outputs("job-1")
    assert {output.missing for output in page.outputs} == {"the attempt did not complete"}
    made = await asked.resume("job-1", actor="user:ana")
    assert made.job is not None
    assert made.job.spec.outputs is not None
    assert made.job.spec.outputs.names == ("a", "b")


async def test_plain_paths_count_where_the_failed_command_ran(world: OutputsWorld) -> None:
    grant = await world.start(world.files("a", "b"))
    (world.folder / "a").write_bytes(b"a")
    told = Failure(message="x", retryable=False, where=f"{MACHINE}:{world.folder}")
    await world.registry.complete(grant, told)

    looked = await world.inspector().validate("job-1", actor="user:ana", force=True)

    assert seen(looked) == (State.FAILED, 1, 1)


async def test_not_seen_is_not_missing_and_nobody_resumes_what_nobody_saw(
    world: OutputsWorld,
) -> None:
    failed, asked = await died(world), world.inspector()
    world.outputs.down = "no route"

    looked = await asked.validate("job-1", actor="user:ana", force=True)

    assert (looked.found, looked.version) == (None, failed.version)
    assert looked.check is not None
    assert (looked.check.tries, looked.check.reason) == (1, "no route")
    with pytest.raises(Unavailable, match="which of its outputs are there: no route"):
        await asked.resume("job-1", actor="user:ana")


async def test_a_job_that_is_being_looked_at_is_resumed_later(world: OutputsWorld) -> None:
    await died(world)
    await world.registry.report_validation("job-1", actor="validator:other")

    with pytest.raises(Unavailable, match="being validated; try again later"):
        await world.inspector().resume("job-1", actor="user:ana")


async def test_many_outputs_are_planned_as_they_were_seen_last(
    world: OutputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspecting, "REVALIDATED_MAX", 5)

    await died(world)
    asked = world.inspector()
    first = await asked.resume("job-1", actor="user:ana", dry_run=True)
    tasks = world.tasks(target=None)
    await world.write(ResultAuthor("job-1", 1), tasks[4:])

    assert first.missing == 2  # nobody had looked before
    assert (await asked.resume("job-1", actor="user:ana", dry_run=True)).missing == 2


async def test_a_sweep_looks_once_at_what_its_process_saw_end(world: OutputsWorld) -> None:
    sweeping = world.validator()
    await sweeping.sweep()
    await died(world)

    assert await sweeping.sweep() == 0  # it is left to whoever ran it
    world.clock.advance(15)
    assert await sweeping.sweep() == 1
    assert seen(await world.registry.status("job-1")) == (State.FAILED, 4, 2)
    world.clock.advance(86_400)
    assert await sweeping.sweep() == 0
    assert await world.verdicts() == ["job_outputs_verified"]


async def test_a_lease_that_was_lost_is_enough_to_be_looked_at(world: OutputsWorld) -> None:
    tasks = world.tasks(target=None)
    spec = Spec(outputs=await world.promise(tasks), retry=Retry(max_crashes=1))
    await world.registry.enqueue(JobRequest(spec=spec, job_id="job-1"), actor="user:ana")
    await world.write(await world.registry.acquire("job-1", owner="w"), tasks[:4])
    sweeping = world.validator()
    await sweeping.sweep()
    world.clock.advance(3600)
    await world.registry.expire()
    world.clock.advance(15)

    assert await sweeping.sweep() == 1

    assert seen(await world.registry.status("job-1")) == (State.DEAD_LETTERED, 4, 2)


async def test_no_sweep_lists_jobs_that_have_ended(
    world: OutputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(5):
        await died(world, f"job-{n}")
    asked: list[JobFilter] = []
    real = world.registry.list_jobs

    async def listed(which: JobFilter = JobFilter(), **more: object) -> JobPage:
        asked.append(which)
        return await real(which, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(world.registry, "list_jobs", listed)
    sweeping = world.validator()
    for _ in range(4):
        world.clock.advance(15)
        await sweeping.sweep()

    assert [which.states for which in asked] == [()]  # the newest, once
    for n in range(5):
        assert seen(await world.registry.status(f"job-{n}")) == (State.FAILED, 4, 2)


async def test_a_process_that_begins_finds_what_ended_before_among_the_newest(
    world: OutputsWorld,
) -> None:
    await died(world)
    world.registry.take_unvalidated()  # whoever knew of it is gone
    world.clock.advance(15)

    assert await world.validator().sweep() == 1


async def test_what_cannot_be_seen_is_tried_a_bounded_number_of_times(world: OutputsWorld) -> None:
    sweeping = world.validator()
    await died(world)
    world.outputs.down = "no route"
    for _ in range(VALIDATION_TRIES_MAX + 5):
        world.clock.advance(900)
        await sweeping.sweep()
    job = await world.registry.status("job-1")

    assert job.check is not None
    assert (job.check.tries, job.check.next_at) == (VALIDATION_TRIES_MAX, None)
    world.outputs.down = None
    world.clock.advance(86_400)
    assert await sweeping.sweep() == 0
    looked = await world.inspector().validate("job-1", actor="user:ana", force=True)
    assert seen(looked) == (State.FAILED, 4, 2)


async def test_what_a_sweep_cannot_see_says_why_once_and_is_left_to_others(
    world: OutputsWorld,
) -> None:
    grant = await world.start(world.files("a"))
    await world.registry.complete(grant, Failure(message="x", retryable=False, where="gone:/home"))
    sweeping = world.validator()
    for _ in range(5):
        world.clock.advance(60)
        await sweeping.sweep()
    check = (await world.registry.status("job-1")).check

    assert check is not None
    assert check.tries == 1
    assert "files on gone" in (check.reason or "")


async def test_only_so_many_wait_and_the_newest_stay(
    world: OutputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unvalidated_jobs, "WAITING_MAX", 2)

    waiting = UnvalidatedJobs(world.registry)
    assert not await waiting.any()
    for n in range(4):
        await died(world, f"job-{n}")

    assert await waiting.any()
    assert [job.job_id for job in await waiting.page()] == ["job-2", "job-3"]
    waiting.drop("job-2")
    await world.registry.complete_validation("job-3", ValidationResult(missing=6), actor="validator:v")
    assert await waiting.page() == []
    assert not await waiting.any()


@everywhere
async def test_of_two_who_look_at_once_one_is_heard(world: OutputsWorld) -> None:
    failed = await died(world)

    await asyncio.gather(*(world.validator(f"v-{n}").validate(failed) for n in range(4)))

    assert seen(await world.registry.status("job-1")) == (State.FAILED, 4, 2)
    assert await world.verdicts() == ["job_outputs_verified"]


async def test_what_is_not_over_is_not_resumed(world: OutputsWorld) -> None:
    await world.start(world.files("a"))

    with pytest.raises(Conflict, match="Job job-1 is assigned: not resumable"):
        await world.inspector().resume("job-1", actor="user:ana")
