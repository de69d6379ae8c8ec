"""What is in the tables beside the jobs: the queue, alarms, claims and segments, and how little is read."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import apsw
import msgspec
import pytest

from holdfast.core.job import Progress
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Completion, JobFilter, JobRequest
from holdfast.stores.sqlite import alarms
from holdfast.stores.sqlite.commit import SqliteCommit
from holdfast.testing.world import LEASE, TRANSIENT, World, open_world, patient
from tests.conftest import sqlite_store

T = TypeVar("T")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@asynccontextmanager
async def world_at(path: Path) -> AsyncIterator[World]:
    async with open_world(sqlite_store, path.parent) as world:
        yield world
        await world.check()


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found = list(connection.execute(sql))
    connection.close()
    return found


def count(path: Path, table: str) -> object:
    return rows(path, f"SELECT count(*) FROM {table}")[0][0]


async def enqueue_many(world: World, jobs: int, **asked: object) -> None:
    spec = Spec(**asked)  # type: ignore[arg-type]
    for start in range(0, jobs, 500):
        some = [JobRequest(spec=spec)] * min(500, jobs - start)
        await world.registry.enqueue_many(some, actor="user:ana")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many hundreds of steps SQLite has taken in commits since the last call."""
    taken = [0]
    run = SqliteCommit.run

    def counted(self: SqliteCommit) -> object:
        def step() -> bool:
            taken[0] += 1
            return False

        self._connection.set_progress_handler(step, 100)
        return run(self)

    def since() -> int:
        found, taken[0] = taken[0], 0
        return found

    monkeypatch.setattr(SqliteCommit, "run", counted)
    return since


@pytest.mark.parametrize("other", [{"kind": "other"}, {"executor": "gpu"}, {"region": "eu"}, {"priority": 9}])
async def test_a_claim_does_not_look_at_jobs_that_do_not_fit(
    path: Path, steps: Callable[[], int], other: dict[str, object]
) -> None:
    found = []
    async with world_at(path) as world:
        for beside in (0, 5_000):
            await enqueue_many(world, beside, **{"kind": "wanted", **other})
            await enqueue_many(world, 1, kind="wanted")
            steps()
            [grant] = await world.registry.claim(["default"], owner="w", kinds=["wanted"], region="us")
            found.append(steps())
            spec = grant.job.spec
            assert (spec.kind, spec.executor, spec.region, spec.priority) == ("wanted", None, None, 5)
            await world.registry.complete(grant, Success())

    assert found[1] <= found[0] * 1.2 + 2, found


async def test_a_claim_behind_many_ended_and_queued_jobs_reads_as_little(
    path: Path, steps: Callable[[], int]
) -> None:
    found = []
    async with world_at(path) as world:
        for jobs in (10, 3_000):
            await enqueue_many(world, jobs)
            while True:
                grants = await world.registry.claim(["default"], owner="w", limit=500)
                await world.registry.complete_many([Completion(grant, Success()) for grant in grants])
                if not grants:
                    break
            await enqueue_many(world, jobs)
            steps()
            [_grant] = await world.registry.claim(["default"], owner="w")
            found.append(steps())

    assert found[1] <= found[0] * 1.2 + 2, found


