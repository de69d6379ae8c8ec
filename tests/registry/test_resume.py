"""Resuming: a job of what is missing, linked both ways, and the same one however often it is asked for."""

import asyncio
from datetime import timedelta
from functools import partial as bind
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.core.catalogue import EventClass
from holdfast.core.errors import Conflict, Exhausted, Invalid, NotFound, Unavailable
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle import Change, Enqueue, Refusal, Success, decide
from holdfast.core.outputs import OutputPromise, ValidationResult
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import ById, JobRequest, Work
from holdfast.registry.resume import resumed_id
from holdfast.testing.world import PERMANENT, World, open_world
from tests.conftest import memory_store

PROMISE = OutputPromise(names=("a", "b", "c", "d"), store="s-1", place="file:///out")
LACKING = OutputPromise(names=("c", "d"), store="s-1", place="file:///out")
SPEC = Spec(kind="fit", priority=2, outputs=PROMISE, promised_outputs=4, labels={"team": "x"}, lock="disk")


async def partial(world: World, job_id: str = "job-1", spec: Spec = SPEC, verified: int = 2) -> Job:
    """A job that has left some of its outputs behind."""
    request = JobRequest(spec=spec, job_id=job_id, correlation_id="order-7", trace_id="t-1")
    await world.registry.enqueue(request, actor="user:ana")
    return await finish(world, job_id, verified)


async def finish(world: World, job_id: str, verified: int) -> Job:
    job = await world.registry.complete(await world.registry.acquire(job_id, owner="w"), Success())
    found = ValidationResult(verified=verified, missing=job.spec.promised_outputs - verified)
    return await world.registry.complete_validation(job_id, found, actor="validator:v")


async def links(world: World, job_id: str) -> list[Event]:
    return [e for e in (await world.registry.logs(job_id)).events if e.event_type == "job_resumed"]


async def test_a_resumed_job_is_the_same_work_with_only_what_is_missing_to_promise(
    world: World,
) -> None:
    original = await partial(world, spec=replace(SPEC, delay=timedelta(seconds=0)))
    world.clock.advance(5)

    job = await world.registry.resume("job-1", LACKING, actor="user:bo", resume_id="r-1")

    assert job.spec == replace(
        SPEC,
        outputs=replace(LACKING, resume_attempt=1, original_total=4),
        promised_outputs=2,
        resumed_from="job-1",
    )
    assert (job.state, job.version, job.submitted_by) == (State.QUEUED, 1, "user:bo")
    assert (job.correlation_id, job.trace_id) == ("order-7", "t-1")
    assert await world.registry.status("job-1") == original
    await world.check()


async def test_both_jobs_know_of_each_other(world: World) -> None:
    await partial(world)
    world.clock.advance(5)

    job = await world.registry.resume("job-1", LACKING, actor="user:bo")

    [link] = await links(world, "job-1")
    assert job.spec.resumed_from == "job-1"
    assert (link.event_class, link.actor) == (EventClass.FACT, "user:bo")
    assert link.attributes == {"resumed_as": job.job_id, "version": 5}
    assert link.reason == f"resumed as {job.job_id}"
    assert (link.correlation_id, link.trace_id) == ("order-7", "t-1")
    assert link.occurred_at == job.created_at


@pytest.mark.parametrize(
    ("job_id", "root"),
    [
        ("job-1", "job-1"),
        ("job-1-resume-00ff", "job-1"),
        ("job-1-resume-00ff-resume-0a0b", "job-1-resume-00ff"),
        ("job-1-resume-xyzw", "job-1-resume-xyzw"),
        ("job-1-resume-00fff", "job-1-resume-00fff"),
        ("x" * 128, "x" * 116),
        ("x" * 116 + "-resume-00ff", "x" * 116),
    ],
)
def test_the_new_id_is_of_the_first_job_of_its_family(job_id: str, root: str) -> None:
    made = resumed_id(job_id, 0)

    assert made[:-4] == f"{root}-resume-"
    assert int(made[-4:], 16) >= 0
    assert len(made) <= 128
    assert made == resumed_id(job_id, 0)


def test_other_resumptions_have_other_ids() -> None:
    ids = {resumed_id(job_id, n) for job_id in ("job-1", "job-2") for n in range(3)}

    assert len(ids) == 6


