"""A SQL store can be made again from its log."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

from holdfast.core.errors import Corrupt, Fenced
from holdfast.core.lifecycle import Success
from holdfast.core.rebuild import without_liveness
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import JobRequest, Rebuildable, RebuildResult
from holdfast.testing.world import TRANSIENT, World, open_world, output, patient
from tests.conftest import STORES
from tests.stores.rebuild_scenario import (
    Run,
    claim_order,
    fill,
    log,
    records,
    sql_on,
    wipe,
    write_as_before_segments,
)
from tests.stores.sqlite.test_migration import migrated

BOTH = pytest.mark.parametrize("kind", ["sqlite", "postgres"])
RARE = (State.FAILED, State.CANCELLED, State.DEAD_LETTERED, State.VALIDATING, State.PARTIAL_SUCCESS)


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[tuple[World, Run]]:
    async with open_world(STORES[kind], folder) as world:
        yield world, sql_on(world, folder)


async def rebuild(world: World, *, check: bool = False) -> RebuildResult:
    return await cast("Rebuildable", world.store).rebuild(check=check)


@BOTH
async def test_a_healthy_store_stays_as_it_is(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (world, _):
        grants = await fill(world)
        before, feed, counts = await records(world), await log(world), await world.store.counts()

        found = [await rebuild(world, check=True), await rebuild(world), await rebuild(world)]

        assert found == [RebuildResult(jobs=len(before), missing=0, different=0, lists=0)] * 3
        assert await records(world) == before
        assert await log(world) == feed
        assert await world.store.counts() == counts
        await world.check()
        for grant in grants.values():
            await world.registry.complete(grant, Success())


@BOTH
async def test_all_records_come_back(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (world, run):
        await fill(world)
        before, counts = await records(world), await world.store.counts()
        locks = await world.registry.locks("disk")
        assert {job.state for job in before.values()} >= {*RARE, State.QUEUED, State.ASSIGNED}
        await wipe(run)
        assert await world.store.counts() == {}

        checked = await rebuild(world, check=True)
        assert await world.store.counts() == {}
        found = await rebuild(world)

        assert checked == found
        assert (found.jobs, found.missing, found.different) == (len(before), len(before), 0)
        after = await records(world)
        assert list(after) == list(before)
        for job_id, job in before.items():
            assert without_liveness(after[job_id]) == without_liveness(job)
            assert after[job_id].owner == job.owner
        assert await world.store.counts() == counts
        assert await world.registry.locks("disk") == locks
        assert (await rebuild(world, check=True)).equal
        await world.check()


@BOTH
async def test_waiting_jobs_are_claimed_in_the_same_order(kind: str, tmp_path: Path) -> None:
    orders = []
    for wiped in (False, True):
        folder = tmp_path / str(wiped)
        folder.mkdir()
        async with opened(kind, folder) as (world, run):
            await fill(world)
            if wiped:
                await wipe(run)
                await rebuild(world)
            first = await claim_order(world)
            world.clock.advance(3_605)
            orders.append((first, await claim_order(world)))

    assert len(orders[0][0]) > 5
    assert "delayed" in orders[0][1]
    named = [[job_id for job_id in some if len(job_id) < 20] for some in (*orders[0], *orders[1])]
    assert named[:2] == named[2:]
    assert [len(some) for some in orders[0]] == [len(some) for some in orders[1]]


@BOTH
async def test_owners_keep_their_jobs_and_no_token_goes_back(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (world, run):
        grants = await fill(world)
        await wipe(run)
        await rebuild(world)

        for job_id in ("running", "locked", "made"):
            await world.registry.heartbeat(grants[job_id])
            await world.registry.complete(grants[job_id], Success())
        again = await world.registry.acquire("waits", owner="w8")
        world.clock.advance(61)
        await world.registry.expire()
        left = await world.store.get(["busy", "stopping"])

        assert again.fencing_token > grants["locked"].fencing_token
        assert [job.state for job in left if job] == [State.QUEUED, State.CANCELLED]
        with pytest.raises(Fenced):
            await world.registry.complete(grants["busy"], Success())
        assert (await world.registry.acquire("busy", owner="w")).fencing_token > grants["busy"].fencing_token
        await world.check()


@BOTH
async def test_the_floor_of_tokens_holds_for_locks_whose_rows_are_gone(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (world, run):
        await world.enqueue("waits", lock="disk")
        await world.registry.release(await world.registry.acquire("waits", owner="w"))
        for n in range(3):
            await world.enqueue(f"old-{n}", lock="disk")
            grant = await world.registry.acquire(f"old-{n}", owner="w")
            await world.registry.complete(grant, Success())
        world.clock.advance(10)
        await world.registry.prune(older_than=timedelta())
        await wipe(run)
        await rebuild(world)

        assert (await world.registry.acquire("waits", owner="w")).fencing_token > grant.fencing_token


@BOTH
async def test_a_process_that_has_seen_the_damage_goes_on_with_the_repaired_record(
    kind: str, tmp_path: Path
) -> None:
    async with opened(kind, tmp_path) as (world, run):
        grants = await fill(world)
        await run("UPDATE {}state SET failures = 3")
        world.clock.advance(1)
        await world.registry.heartbeat(grants["busy"])
        await rebuild(world)

        await world.registry.heartbeat(grants["busy"])
        done = await world.registry.complete(grants["busy"], Success())

        assert done.failures == 0
        await world.check()


@BOTH
async def test_repeated_claims_are_answered(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (world, run):
        grants = await fill(world)
        await wipe(run)
        await rebuild(world)

        three = await world.registry.claim(["leased"], owner="w5", op_id="claim-three", limit=3)
        ended = await world.registry.claim(["default"], owner="w", op_id="claim-partial")
        one = await world.registry.acquire("locked", owner="w6", op_id="claim-locked")
        made = await world.registry.acquire("made", owner="w7", op_id="claim-made")

        assert [g.job_id for g in three] == ["running", "stopping", "busy"]
        assert [g.fencing_token for g in three] == [grants[g.job_id].fencing_token for g in three]
        assert ended == []
        assert one.fencing_token == grants["locked"].fencing_token
        assert made.fencing_token == grants["made"].fencing_token


@BOTH
async def test_a_damaged_record_is_repaired_and_the_others_keep_all_they_have(
    kind: str, tmp_path: Path
) -> None:
    async with opened(kind, tmp_path) as (world, run):
        await fill(world)
        before = await records(world)
        await run(
            "UPDATE {}state SET detail = '{\"reason\": 7}' WHERE seq IN"
            " (SELECT seq FROM {}job WHERE job_id = 'failed');"
            "UPDATE {}state SET attempt = 9 WHERE seq IN (SELECT seq FROM {}job WHERE job_id = 'dead');"
            "DELETE FROM {}ready WHERE seq IN (SELECT seq FROM {}job WHERE job_id = 'urgent');"
            "UPDATE {}resource SET holder = NULL"
        )
        with pytest.raises(Corrupt):
            await world.store.get(["failed"])

        found = await rebuild(world)

        assert found == RebuildResult(jobs=len(before), missing=1, different=1, lists=2)
        assert await records(world) == before
        await world.check()


@BOTH
async def test_output_goes_on_after_the_last_sequence_in_the_log(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (world, run):
        await world.enqueue("job-1", retry=patient())
        first = await world.claim()
        await world.registry.publish(first, [output(n, world=world) for n in (1, 2, 3, 4)])
        await world.registry.complete(first, TRANSIENT)
        world.clock.advance(60)
        grant = await world.claim()
        await world.registry.publish(grant, [output(n, world=world) for n in (1, 2)])
        await wipe(run)
        await rebuild(world)

        await world.registry.publish(
            grant, [output(n, world=world) for n in (1, 2, 3)]
        )  # a repeat, and one more

        [job] = await world.store.get(["job-1"])
        assert job is not None
        assert (job.published, job.flaws) == (3, None)
        page = await world.store.logs("job-1", after=None, limit=100)
        assert [e.sequence for e in page.events if e.sequence] == [1, 2, 3, 4, 1, 2, 3]


async def test_jobs_of_a_file_from_before_segments_come_back(tmp_path: Path) -> None:
    async with migrated(tmp_path) as world:
        before = await records(world)
        assert (await rebuild(world, check=True)).different == 0
        await world.enqueue("new")
        await wipe(sql_on(world, tmp_path))

        found = await rebuild(world)

        assert (found.missing, found.different) == (len(before) + 1, 0)
        after = await records(world)
        for job_id, job in before.items():
            assert without_liveness(after[job_id]) == without_liveness(job)
        [again] = await world.registry.claim(["a1"], owner="w4", op_id="claim-assigned")
        assert again.job_id == "assigned"
        await world.check()


async def test_events_in_rows_of_their_own_on_postgres_are_read(tmp_path: Path) -> None:
    async with opened("postgres", tmp_path) as (world, run):
        await fill(world)
        before = await records(world)
        await write_as_before_segments(world)
        await wipe(run)

        found = await rebuild(world)

        assert (found.missing, found.different) == (len(before), 0)
        after = await records(world)
        for job_id, job in before.items():
            assert without_liveness(after[job_id]) == without_liveness(job)
        await world.check()


@BOTH
async def test_a_log_with_a_gap_changes_nothing(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (world, run):
        await fill(world)
        before = await records(world)
        await run("DELETE FROM {}segment WHERE event_type = 'job_started'")

        with pytest.raises(Corrupt, match="cannot be made again from its log: offset 3 is missing"):
            await rebuild(world)

        assert await records(world) == before


async def test_a_job_without_its_lane_changes_nothing(tmp_path: Path) -> None:
    async with opened("sqlite", tmp_path) as (world, run):
        await world.enqueue("job-1")
        await run("DELETE FROM lane")

        with pytest.raises(Corrupt, match="job-1 cannot be made again: its lane is gone"):
            await rebuild(world)

        assert await world.store.counts() == {State.QUEUED: 1}


@BOTH
async def test_many_jobs_of_one_commit_and_of_many_chunks(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (world, run):
        requests = [JobRequest(spec=Spec(), job_id=f"more-{n:04}") for n in range(1_200)]
        for start in range(0, 1_200, 400):
            await world.registry.enqueue_many(requests[start : start + 400], actor="user:ana")
        while grants := await world.registry.claim(["default"], owner="w", limit=100):
            for grant in grants[::2]:
                await world.registry.complete(grant, Success())
        counts = await world.store.counts()
        await wipe(run)

        found = await rebuild(world)

        assert found.missing == found.jobs == 1_200
        assert await world.store.counts() == counts
        assert (await rebuild(world, check=True)).equal
        await world.check()
