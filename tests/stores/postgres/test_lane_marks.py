"""Claims begin where an earlier one ended, and nothing that lands before that is left behind."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import Completion, Grant, JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.stores.postgres.lane_marks import WHOLE_SECONDS, WHOLE_SHARE, LaneMarks
from holdfast.stores.postgres.store import PostgresStore
from holdfast.system import SystemIds
from holdfast.testing.fakes import ManualClock
from tests.stores.postgres.open_stores import (
    ACTOR,
    connected,
    fresh_store_url,
    opened,
    schema_of,
    wanted,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_lane_is_read_from_its_beginning_for_a_small_share_of_the_time() -> None:
    clock = ManualClock()
    marks = LaneMarks(clock)

    def read(seconds: float) -> bool:
        whole = marks.begin() == ([], [], [])
        clock.advance(seconds)
        marks.read()
        marks.move([(1, AT, 7)])
        return whole

    assert [read(0.2), read(0), read(0)] == [True, False, False]
    assert marks.known() == ([1], [AT], [7])
    clock.advance(WHOLE_SHARE * 0.2)
    assert [read(0.001), read(0)] == [True, False]
    clock.advance(WHOLE_SECONDS)
    assert read(0)
    marks.forget()
    assert marks.begin() == ([], [], [])


@pytest.fixture
def never_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """No lane is read from its beginning again: what is found is found without that."""
    read = LaneMarks.read

    def once(self: LaneMarks) -> None:
        read(self)
        self._whole_at = float("inf")

    monkeypatch.setattr(LaneMarks, "read", once)


async def drained(registry: LocalRegistry, limit: int = 5) -> list[str]:
    """Claim until there is nothing more; return the ids in the order in which they were claimed."""
    ids: list[str] = []
    while grants := await registry.claim(["default"], owner="w", limit=limit):
        await registry.complete_many([Completion(grant, Success()) for grant in grants])
        ids += [grant.job_id for grant in grants]
    return ids


async def filled(store: PostgresStore, count: int) -> tuple[LocalRegistry, list[str]]:
    """A registry on the store with so many jobs that have been ready for longer than marks are late."""
    registry = LocalRegistry(store, SystemIds())
    jobs = await registry.enqueue_many([JobRequest(spec=Spec())] * count, actor=ACTOR)
    await asyncio.sleep(1.1)
    return registry, [job.job_id for job in jobs]


@pytest.mark.usefixtures("never_whole")
async def test_a_claim_begins_after_the_jobs_that_the_one_before_took() -> None:
    url = fresh_store_url()

    async with opened(url) as store, connected() as person:
        registry, ids = await filled(store, 20)
        [*_, last] = await registry.claim(["default"], owner="w", limit=7)
        [_], [at], [seq] = store._context.ready_marks.known()
        sql = f"SELECT seq FROM {schema_of(url)}.job WHERE job_id = $1"
        assert (at, seq) == (last.job.ready_at, await person.fetchval(sql, last.job_id))
        assert await drained(registry) == ids[7:]


@pytest.mark.usefixtures("never_whole")
async def test_a_job_that_comes_back_before_the_mark_is_claimed_first() -> None:
    async with opened(fresh_store_url()) as store:
        registry, ids = await filled(store, 20)
        [first, second, *_] = await registry.claim(["default"], owner="w", limit=10)
        await registry.release(second)
        await registry.release(first)
        assert await drained(registry) == [*ids[:2], *ids[10:]]


@pytest.mark.usefixtures("never_whole")
async def test_a_job_of_a_long_transaction_is_claimed_when_that_is_committed() -> None:
    async with opened(fresh_store_url()) as store, connected() as person:
        async with person.transaction():
            await store.transact_within(person, [wanted("late")])
            registry, ids = await filled(store, 10)
            assert await drained(registry) == ids
            await registry.enqueue(JobRequest(spec=Spec(), job_id="after"), actor=ACTOR)
        assert await drained(registry) == ["late", "after"]


@pytest.mark.usefixtures("never_whole")
async def test_what_another_claim_gives_back_by_ending_is_not_left_behind() -> None:
    """Its rows are still there while it is undecided: the mark waits before the first of them."""
    url = fresh_store_url()

    async with opened(url) as store, connected() as person:
        registry, ids = await filled(store, 20)
        async with undone(person):
            ready = f"{schema_of(url)}.ready"
            sql = f"DELETE FROM {ready} WHERE seq IN (SELECT seq FROM {ready} ORDER BY seq LIMIT 3)"
            await person.execute(sql)
            assert await drained(registry, limit=4) == ids[3:]
        assert await drained(registry) == ids[:3]


def undone(person: "asyncpg.Connection[Any]") -> "Undone":
    return Undone(person)


class Undone:
    """A transaction that is rolled back."""

    def __init__(self, person: "asyncpg.Connection[Any]") -> None:
        self._transaction = person.transaction()

    async def __aenter__(self) -> None:
        await self._transaction.start()

    async def __aexit__(self, *_: object) -> None:
        await self._transaction.rollback()


async def test_dead_rows_behind_a_held_snapshot_are_not_read_again() -> None:
    url = fresh_store_url()
    jobs, step = 3_000, 100

    async with opened(url) as store, connected() as person, connected() as holder:
        async with holder.transaction(isolation="repeatable_read"):
            registry, _ = await filled(store, jobs)
            await holder.fetchval(f"SELECT count(*) FROM {schema_of(url)}.job")
            grants: list[Grant] = []
            while more := await registry.claim(["default"], owner="w", limit=step):
                grants += more
            assert len(grants) == jobs
            reads = await tuples_read(store, person, schema_of(url))
        # From the beginning each time, it would be jobs / step / 2 times as many.
        assert reads < 6 * jobs, reads


async def tuples_read(store: PostgresStore, person: "asyncpg.Connection[Any]", schema: str) -> int:
    """How many rows of the queue the sessions of a store have read, told when they end."""
    await store._sessions.close()
    sql = (
        "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE schemaname = $1 AND indexrelname = 'ready_pkey'"
    )
    for _ in range(500):
        if found := await person.fetchval(sql, schema):
            return int(found)
        await asyncio.sleep(0.02)
    raise AssertionError("no session has told what it read")