async def test_each_time_is_counted_and_a_resumed_job_counts_on(world: World) -> None:
    await partial(world)
    times, jobs = [], []
    for n in range(3):
        job = await world.registry.resume("job-1", LACKING, actor="user:ana", resume_id=f"r-{n}", again=True)
        assert job.spec.outputs is not None
        times.append(job.spec.outputs.resume_attempt)
        jobs.append(job.job_id)
    await finish(world, jobs[1], 1)
    rest = replace(LACKING, names=("d",))

    nested = await world.registry.resume(jobs[1], rest, actor="user:ana", resume_id="r-9")

    assert times == [1, 2, 3]
    assert nested.spec.outputs is not None
    assert (nested.spec.outputs.resume_attempt, nested.spec.outputs.original_total) == (3, 4)
    assert nested.spec.resumed_from == jobs[1]
    assert nested.job_id.startswith("job-1-resume-")
    assert nested.job_id not in jobs


async def test_one_resume_id_makes_one_job_also_after_another_resume(world: World) -> None:
    await partial(world)
    first = await world.registry.resume("job-1", LACKING, actor="user:ana", resume_id="r-1")
    other = await world.registry.resume("job-1", LACKING, actor="user:ana", resume_id="r-2", again=True)

    again = await world.registry.resume("job-1", LACKING, actor="user:ana", resume_id="r-1")

    assert again == first != other
    assert len(await links(world, "job-1")) == 2


async def test_a_repeat_is_answered_when_the_original_has_succeeded_since(world: World) -> None:
    await partial(world)
    first = await world.registry.resume("job-1", LACKING, actor="user:ana", resume_id="r-1")
    await finish(world, first.job_id, 2)
    await world.registry.complete_validation("job-1", ValidationResult(verified=4), actor="validator:v")

    again = await world.registry.resume("job-1", LACKING, actor="user:ana", resume_id="r-1")

    assert (again.job_id, again.state) == (first.job_id, State.SUCCEEDED)
    with pytest.raises(Conflict, match="not resumable"):
        await world.registry.resume("job-1", LACKING, actor="user:ana", resume_id="r-2")


async def test_a_repeat_that_lacks_less_meanwhile_gets_the_job_it_made(world: World) -> None:
    await partial(world)
    made = await world.registry.resume("job-1", LACKING, actor="user:ana", resume_id="r-1")

    again = await world.registry.resume(
        "job-1", replace(LACKING, names=("c",)), actor="user:ana", resume_id="r-1"
    )

    assert again == made


async def test_an_id_that_somebody_took_is_passed_over(world: World) -> None:
    await partial(world)
    await world.enqueue(resumed_id("job-1", 0))

    job = await world.registry.resume("job-1", LACKING, actor="user:ana", resume_id="r-1")

    assert job.job_id == resumed_id("job-1", 0, 1)
    assert [link.attributes["resumed_as"] for link in await links(world, "job-1")] == [job.job_id]


