"""Acceptance scenarios 18 to 21: retry, dead letters and cancel, on every store."""

from datetime import timedelta

import pytest

from holdfast.core.catalogue import ReasonCode, Stage
from holdfast.core.errors import Conflict, Fenced
from holdfast.core.job import Failure
from holdfast.core.lifecycle import Stopped, Success
from holdfast.core.retry import OnExhausted, Retry
from holdfast.core.state import State
from holdfast.ports import JobFilter
from holdfast.testing.world import PERMANENT, TRANSIENT, World, patient


async def test_four_transient_errors_are_waited_out_and_the_fifth_attempt_succeeds(
    world: World,
) -> None:
    """Scenario 18."""

    await world.enqueue("job-1", retry=patient(5))
    waits = []
    for attempt in range(1, 5):
        grant = await world.claim()
        assert grant.attempt == attempt
        job = await world.registry.complete(grant, TRANSIENT)
        wait = job.ready_at - world.clock.now()
        assert timedelta() <= wait <= timedelta(seconds=0.5 * 2 ** (attempt - 1))
        waits.append(wait)
        if wait:
            assert await world.registry.claim(["default"], owner="early") == []
        world.clock.advance(wait.total_seconds())

    done = await world.registry.complete(await world.claim(), Success())

    history = await world.registry.history("job-1")
    claims = [e.attempt for e in history if e.event_type == "job_claimed"]
    assert (done.state, done.attempt, done.failures) == (State.SUCCEEDED, 5, 4)
    assert claims == [1, 2, 3, 4, 5]
    assert len(set(waits)) == 4
    await world.check()


async def exhaust(world: World) -> None:
    await world.enqueue("job-1", retry=patient(3))
    failure = Failure(message="cannot write", code="OSError", stage=Stage.OUTPUT)
    for _ in range(3):
        await world.registry.complete(await world.claim(), failure)
        world.clock.advance(60)


async def test_a_job_that_always_fails_is_parked_with_all_that_is_needed(world: World) -> None:
    """Scenario 19: reason, error, attempts, correlation id, last owner, last lease; and the stage."""

    await exhaust(world)

    job = await world.registry.status("job-1")
    listed = await world.registry.list_jobs(JobFilter(states=(State.DEAD_LETTERED,)))

    letter = job.dead_letter
    assert [j.job_id for j in listed.jobs] == ["job-1"]
    assert letter is not None
    assert letter.reason_code is ReasonCode.EXHAUSTED_RETRIES
    assert letter.last_error == "cannot write"
    assert letter.attempts == 3
    assert letter.correlation_id == "job-1"
    assert letter.last_owner == "worker-7"
    assert letter.last_lease_expires_at is not None
    assert letter.stage is Stage.OUTPUT
    await world.check()


async def test_a_replay_is_a_new_job_linked_both_ways_and_the_original_stays(world: World) -> None:
    """Scenario 19 and invariant I28."""

    await exhaust(world)
    before = await world.registry.status("job-1")

    new = await world.registry.replay("job-1", actor="user:ana", replay_id="r-1")
    again = await world.registry.replay("job-1", actor="user:ana", replay_id="r-1")

    log = await world.registry.logs("job-1")
    links = [e for e in log.events if e.event_type == "job_replayed"]
    assert again.job_id == new.job_id != "job-1"
    assert (new.state, new.attempt, new.failures) == (State.QUEUED, 1, 0)
    assert new.spec.replayed_from == "job-1"
    assert [e.attributes["replayed_as"] for e in links] == [new.job_id]
    assert await world.registry.status("job-1") == before
    assert sum((await world.registry.counts()).values()) == 2
    await world.check()


async def test_a_corrupt_payload_is_parked_as_a_parse_error_and_never_claimed_again(
    world: World,
) -> None:
    """Scenario 20."""

    await world.enqueue("job-1")
    corrupt = Failure(
        message="not a command",
        retryable=False,
        stage=Stage.INPUT,
        reason_code=ReasonCode.PARSE_ERROR,
    )

    job = await world.registry.complete(await world.claim(), corrupt)

    assert job.dead_letter is not None
    assert job.dead_letter.reason_code is ReasonCode.PARSE_ERROR
    assert job.dead_letter.stage is Stage.INPUT
    assert await world.registry.claim(["default"], owner="w") == []


