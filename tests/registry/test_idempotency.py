"""A repeated op_id gets its original answer, with the original version, and writes nothing."""

from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from holdfast.core.errors import Conflict, Fenced
from holdfast.core.job import Job
from holdfast.core.lifecycle import HandoffStep, Success
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.ports import Grant, JobRequest
from holdfast.testing.world import PERMANENT, TRANSIENT, World, output

Act = Callable[[World, Grant], Awaitable[Job]]

ACTS: dict[str, Act] = {
    "succeed": lambda w, g: w.registry.complete(g, Success(result=1), op_id="op-x"),
    "fail": lambda w, g: w.registry.complete(g, TRANSIENT, op_id="op-x"),
    "fail for good": lambda w, g: w.registry.complete(g, PERMANENT, op_id="op-x"),
    "release": lambda w, g: w.registry.release(g, op_id="op-x"),
    "aggregate": lambda w, g: w.registry.aggregate(g, op_id="op-x"),
    "cancel": lambda w, g: w.registry.cancel(g.job_id, actor="user:ana", op_id="op-x"),
    "hard cancel": lambda w, g: w.registry.cancel(g.job_id, actor="user:ana", op_id="op-x", hard=True),
}


def seen(job: Job) -> tuple[object, ...]:
    return (
        *(job.job_id, job.state, job.version, job.transition_no),
        *(job.attempt, job.fencing_token, job.owner),
    )


async def move_on(world: World, job: Job, grant: Grant) -> None:
    """Let as much happen to the job as can."""
    if job.state == "queued":
        world.clock.advance(60)
        await world.claim("worker-9")
        await world.registry.cancel(job.job_id, actor="user:bo", hard=True)
    elif job.leased:
        await world.registry.heartbeat(grant)
        if job.cancel is None:
            await world.registry.cancel(job.job_id, actor="user:bo")
        else:
            await world.registry.aggregate(grant)


@pytest.mark.parametrize("name", ACTS)
async def test_a_repeat_at_once_answers_the_same_and_writes_nothing(world: World, name: str) -> None:
    await world.enqueue("job-1")
    grant = await world.claim()
    first = await ACTS[name](world, grant)
    history = await world.registry.history("job-1")

    again = await ACTS[name](world, grant)

    assert seen(again) == seen(first)
    assert await world.registry.history("job-1") == history
    assert world.local.counters.refusals["fenced"] == 0


@pytest.mark.parametrize("name", ACTS)
async def test_a_repeat_after_other_things_happened_answers_the_same(world: World, name: str) -> None:
    await world.enqueue("job-1")
    grant = await world.claim()
    first = await ACTS[name](world, grant)
    await move_on(world, first, grant)
    history = await world.registry.history("job-1")

    again = await ACTS[name](world, grant)

    assert seen(again) == seen(first)
    assert await world.registry.history("job-1") == history


@pytest.mark.parametrize("actor", ["user:ana", "sync:k8s"])
async def test_repeated_handoff_steps_answer_as_they_did(world: World, actor: str) -> None:
    request = JobRequest(spec=Spec(executor="k8s"), job_id="job-1", register=True)
    await world.registry.enqueue(request, actor=actor)

    async def step(step: HandoffStep) -> Job:
        return await world.registry.handoff("job-1", step, actor=actor, op_id=f"op-{step}")

    begun, done = await step(HandoffStep.BEGIN), await step(HandoffStep.DONE)
    grant = await world.claim(executor="k8s")

    assert seen(await step(HandoffStep.BEGIN)) == seen(begun)
    assert seen(await step(HandoffStep.DONE)) == seen(done)
    job = await world.registry.status("job-1")
    assert (job.state, job.version, job.owner) == ("assigned", 4, grant.job.owner)


async def test_a_refused_handoff_is_answered_again(world: World) -> None:
    await world.registry.enqueue(JobRequest(spec=Spec(), job_id="job-1", register=True), actor="user:ana")
    await world.registry.handoff("job-1", HandoffStep.BEGIN, actor="user:ana")
    answers = [
        await world.registry.handoff(
            "job-1", HandoffStep.REFUSED, actor="user:ana", op_id="op-x", error="no quota"
        )
        for _ in range(2)
    ]

    assert seen(answers[0]) == seen(answers[1])
    assert answers[0].state == "failed"


async def test_another_op_after_the_end_is_refused_with_the_version(world: World) -> None:
    await world.enqueue("job-1")
    done = await world.registry.complete(await world.claim(), Success(), op_id="op-x")

    with pytest.raises(Conflict) as caught:
        await world.registry.cancel("job-1", actor="user:ana", op_id="op-y")

    assert (caught.value.job_id, caught.value.version) == ("job-1", done.version)
    assert world.local.counters.refusals["conflict"] == 1


async def test_one_replay_id_makes_one_job_whatever_became_of_it(world: World) -> None:
    await world.enqueue("job-1", retry=Retry(max_failures=1))
    await world.registry.complete(await world.claim(), TRANSIENT)
    first = await world.registry.replay("job-1", actor="user:ana", replay_id="r-1")
    await world.registry.complete(await world.claim(), Success())

    again = await world.registry.replay("job-1", actor="user:ana", replay_id="r-1")

    assert again.job_id == first.job_id
    assert (await world.registry.counts()) == {"dead_lettered": 1, "succeeded": 1}
    log = await world.registry.logs("job-1")
    assert [e.event_type for e in log.events].count("job_replayed") == 1


async def test_a_batch_sent_again_is_stored_once(world: World) -> None:
    await world.enqueue("job-1")
    grant = await world.claim()
    batch = [output(n, world=world) for n in (1, 2, 3)]
    first = await world.registry.publish(grant, batch)
    before = await world.registry.logs("job-1")

    again = await world.registry.publish(grant, batch)

    assert (again.version, again.published) == (first.version, 3)
    assert await world.registry.logs("job-1") == before


async def test_the_same_request_with_other_words_is_a_conflict(world: World) -> None:
    first = JobRequest(spec=Spec(), request_id="order-7")
    other = JobRequest(spec=Spec(kind="resize"), request_id="order-7")
    job = await world.registry.enqueue(first, actor="user:ana")

    with pytest.raises(Conflict) as caught:
        await world.registry.enqueue(other, actor="user:ana")

    assert (caught.value.job_id, caught.value.version) == (job.job_id, 1)


async def test_a_fenced_call_is_not_answered_by_another_commands_op_id(world: World) -> None:
    await world.enqueue("job-1")
    old = await world.claim("w-1", op_id="same")
    await world.registry.release(old)
    await world.claim("w-2")

    with pytest.raises(Fenced):
        await world.registry.complete(old, Success(), op_id="same")


async def test_a_repeat_does_not_show_what_came_after_it(world: World) -> None:
    await world.enqueue("job-1")
    grant = await world.claim()
    first = await world.registry.release(grant, op_id="op-x")
    later = await world.claim("worker-9")
    await world.registry.complete(later, Success(result="later"))

    again = await world.registry.release(replace(grant, job=first), op_id="op-x")

    assert seen(again) == seen(first) == ("job-1", "queued", 3, 3, 2, 1, None)
    assert (again.ended_at, again.result, again.lease) == (None, None, None)