async def test_when_all_ids_are_taken_it_says_what_to_do(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.registry.resume._PLACES", 1)

    await partial(world)
    await world.enqueue(resumed_id("job-1", 0))

    with pytest.raises(Exhausted, match="resume the last job"):
        await world.registry.resume("job-1", LACKING, actor="user:ana", resume_id="r-1")


async def test_only_a_partial_success_is_resumed(world: World) -> None:
    await world.registry.enqueue(JobRequest(spec=SPEC, job_id="job-1"), actor="user:ana")
    for act in (None, "claim", "complete"):
        if act == "claim":
            grant = await world.registry.acquire("job-1", owner="w")
        elif act == "complete":
            await world.registry.complete(grant, Success())
        state = (await world.registry.status("job-1")).state
        with pytest.raises(Conflict, match=f"Job job-1 is {state}: not resumable") as caught:
            await world.registry.resume("job-1", LACKING, actor="user:ana")
        assert caught.value.job_id == "job-1"
        assert caught.value.version == (await world.registry.status("job-1")).version
    await world.enqueue("job-2")
    await world.registry.complete(await world.registry.acquire("job-2", owner="w"), PERMANENT)
    with pytest.raises(Conflict, match="Job job-2 is failed"):
        await world.registry.resume("job-2", LACKING, actor="user:ana")
    with pytest.raises(NotFound):
        await world.registry.resume("job-3", LACKING, actor="user:ana")


async def test_what_is_resumed_is_checked_like_any_job(world: World) -> None:
    await partial(world)

    with pytest.raises(Invalid, match="at least one output"):
        await world.local.resume("job-1", OutputPromise(), actor="user:ana")
    with pytest.raises(Invalid, match="resume_id"):
        await world.local.resume("job-1", LACKING, actor="user:ana", resume_id="a b")
    with pytest.raises(Invalid, match="actor"):
        await world.local.resume("job-1", LACKING, actor="ana")

    assert await links(world, "job-1") == []


async def test_a_job_that_only_counted_its_outputs_is_resumed_too(world: World) -> None:
    await partial(world, spec=Spec(kind="fit", promised_outputs=4))

    job = await world.registry.resume("job-1", LACKING, actor="user:ana", resume_id="r-1")

    again = await world.registry.resume("job-1", LACKING, actor="user:ana", resume_id="r-1")
    assert job.spec.outputs == replace(LACKING, resume_attempt=1, original_total=4)
    assert again == job


async def test_a_link_that_was_never_told_is_told_by_the_repeat(world: World) -> None:
    """As on a store that writes one document at a time, when its writer dies between the two."""

    await partial(world)
    outputs = replace(LACKING, resume_attempt=1, original_total=4)
    spec = replace(SPEC, outputs=outputs, promised_outputs=2, resumed_from="job-1")
    new_id = resumed_id("job-1", 0)
    made = Enqueue(op_id="r-1", job_id=new_id, spec=spec, actor="user:ana")
    await world.store.transact([Work(ById(new_id, "disk"), bind(decide, made))])

    job = await world.registry.resume("job-1", LACKING, actor="user:ana", resume_id="r-1")

    assert (job.job_id, job.version) == (new_id, 1)
    [link] = await links(world, "job-1")
    assert link.attributes == {"resumed_as": new_id, "version": 5}


async def test_earlier_times_are_counted_through_a_log_of_many_pages(tmp_path: Path) -> None:
    async with open_world(memory_store, tmp_path) as world:
        await partial(world)
        first = await world.registry.resume("job-1", LACKING, actor="user:ana", resume_id="r-1")
        for start in range(0, 2500, 500):
            await world.registry.record(
                [
                    Event(
                        event_type="note_taken",
                        event_class=EventClass.EXTERNAL,
                        occurred_at=world.clock.now(),
                        job_id="job-1",
                        given_id=f"note-{n}",
                    )
                    for n in range(start, start + 500)
                ]
            )
        second = await world.registry.resume("job-1", LACKING, actor="user:ana", resume_id="r-2", again=True)

        third = await world.registry.resume("job-1", LACKING, actor="user:ana", resume_id="r-3", again=True)

        attempts = [job.spec.outputs for job in (first, second, third)]
        assert [o.resume_attempt for o in attempts if o] == [1, 2, 3]


async def test_a_resumed_job_outlives_the_one_it_resumes(world: World) -> None:
    await partial(world)
    job = await world.registry.resume("job-1", LACKING, actor="user:ana", resume_id="r-1")
    world.clock.advance(3600)
    await world.registry.prune(older_than=timedelta(minutes=30))

    assert await world.store.get(["job-1"]) == [None]
    assert (await finish(world, job.job_id, 2)).state is State.SUCCEEDED
    with pytest.raises(NotFound):
        await world.registry.resume("job-1", LACKING, actor="user:ana", resume_id="r-1")
    await world.check()


async def fail(world: World, job_id: str) -> Job:
    grant = await world.registry.acquire(job_id, owner="w")
    return await world.registry.complete(grant, PERMANENT)


async def test_resumed_twice_it_is_the_same_resume(world: World) -> None:
    await partial(world)
    first = await world.registry.resume("job-1", LACKING, actor="user:ana")

    for resume_id in (None, "r-9"):
        again = await world.registry.resume("job-1", LACKING, actor="user:bo", resume_id=resume_id)
        assert again == first
    assert len(await links(world, "job-1")) == 1
    await finish(world, first.job_id, 2)
    done = await world.registry.resume("job-1", LACKING, actor="user:bo")
    assert (done.job_id, done.state) == (first.job_id, State.SUCCEEDED)
    await world.check()


async def test_an_earlier_resume_that_did_not_succeed_leaves_room_for_another(world: World) -> None:
    await partial(world)
    first = await world.registry.resume("job-1", LACKING, actor="user:ana")
    await fail(world, first.job_id)

    second = await world.registry.resume("job-1", LACKING, actor="user:ana")

    assert second.job_id != first.job_id
    assert second.spec.outputs is not None
    assert second.spec.outputs.resume_attempt == 2
    assert (await world.registry.resume("job-1", LACKING, actor="user:ana")) == second


async def test_an_earlier_resume_counts_until_something_new_is_found(world: World) -> None:
    await partial(world)
    first = await world.registry.resume("job-1", LACKING, actor="user:ana")
    await finish(world, first.job_id, 2)
    await world.registry.complete_validation(
        "job-1", ValidationResult(verified=3, missing=1), actor="validator:v"
    )

    second = await world.registry.resume("job-1", LACKING, actor="user:ana")

    assert second.job_id != first.job_id


async def test_of_resumes_at_the_same_moment_one_makes_the_job(world: World) -> None:
    await partial(world)

    made = await asyncio.gather(
        *(world.registry.resume("job-1", LACKING, actor="user:ana", resume_id=f"r-{n}") for n in range(6))
    )

    assert len({job.job_id for job in made}) == 1
    assert len(await links(world, "job-1")) == 1
    await world.check()


async def test_resumes_that_are_wanted_beside_each_other_are_counted_each(world: World) -> None:
    await partial(world)

    made = await asyncio.gather(
        *(
            world.registry.resume("job-1", LACKING, actor="user:ana", resume_id=f"r-{n}", again=True)
            for n in range(4)
        )
    )

    attempts = sorted(job.spec.outputs.resume_attempt for job in made if job.spec.outputs)
    assert attempts == [1, 2, 3, 4]
    await world.check()


async def test_a_job_that_cannot_be_made_is_refused_and_leaves_no_link(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = Refusal(Invalid("A number or a time in the request is out of range."))
    monkeypatch.setattr("holdfast.registry.job_links.decide", lambda *_: refusal)

    await partial(world)
    with pytest.raises(Invalid, match="out of range"):
        await world.local.resume("job-1", LACKING, actor="user:ana")
    assert await links(world, "job-1") == []


async def test_a_job_that_ended_without_success_is_resumed_when_it_was_looked_at(
    world: World,
) -> None:
    await world.registry.enqueue(JobRequest(spec=SPEC, job_id="job-1"), actor="user:ana")
    failed = await fail(world, "job-1")
    with pytest.raises(Conflict, match="is failed: it is not known yet what it lacks"):
        await world.registry.resume("job-1", LACKING, actor="user:ana")
    some = ValidationResult(verified=2, missing=2)
    looked = await world.registry.complete_validation("job-1", some, actor="validator:v")

    job = await world.registry.resume("job-1", LACKING, actor="user:ana")

    assert (job.state, job.spec.promised_outputs) == (State.QUEUED, 2)
    assert job.spec.resumed_from == "job-1"
    assert await world.registry.status("job-1") == looked
    assert (looked.state, looked.version) == (State.FAILED, failed.version + 1)
    await world.registry.complete_validation("job-1", ValidationResult(verified=4), actor="validator:v")
    with pytest.raises(Conflict, match="All that it promised is there"):
        await world.registry.resume("job-1", LACKING, actor="user:ana", again=True)
    await world.check()


async def test_when_others_are_faster_every_time_it_is_asked_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def overtaken(_: object, __: object, original: Job, *___: object, **____: object) -> Change:
        return Change(original, original)

    monkeypatch.setattr("holdfast.registry.resume.enqueue_linked", overtaken)

    await partial(world)
    with pytest.raises(Unavailable, match="by several callers"):
        await world.local.resume("job-1", LACKING, actor="user:ana")