async def test_a_permanent_error_is_not_tried_again(world: World) -> None:
    """Scenario 20."""

    await world.enqueue("job-1", retry=patient(5))

    job = await world.registry.complete(await world.claim(), PERMANENT)

    assert (job.state, job.attempt, job.error) == (State.FAILED, 1, PERMANENT)
    world.clock.advance(3600)
    assert await world.registry.claim(["default"], owner="w") == []


@pytest.mark.parametrize("claimed", [False, True])
@pytest.mark.parametrize(
    ("policy", "end"),
    [(OnExhausted.DEAD_LETTER, State.DEAD_LETTERED), (OnExhausted.FAIL, State.TIMEOUT)],
)
async def test_a_passed_deadline_ends_the_job_as_a_timeout(
    world: World, claimed: bool, policy: OnExhausted, end: State
) -> None:
    """Scenario 20."""

    await world.enqueue("job-1", ttl=timedelta(seconds=100), retry=Retry(on_exhausted=policy))
    grant = await world.claim(lease=timedelta(seconds=600)) if claimed else None
    world.clock.advance(100)

    assert await world.registry.claim(["default"], owner="late") == []
    with pytest.raises(Conflict):
        await world.registry.acquire("job-1", owner="late")
    await world.registry.expire()

    job = await world.registry.status("job-1")
    assert (job.state, job.attempt) == (end, 1)
    assert job.error is not None
    assert job.error.reason_code is ReasonCode.TIMEOUT
    if job.dead_letter is not None:
        assert job.dead_letter.reason_code is ReasonCode.TIMEOUT
    if grant is not None:
        with pytest.raises(Fenced):
            await world.registry.complete(grant, Success())
    await world.check()


async def test_a_soft_cancel_signals_the_owner_who_checkpoints_and_stops(world: World) -> None:
    """Scenario 21."""

    await world.enqueue("job-1")
    grant = await world.claim()
    await world.registry.heartbeat(grant)
    await world.registry.cancel("job-1", actor="user:ana", reason="enough")

    told = await world.registry.heartbeat(grant, checkpoint={"epoch": 3})
    ended = await world.registry.complete(grant, Stopped())

    assert told.cancel is not None
    assert (told.cancel.actor, told.state) == ("user:ana", State.RUNNING)
    assert (ended.state, ended.reason) == (State.CANCELLED, "enough")
    assert ended.checkpoint == {"epoch": 3}
    assert await world.types("job-1") == [
        "job_queued",
        "job_claimed",
        "job_started",
        "job_cancel_requested",
        "job_cancelled",
    ]
    await world.check()


async def test_an_ignored_soft_cancel_ends_the_job_when_the_lease_does(world: World) -> None:
    """Scenario 21."""

    await world.enqueue("job-1")
    grant = await world.claim()
    await world.registry.cancel("job-1", actor="user:ana")

    await world.lapse()

    job = await world.registry.status("job-1")
    assert (job.state, job.attempt) == (State.CANCELLED, 1)
    with pytest.raises(Fenced):
        await world.registry.complete(grant, Success())
    assert await world.registry.claim(["default"], owner="w") == []
    await world.check()


async def test_after_a_hard_cancel_the_owners_completion_is_refused(world: World) -> None:
    """Scenario 21 and invariant I23."""

    await world.enqueue("job-1")
    grant = await world.claim()

    ended = await world.registry.cancel("job-1", actor="user:ana", hard=True)
    with pytest.raises(Fenced):
        await world.registry.complete(grant, Success(result="too late"))

    job = await world.registry.status("job-1")
    assert ended.state is State.CANCELLED
    assert (job.version, job.result) == (ended.version, None)
    await world.check()


async def test_a_cancelled_queued_job_never_runs(world: World) -> None:
    """Scenario 21."""

    await world.enqueue("job-1")

    job = await world.registry.cancel("job-1", actor="user:ana")

    assert job.state is State.CANCELLED
    assert await world.registry.claim(["default"], owner="w") == []
    with pytest.raises(Conflict):
        await world.registry.acquire("job-1", owner="w")
    assert await world.types("job-1") == ["job_queued", "job_cancelled"]


async def test_a_cancel_that_comes_after_success_is_refused(world: World) -> None:
    """Scenario 21 and invariant I23: the loser learns how it ended."""

    await world.enqueue("job-1")
    await world.registry.complete(await world.claim(), Success())

    with pytest.raises(Conflict, match="succeeded") as caught:
        await world.registry.cancel("job-1", actor="user:ana", hard=True)

    assert caught.value.version == 4
