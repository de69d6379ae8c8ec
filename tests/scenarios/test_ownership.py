"""Acceptance scenarios 7, 9 to 11 and 13 to 16: one owner at a time, on every store."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.core.errors import Conflict, Fenced
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Grant, JobRequest
from holdfast.testing.world import World, open_world, output
from tests.conftest import STORES

ROUNDS = 200


@pytest.mark.parametrize("store", STORES)
async def test_of_64_claimers_one_wins_in_every_round(store: str, tmp_path: Path) -> None:
    """Scenario 7; with claimers in many processes, see tests/load and `make verify`."""

    async with open_world(STORES[store], tmp_path) as world:
        registry, counted = world.registry, world.local.counters
        for n in range(ROUNDS):
            job_id = f"job-{n}"
            await world.enqueue(job_id)

            answers = await asyncio.gather(
                *(registry.acquire(job_id, owner=f"w-{w}") for w in range(64)),
                return_exceptions=True,
            )

            [grant] = [answer for answer in answers if isinstance(answer, Grant)]
            refused = [answer for answer in answers if isinstance(answer, Conflict)]
            assert len(refused) == 63
            assert {error.message for error in refused} == {f"Job owned by {grant.job.owner}."}
            assert counted.kinds["command"].conflicts == 63 * (n + 1)
            assert counted.events["job_claimed"] == n + 1
        ids = [f"job-{n}" for n in range(ROUNDS)]
        for history in await world.store.histories(ids):
            assert [event.event_type for event in history] == ["job_queued", "job_claimed"]
        for job in await world.store.get(ids):
            assert job is not None
            assert (job.fencing_token, job.version) == (1, 2)


async def test_a_frozen_owner_is_refused_in_all_it_does_and_that_is_recorded(world: World) -> None:
    """Scenario 9."""

    job = await world.enqueue("job-1")
    for _ in range(41):
        await world.registry.release(await world.claim("worker-1"))
    frozen = await world.claim("worker-7")
    await world.registry.heartbeat(frozen)
    world.clock.advance(61)
    second = await world.registry.acquire(job.job_id, owner="worker-9")
    await world.registry.complete(second, Success(result="worker-9's"))

    with pytest.raises(Fenced) as beat:
        await world.registry.heartbeat(frozen)
    with pytest.raises(Fenced):
        await world.registry.publish(frozen, [output(1, world=world)])
    with pytest.raises(Fenced):
        await world.registry.complete(frozen, Success(result="worker-7's"))

    after = await world.registry.status("job-1")
    log = await world.registry.logs("job-1")
    stale = [e for e in log.events if e.event_type == "job_stale_write_rejected"]
    assert (frozen.fencing_token, second.fencing_token) == (42, 43)
    assert (after.state, after.result) == (State.SUCCEEDED, "worker-9's")
    assert beat.value.version == after.version
    assert [e.attributes["verb"] for e in stale] == ["heartbeat", "publish", "complete"]
    assert {e.fencing_token for e in stale} == {42}
    await world.check()


async def test_a_zombie_is_refused_while_its_successor_still_works(world: World) -> None:
    """Scenario 9, with the successor still running: the token decides, not the state."""

    await world.enqueue("job-1")
    frozen = await world.claim("worker-7")
    world.clock.advance(61)
    second = await world.registry.acquire("job-1", owner="worker-9")
    await world.registry.heartbeat(second)
    before = await world.registry.status("job-1")

    for act in (
        world.registry.heartbeat(frozen),
        world.registry.publish(frozen, [output(1, world=world)]),
        world.registry.aggregate(frozen),
        world.registry.release(frozen),
        world.registry.complete(frozen, Success(result="worker-7's")),
    ):
        with pytest.raises(Fenced):
            await act

    assert await world.registry.status("job-1") == before
    done = await world.registry.complete(second, Success(result="worker-9's"))
    assert done.result == "worker-9's"
    await world.check()


async def test_a_killed_workers_job_goes_on_as_attempt_two(world: World) -> None:
    """Scenario 10."""

    await world.enqueue("job-1")
    killed = await world.claim("worker-7")
    await world.registry.heartbeat(killed)
    world.clock.advance(61)

    second = await world.claim("worker-9")
    await world.registry.complete(second, Success())

    history = await world.registry.history("job-1")
    requeued = [e for e in history if e.event_type == "job_requeued"]
    assert second.attempt == 2
    assert [e.attributes["cause"] for e in requeued] == ["lease_expired"]
    assert [(e.attempt, e.to_state) for e in history] == [
        (1, "queued"),
        (1, "assigned"),
        (1, "running"),
        (2, "queued"),
        (2, "assigned"),
        (2, "running"),
        (2, "succeeded"),
    ]
    await world.check()


async def test_a_lost_lease_is_counted_once_whoever_notices(world: World) -> None:
    """Scenario 10: lease_expiries = 1, however many look."""

    await world.enqueue("job-1")
    await world.claim("worker-7")
    world.clock.advance(61)

    swept = await asyncio.gather(*(world.registry.expire() for _ in range(8)))

    assert sum(swept) == 1
    assert world.local.counters.events["job_requeued"] == 1
    assert world.local.counters.kinds["command"].lapsed == 1
    assert (await world.registry.status("job-1")).crashes == 1


async def test_an_owner_that_renews_in_time_is_never_reclaimed(world: World) -> None:
    """Scenario 11: a sign of life every 200 s under a lease of 300 s."""

    await world.enqueue("job-1")
    grant = await world.claim(lease=timedelta(seconds=300))
    for _ in range(20):
        world.clock.advance(200)
        await world.registry.heartbeat(grant)
        world.clock.advance(99)
        assert await world.registry.expire() == 0
        assert await world.registry.claim(["default"], owner="thief") == []
        await world.registry.heartbeat(grant)

    job = await world.registry.status("job-1")
    assert (job.attempt, job.owner) == (1, "worker-7")


async def test_two_missed_heartbeats_are_flagged_and_the_lease_still_ends_in_its_time(
    world: World,
) -> None:
    """Scenario 11: a declared heartbeat of 30 s is a lease of 90 s."""

    await world.enqueue("job-1")
    grant = await world.claim(heartbeat_interval=timedelta(seconds=30))
    world.clock.advance(60)
    assert await world.registry.expire() == 1
    assert await world.registry.expire() == 0
    suspected = await world.registry.status("job-1")
    world.clock.advance(29)
    assert await world.registry.claim(["default"], owner="thief") == []
    world.clock.advance(1)

    second = await world.claim("worker-9")

    log = await world.registry.logs("job-1")
    flags = [e for e in log.events if e.event_type == "job_orphan_suspected"]
    assert grant.lease_seconds == 90
    assert suspected.lease is not None
    assert suspected.lease.suspected
    assert len(flags) == 1
    assert second.attempt == 2
    [requeued] = [e for e in log.events if e.event_type == "job_requeued"]
    assert requeued.attributes["cause"] == "orphaned"
    await world.check()


@pytest.mark.parametrize("known", [True, False])
async def test_an_owner_that_acquired_and_declared_2_seconds_loses_the_job_after_three_misses(
    world: World, known: bool
) -> None:
    """R4.28 and C-14, for a job taken by its id: one that was there, or one that is made."""

    interval = timedelta(seconds=2)
    if known:
        await world.enqueue("job-1")
    create = None if known else JobRequest(spec=Spec(), job_id="job-1")
    first = await world.registry.acquire("job-1", owner="w-1", heartbeat_interval=interval, create=create)
    world.clock.advance(5)
    await world.registry.heartbeat(first)
    world.clock.advance(5.9)
    with pytest.raises(Conflict, match="Job owned by w-1"):
        await world.registry.acquire("job-1", owner="w-2")
    world.clock.advance(0.1)

    second = await world.registry.acquire("job-1", owner="w-2")

    assert first.lease_seconds == 6
    assert (second.attempt, second.fencing_token) == (2, first.fencing_token + 1)
    with pytest.raises(Fenced, match="stale"):
        await world.registry.complete(first, Success())
    await world.check()


async def test_a_repeated_claim_brings_the_same_token_and_lease_back(world: World) -> None:
    """Scenario 13."""

    await world.enqueue("job-1")
    await world.enqueue("job-2")
    first = await world.claim(op_id="key-1")
    token = await world.local.seal_task_token(first)

    again = await world.claim(op_id="key-1")
    named = await world.registry.acquire("job-1", owner="worker-7", op_id="key-1")

    assert again == named == first
    assert await world.local.seal_task_token(again) == token
    assert await world.types("job-1") == ["job_queued", "job_claimed"]
    assert await world.types("job-2") == ["job_queued"]


async def test_a_claim_repeated_late_promises_no_more_than_what_is_left_of_the_lease(
    world: World,
) -> None:
    """Scenario 13: the caller counts `lease_seconds` from before it sent the repeat."""

    await world.enqueue("job-1")
    first = await world.claim(op_id="key-1")
    world.clock.advance(50)

    claimed = await world.claim(op_id="key-1")
    acquired = await world.registry.acquire("job-1", owner="worker-7", op_id="key-1")

    assert first.lease_seconds == 60
    assert claimed.lease_seconds == 10
    assert acquired.lease_seconds == 10


async def test_two_jobs_of_one_lock_run_one_after_the_other(world: World) -> None:
    """Scenario 14."""

    await world.enqueue("one", lock="disk")
    await world.enqueue("two", lock="disk")
    first = await world.claim()
    with pytest.raises(Conflict, match="locked by job one"):
        await world.registry.acquire("two", owner="worker-9")
    assert await world.registry.claim(["default"], owner="worker-9", limit=10) == []

    await world.registry.complete(first, Success())
    second = await world.claim("worker-9")

    assert (first.job_id, second.job_id) == ("one", "two")
    assert second.fencing_token > first.fencing_token
    assert (await world.registry.locks("disk")).holder == "two"
    await world.check()


@pytest.mark.parametrize("way", ["release", "cancel", "lapse"])
async def test_a_lock_is_free_however_its_holder_ends(world: World, way: str) -> None:
    """Scenario 14: whatever takes the lease takes the lock with it."""

    await world.enqueue("one", lock="disk", queue="first")
    await world.enqueue("two", lock="disk")
    [first] = await world.registry.claim(["first"], owner="worker-7")
    if way == "release":
        await world.registry.release(first)
    elif way == "cancel":
        await world.registry.cancel("one", actor="user:ana", hard=True)
    else:
        await world.lapse()

    second = await world.claim("worker-9")

    assert second.fencing_token > first.fencing_token
    with pytest.raises(Fenced):
        await world.registry.complete(first, Success())
    assert (await world.registry.locks("disk")).holder == "two"


async def test_a_worker_of_another_region_is_refused_and_one_of_none_is_not(world: World) -> None:
    """Scenario 15."""

    await world.enqueue("job-1", region="us-east-1")

    with pytest.raises(Conflict, match="region us-east-1"):
        await world.registry.acquire("job-1", owner="w", region="eu-west")
    assert await world.registry.claim(["default"], owner="w", region="eu-west") == []
    grant = await world.registry.acquire("job-1", owner="w")

    assert grant.job_id == "job-1"
    assert await world.types("job-1") == ["job_queued", "job_claimed"]


async def test_a_released_job_is_claimable_at_once_and_its_old_token_is_dead(world: World) -> None:
    """Scenario 16."""

    await world.enqueue("job-1")
    await world.enqueue("behind")
    first = await world.claim("worker-7")

    released = await world.registry.release(first, reason="rolling update")
    second = await world.claim("worker-9")

    assert (released.state, released.attempt) == (State.QUEUED, 2)
    assert (released.reason, released.failures, released.crashes) == ("rolling update", 0, 0)
    assert (second.job_id, second.attempt, second.fencing_token) == ("job-1", 2, 2)
    with pytest.raises(Fenced):
        await world.registry.heartbeat(first)
    forged = replace(first, fencing_token=second.fencing_token + 1)
    with pytest.raises(Fenced):
        await world.registry.complete(forged, Success())
    await world.check()
