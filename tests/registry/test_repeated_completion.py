"""An owner that says once more how its attempt ended, under no op_id or a new one, is answered as the
first time; one that says something else is told that it has ended it already."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.core.errors import Fenced, HoldfastError
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import Outcome, Stopped, Success
from holdfast.core.outputs import ValidationResult
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.ports import Completion, Grant, JobRequest
from holdfast.registry.idempotency import COUNTED
from holdfast.testing.world import PERMANENT, TRANSIENT, World
from tests.registry.test_idempotency import seen

End = Callable[[World, Grant], Awaitable[Job]]


def by(outcome: Outcome, *, compensated: bool | None = None, follow_ups: int = 0) -> End:
    made = tuple(_follow_up(n) for n in range(follow_ups))
    return lambda world, grant: world.registry.complete(
        grant, outcome, compensated=compensated, follow_ups=made
    )


def back(reason: str | None = None, *, undelivered: bool = False) -> End:
    return lambda world, grant: world.registry.release(grant, reason=reason, undelivered=undelivered)


def _follow_up(n: int) -> JobRequest:
    return JobRequest(spec=Spec(kind="report", payload=msgspec.Raw(b'{"n":%d}' % n)))


ENDS: dict[str, End] = {
    "success": by(Success()),
    "a result": by(Success(result={"b": [1, 2.5, None], "a": "ä"})),
    "a failure": by(TRANSIENT),
    "a permanent failure": by(PERMANENT),
    "a crash": by(Failure(message="killed", code="Exit137", exit_code=137, crash=True)),
    "not understood": by(Failure(message="no argument gift", not_understood=True)),
    "not started": by(Failure(message="no such folder", not_started=True)),
    "a failure and where it was": by(Failure(message="no", where="host-1:/srv")),
    "a long message": by(Failure(message="x" * 10_000, code="y" * 300)),
    "stopped": by(Stopped()),
    "stopped for a reason": by(Stopped(reason="as asked")),
    "a compensated failure": by(PERMANENT, compensated=True),
    "a failed compensation": by(PERMANENT, compensated=False),
    "a failed compensation of a cancelled job": by(Stopped(), compensated=False),
    "follow-ups": by(Success(result=1), follow_ups=2),
    "given back": back(),
    "given back for a reason": back("later"),
    "never delivered": back(undelivered=True),
}

OTHERS: dict[str, tuple[End, End]] = {
    "another result": (by(Success(result=1)), by(Success(result=2))),
    "another kind of number": (by(Success(result=1)), by(Success(result=True))),
    "no result": (by(Success(result=1)), by(Success())),
    "a failure after a success": (by(Success()), by(PERMANENT)),
    "a success after a failure": (by(TRANSIENT), by(Success())),
    "another message": (by(TRANSIENT), by(Failure(message="no", code="TransientError"))),
    "another reason": (by(Stopped(reason="a")), by(Stopped(reason="b"))),
    "another compensation": (by(PERMANENT, compensated=True), by(PERMANENT, compensated=False)),
    "no compensation": (by(PERMANENT, compensated=True), by(PERMANENT)),
    "fewer follow-ups": (by(Success(), follow_ups=2), by(Success(), follow_ups=1)),
    "a completion of what was given back": (back(), by(Success())),
    "giving back what was completed": (by(TRANSIENT), back()),
    "giving back for another reason": (back("a"), back("b")),
}


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("name", ENDS)
async def test_the_same_end_said_again_is_answered_as_before(world: World, name: str, moved: bool) -> None:
    await world.enqueue("job-1", retry=Retry(max_failures=3))
    grant = await world.claim()
    first = await ENDS[name](world, grant)
    if moved and first.state == "queued":
        world.clock.advance(60)
        later = await world.claim("worker-9")
        await world.registry.complete(later, Success(result="later"))
    log = await world.registry.logs("job-1")

    again = await ENDS[name](world, grant)

    assert seen(again) == seen(first)
    assert (again.result, again.error, again.reason) == (
        first.result,
        first.error,
        first.reason,
    )
    assert await world.registry.logs("job-1") == log
    assert world.local.counters.refusals["fenced"] == 0


@pytest.mark.parametrize("name", OTHERS)
async def test_another_end_under_the_same_token_is_refused_in_true_words(world: World, name: str) -> None:
    first, second = OTHERS[name]

    await world.enqueue("job-1", retry=Retry(max_failures=3))
    grant = await world.claim()
    done = await first(world, grant)

    with pytest.raises(Fenced) as caught:
        await second(world, grant)

    returned = "given back" in name.partition(" of ")[2] or name.startswith("giving back for")
    said = "given it back" if returned else "completed it"
    assert caught.value.message.startswith(f"You have already {said} under token 1")
    assert caught.value.advice == (Fenced.advice if returned else COUNTED)
    assert (caught.value.job_id, caught.value.version) == ("job-1", done.version)
    assert await world.registry.status("job-1") == done


async def test_aggregating_after_the_end_is_refused_in_true_words(world: World) -> None:
    await world.enqueue("job-1")
    grant = await world.claim()
    await world.registry.complete(grant, Success())

    with pytest.raises(Fenced, match="You have already completed it under token 1: the"):
        await world.registry.aggregate(grant)


async def test_an_end_that_others_made_is_not_taken_for_ones_own(world: World) -> None:
    await world.enqueue("job-1")
    grant = await world.claim()
    await world.lapse()

    for outcome in (Success(), TRANSIENT, Stopped()):
        with pytest.raises(Fenced, match="Token 1 holds nothing"):
            await world.registry.complete(grant, outcome)
    with pytest.raises(Fenced, match="Token 1 holds nothing"):
        await world.registry.release(grant, reason="worker-7 lost the lease")


async def test_a_token_in_other_hands_answers_nobody_else(world: World) -> None:
    await world.enqueue("job-1")
    grant = await world.claim()
    await world.local.complete(grant, Success(result=1))
    assert grant.job.lease is not None  # it was claimed
    lease = replace(grant.job.lease, owner="worker-9")
    other = replace(grant, job=replace(grant.job, lease=lease))

    with pytest.raises(Fenced, match="Token 1 holds nothing"):
        await world.local.complete(other, Success(result=1))


async def test_other_follow_ups_are_another_outcome(world: World) -> None:
    await world.enqueue("job-1")
    grant = await world.claim()
    await world.registry.complete(grant, Success(), follow_ups=[_follow_up(1)])

    with pytest.raises(Fenced, match="with another outcome"):
        await world.registry.complete(grant, Success(), follow_ups=[_follow_up(2)])

    made = await world.registry.counts()
    assert made == {"succeeded": 1, "queued": 1}


async def test_a_repeat_is_answered_when_its_follow_ups_are_forgotten(world: World) -> None:
    await world.enqueue("job-1", promised_outputs=1)
    grant = await world.claim()
    follow_ups = [JobRequest(spec=Spec(kind="report"))]
    first = await world.registry.complete(grant, Success(), follow_ups=follow_ups)
    await world.registry.complete(await world.claim(), Success())
    world.clock.advance(3600)
    await world.registry.prune(older_than=timedelta(minutes=1))

    again = await world.registry.complete(grant, Success(), follow_ups=follow_ups)

    assert await world.registry.counts() == {"validating": 1}
    assert seen(again) == seen(first)


async def test_a_repeat_shows_the_job_before_its_verdict(world: World) -> None:
    await world.enqueue("job-1", promised_outputs=1)
    grant = await world.claim()
    first = await world.registry.complete(grant, Success(result=1, where="m:/f"))
    await world.registry.complete_validation("job-1", ValidationResult(verified=1), actor="validator:v")

    again = await world.registry.complete(grant, Success(result=1, where="m:/f"))

    assert seen(again) == seen(first)
    assert first.state == "validating"


async def test_many_ends_said_again_are_answered_each_as_before(world: World) -> None:
    for n in range(3):
        await world.enqueue(f"job-{n}")
    grants = [await world.claim() for _ in range(3)]
    ends = [Completion(grant, Success(result=n)) for n, grant in enumerate(grants)]
    first = await world.registry.complete_many(ends[:2])

    again = await world.registry.complete_many([*ends, Completion(grants[0], Success())])

    done = [job for job in again if not isinstance(job, HoldfastError)]
    assert [seen(job) for job in done[:2]] == [
        seen(job) for job in first if not isinstance(job, HoldfastError)
    ]
    assert done[2].state == "succeeded"
    assert isinstance(again[3], Fenced)