@pytest.mark.parametrize("locks", [1, 50])
async def test_a_claim_beside_many_jobs_of_held_locks_reads_as_little(
    path: Path, steps: Callable[[], int], locks: int
) -> None:
    found = []
    async with world_at(path) as world:
        for n in range(locks):
            await world.enqueue(queue="holders", lock=f"lock-{n}")
        assert len(await world.registry.claim(["holders"], owner="holder", limit=locks)) == locks
        for more in (1_200, 9_000):
            for n in range(locks):
                await enqueue_many(world, more // locks, lock=f"lock-{n}")
            await enqueue_many(world, 2, lock="free")
            await enqueue_many(world, 2)
            steps()
            got = await world.registry.claim(["default"], owner="w", limit=5)
            found.append(steps())
            assert [grant.job.spec.lock for grant in got] == ["free", None, None]
            await world.registry.complete(got[0], Success())
            [other] = await world.registry.claim(["default"], owner="w", limit=5)
            await world.registry.complete(other, Success())

    assert found[1] <= found[0] * 1.2 + 2, found


async def test_only_queued_jobs_are_in_the_queue(path: Path) -> None:
    async with world_at(path) as world:
        await world.enqueue("later", delay=timedelta(hours=1))
        await world.enqueue("again", retry=patient())
        await world.enqueue("gone")
        await world.registry.cancel("gone", actor="user:ana", hard=True)
        grant = await world.claim()
        assert len(rows(path, "SELECT * FROM ready")) == 1
        await world.registry.complete(grant, TRANSIENT)
        assert len(rows(path, "SELECT * FROM ready")) == 2
        await world.registry.cancel("later", actor="user:ana", hard=True)
        [(ready_at,)] = rows(path, "SELECT ready_at FROM ready")
        [(same,)] = rows(path, "SELECT ready_at FROM state WHERE state = 'queued'")

        assert ready_at == same


async def test_a_renewed_lease_costs_no_alarm_and_still_runs_out(path: Path) -> None:
    async with world_at(path) as world:
        await world.enqueue("job")
        grant = await world.claim()
        before = rows(path, "SELECT * FROM alarm")
        for step in range(3):
            world.clock.advance(LEASE.total_seconds() / 2)
            await world.registry.heartbeat(grant, progress=Progress(step))
            assert await world.registry.expire() == 0
        after = rows(path, "SELECT * FROM alarm")
        world.clock.advance(LEASE.total_seconds() + 1)

        assert len(before) == len(after) == 1
        assert await world.registry.expire() == 1
        assert (await world.registry.status("job")).state is State.QUEUED
        assert count(path, "alarm") == 0


async def test_the_longest_overdue_comes_first_over_many_alarms(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alarms, "LOOKED_AT_MAX", 1)
    async with world_at(path) as world:
        for together in ((1, 50), (5, 2), (3, 90), (4,)):
            asked = [
                JobRequest(spec=Spec(ttl=timedelta(minutes=n), payload=msgspec.Raw(b"%d" % n)))
                for n in together
            ]
            await world.registry.enqueue_many(asked, actor="user:ana")
        world.clock.advance(3_600)
        rounds: list[set[int]] = []
        while len(rounds) < 40 and (not rounds or len(rounds[-1]) < 6):
            await world.registry.expire(limit=2)
            jobs = (await world.registry.list_jobs()).jobs
            rounds.append({int(bytes(job.spec.payload)) for job in jobs if job.ended})

        order = [1, 2, 3, 4, 5, 50]
        assert all(ended == set(order[: len(ended)]) for ended in rounds), rounds
        assert rounds[-1] == set(order)
        world.clock.advance(3_600)
        while await world.registry.expire(limit=2):
            pass
        assert not (await world.registry.list_jobs(JobFilter(states=(State.QUEUED,)))).jobs
        assert count(path, "alarm") == 0


async def test_a_claims_lease_is_stored_once(path: Path) -> None:
    async with world_at(path) as world:
        await enqueue_many(world, 5)
        grants = await world.registry.claim(["default"], owner="w", limit=5)
        details = rows(path, "SELECT DISTINCT detail FROM state")
        await world.registry.heartbeat(grants[0])
        [job] = await world.store.get([grants[0].job_id])

        assert details == [(None,)]
        assert count(path, "claim") == 1
        assert job is not None
        assert job.lease is not None
        assert job.lease.heartbeat_at == world.clock.now()


async def test_results_that_are_equal_but_not_the_same_are_kept_apart(path: Path) -> None:
    async with world_at(path) as world:
        await enqueue_many(world, 6)
        grants = await world.registry.claim(["default"], owner="w", limit=6)
        results = [1, True, 1.0, 0, False, {"a": [1, True]}]
        done = [Completion(g, Success(result=r)) for g, r in zip(grants, results, strict=True)]
        await world.registry.complete_many(done)

        jobs = await world.store.get([grant.job_id for grant in grants])

        assert [repr(job.result) for job in jobs if job] == [repr(result) for result in results]


async def test_pruned_jobs_leave_nothing_in_segments_and_claims(path: Path) -> None:
    async with world_at(path) as world:
        await enqueue_many(world, 4)
        grants = await world.registry.claim(["default"], owner="w", limit=4, op_id="claim-1")
        await world.registry.complete_many([Completion(grant, Success()) for grant in grants[:2]])
        world.clock.advance(86_400 * 2)
        pruned = await world.registry.prune(older_than=timedelta(days=1))
        left = [seq for (seq,) in rows(path, "SELECT seq FROM job")]
        texts = [str(text) for (text,) in rows(path, "SELECT events FROM segment")]

        assert (pruned.jobs, pruned.events) == (2, 8)
        assert left == [3, 4]
        assert all(grant.job_id not in text for grant in grants[:2] for text in texts)
        assert {tuple(msgspec.json.decode(text)["job"]) for text in texts} == {(3, 4)}
        assert rows(path, "SELECT jobs FROM claim") == [("[3,4]",)]

        await world.registry.complete_many([Completion(grant, Success()) for grant in grants[2:]])
        world.clock.advance(86_400 * 2)
        await world.registry.prune(older_than=timedelta(days=1))
        for table in ("job", "state", "ready", "rare", "claim", "segment", "event"):
            assert count(path, table) == 0, table
        tail = await world.store.tail()
        await world.enqueue("new")
        page = await world.store.events(after=tail, limit=10)
        assert [event.event_id for event in page.events] == ["new/1"]
