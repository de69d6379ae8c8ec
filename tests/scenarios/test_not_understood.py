"""A job that a worker's code does not know waits for one whose code does, on every store."""

from holdfast.core.catalogue import ReasonCode, Stage
from holdfast.core.job import Failure
from holdfast.core.lifecycle import Success
from holdfast.core.limits import NOT_UNDERSTOOD_MAX
from holdfast.core.state import State
from holdfast.testing.world import TRANSIENT, World, patient

STRANGE = Failure(
    message="send: there is no argument gift; it takes to.",
    retryable=False,
    stage=Stage.INPUT,
    reason_code=ReasonCode.PARSE_ERROR,
    not_understood=True,
)


async def test_old_workers_give_it_back_until_a_new_one_takes_it(world: World) -> None:
    await world.enqueue("job-1", retry=patient(1))
    for n in range(1, 4):
        given = await world.registry.complete(await world.claim("old"), STRANGE)
        assert (given.state, given.not_understood, given.failures) == (State.QUEUED, n, 0)
        assert given == await world.registry.status("job-1")
        assert await world.registry.claim(["default"], owner="old") == []
        assert f"given back {'once' if n == 1 else f'{n} times'}" in (await world.registry.why("job-1"))
        world.clock.advance(2 ** (n - 1))

    done = await world.registry.complete(await world.claim("new"), Success())

    assert (done.state, done.attempt) == (State.SUCCEEDED, 4)
    assert (done.failures, done.crashes, done.not_understood) == (0, 0, 3)
    history = await world.registry.history("job-1")
    causes = [e.attributes["cause"] for e in history if e.event_type == "job_requeued"]
    assert causes == ["not_understood"] * 3
    await world.check()


async def test_what_nobody_understands_is_a_parse_error_at_last(world: World) -> None:
    await world.enqueue("job-1")
    for _ in range(NOT_UNDERSTOOD_MAX):
        await world.registry.complete(await world.claim(), STRANGE)
        world.clock.advance(60)

    job = await world.registry.complete(await world.claim(), STRANGE)

    assert job.dead_letter is not None
    assert job.dead_letter.reason_code is ReasonCode.PARSE_ERROR
    assert (job.failures, job.not_understood) == (1, NOT_UNDERSTOOD_MAX)
    await world.check()


async def test_failures_count_as_ever_between_those_who_do_not_understand(world: World) -> None:
    await world.enqueue("job-1", retry=patient(2))
    for outcome in (STRANGE, TRANSIENT, STRANGE):
        await world.registry.complete(await world.claim(), outcome)
        world.clock.advance(60)

    job = await world.registry.complete(await world.claim(), TRANSIENT)

    assert (job.state, job.failures, job.not_understood) == (State.DEAD_LETTERED, 2, 2)
    await world.check()


async def test_a_lost_answer_is_given_again(world: World) -> None:
    await world.enqueue("job-1")
    grant = await world.claim()
    first = await world.registry.complete(grant, STRANGE, op_id="end-1")
    world.clock.advance(1)
    later = await world.claim("other")
    await world.registry.complete(later, STRANGE)

    again = await world.registry.complete(grant, STRANGE, op_id="end-1")

    assert (again.not_understood, again.attempt, again.reason) == (1, 2, first.reason)
